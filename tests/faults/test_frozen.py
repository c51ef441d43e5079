# SPDX-License-Identifier: Apache-2.0
"""Processes that stand still past every lease while others go on, and then wake up.

A real process is stopped by SIGSTOP, threads and all, right before the step that would make its work durable. Its
lease passes, others do the same work, and the sleeper goes on where it was.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any, Literal

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.landing import Landing
from tests.support.messes import CREATE, TABLE
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import World, records

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

Make = Callable[..., World]
Produce = Callable[..., object]
Role = Literal["write", "close"]
LEASE = timedelta(seconds=2)
"""How long a claim lives here. The broker's clock tells its end, so it is waited for."""
LEFT_EARLY = 3


def sleeper(role: Role, landing: Landing, kafka: Mapping[str, Any], catalog: Mapping[str, str], opened: Opened) -> None:
    """In a process of its own: write or close the cycle, and stop right before the first durable step."""
    owner, method = (ControlWriter, "send") if role == "write" else (SqlCatalog, "commit_table")
    real = getattr(owner, method)

    def stop_first(*args: Any, **kwargs: Any) -> Any:
        setattr(owner, method, real)
        # To this very thread: another one may take what is sent to the process, and this one goes on for a while.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return real(*args, **kwargs)

    setattr(owner, method, stop_first)
    world = World(landing=landing, kafka=kafka, catalog=catalog)
    try:
        if role == "write":
            world.write(opened)
        else:
            world.close("frozen", opened)
    except LakecommitError as e:
        print(f"the sleeper ended with {type(e).__name__}: {e}")
        os._exit(LEFT_EARLY)


@contextmanager
def frozen(role: Role, world: World, opened: Opened) -> Iterator[BaseProcess]:
    """The sleeper, stopped; it is woken up by leaving, and has ended then."""
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=sleeper, args=(role, world.landing, world.kafka, world.catalog, opened))
    process.start()
    assert process.pid is not None
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the sleeper ended before it could be stopped: {status}"
        yield process
        os.kill(process.pid, signal.SIGCONT)
        process.join(PATIENCE)
        assert process.exitcode in (0, LEFT_EARLY)
    finally:
        process.kill()
        process.join()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "released", [False, pytest.param(True, marks=pytest.mark.campaign)], ids=["claim ended by time", "released"]
)
def test_an_executor_that_wakes_up_after_others_did_its_work_doubles_nothing(
    make_world: Make, produce: Produce, released: bool
) -> None:
    lease = {} if released else {"completion_timeout": LEASE}
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100, **lease)
    produce(world.landing.topics, records(0, 100))
    opened = world.open("frozen")
    with frozen("write", world, opened):
        time.sleep(0 if released else LEASE.total_seconds())
        again = world.open("others", release=released)
        assert sum(len(s) for s in again.slices) == 100
        world.write(again)
        assert world.close("others", again).rows == 100
    late = world.close("frozen", opened)
    assert late.published == ()
    produce(world.landing.topics, records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    check_verified(world)


@pytest.mark.parametrize(
    "rolled_back", [True, pytest.param(False, marks=pytest.mark.campaign)], ids=["and it was rolled back", ""]
)
def test_a_committer_that_wakes_up_between_staging_and_its_request_doubles_nothing(
    make_world: Make, produce: Produce, rolled_back: bool
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    produce(world.landing.topics, records(0, 40))
    world.run()
    produce(world.landing.topics, records(40, 60))
    opened = world.open("frozen")
    world.write(opened)
    with world.session() as session:
        parent = session.tables.load(TABLE).metadata.current_snapshot_id
    with frozen("close", world, opened):
        produce(world.landing.topics, records(100, 20))
        world.settle()
        if rolled_back:
            with world.session() as session:
                session.tables.load(TABLE).manage_snapshots().rollback_to_snapshot(parent).commit()
    produce(world.landing.topics, records(120, 20))
    world.settle()
    world.check(Counter(range(140)))
    check_verified(world)
