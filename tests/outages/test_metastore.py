# SPDX-License-Identifier: Apache-2.0
"""A landing in a real Hive Metastore, whose lock is a lease: a committer that stands still past it, and wakes up."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hive_metastore.ThriftHiveMetastore import Client

from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import catalog as table
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.doctor.finding import Level
from airflow_provider_lakecommit.status.doctor.lake import tables
from dev.servers.metastore import Metastore
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import World, race, records

pytestmark = pytest.mark.metastore

Produce = Callable[..., object]
LEFT_EARLY = 3
STRANGER = 1000


@pytest.fixture
def make_hive_world(make_world: Callable[..., World], metastore: Metastore) -> Callable[..., World]:
    """A landing into a table of its own in the metastore."""

    def make(**fields: object) -> World:
        name = f"shop.rows_{uuid4().hex[:8]}"
        world = make_world(**{"table": name, "dead_letter_table": None, "slice_records": 100, **fields})
        return replace(world, catalog=metastore.properties)

    return make


def test_a_landing_lands_and_the_next_run_lands_nothing(
    make_hive_world: Callable[..., World], produce: Produce
) -> None:
    world = make_hive_world()
    produce(world.landing.topics, records(0, 100))
    assert world.run().rows == 100
    assert world.run().published == ()
    produce(world.landing.topics, records(100, 50))
    world.settle()
    world.check(Counter(range(150)))
    check_verified(world)


def test_the_doctor_reports_that_the_lock_is_a_lease(make_hive_world: Callable[..., World]) -> None:
    with make_hive_world().session() as session:
        findings, _ = tables(session)
    (lock,) = [f for f in findings if f.check == "catalog lock"]
    assert lock.level is Level.WARN
    assert "metastore.txn.timeout" in lock.observed


def test_runs_that_race_double_nothing(make_hive_world: Callable[..., World], produce: Produce) -> None:
    world = make_hive_world()
    produce(world.landing.topics, records(0, 200))
    race(world)
    world.settle()
    world.check(Counter(range(200)))


def sleeper(landing: Landing, kafka: Mapping[str, Any], catalog: Mapping[str, str], opened: Opened) -> None:
    """In a process of its own: close the cycle, and stop with the lock held, right before the table is changed."""
    real = Client.alter_table_with_environment_context

    def stop_first(self: Client, *args: Any, **kwargs: Any) -> Any:
        Client.alter_table_with_environment_context = real
        # To this very thread: another one may take what is sent to the process, and this one goes on for a while.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return real(self, *args, **kwargs)

    Client.alter_table_with_environment_context = stop_first
    # However long it stands still, it waits for the answer to what it sends then.
    table.ANSWER_SECONDS = PATIENCE
    try:
        World(landing=landing, kafka=kafka, catalog=catalog).close("frozen", opened)
    except LakecommitError as e:
        print(f"the sleeper ended with {type(e).__name__}: {e}")
        os._exit(LEFT_EARLY)


@contextmanager
def frozen(world: World, opened: Opened) -> Iterator[None]:
    """The sleeper, stopped; it is woken up by leaving, and has ended then."""
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=sleeper, args=(world.landing, world.kafka, world.catalog, opened))
    process.start()
    assert process.pid is not None
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the sleeper ended before it could be stopped: {status}"
        yield
        os.kill(process.pid, signal.SIGCONT)
        process.join(PATIENCE)
        assert process.exitcode in (0, LEFT_EARLY)
    finally:
        process.kill()
        process.join()


def test_a_committer_that_wakes_up_when_its_lock_is_missing_overwrites_and_the_landing_makes_good_its_own(
    make_hive_world: Callable[..., World], produce: Produce
) -> None:
    """The weakness as it is: what was committed past the lock is missing, a stranger's row for good. The landing
    believes the table, and lands again what it lacks.
    """
    world = make_hive_world()
    produce(world.landing.topics, records(0, 40))
    world.run()
    produce(world.landing.topics, records(40, 60))
    opened = world.open("frozen")
    world.write(opened)
    with frozen(world, opened):
        produce(world.landing.topics, records(100, 20))
        world.settle()
        add_row(world, STRANGER)
        world.check(Counter([*range(120), STRANGER]))
    ids = {row["id"] for row in world.rows()}
    assert STRANGER not in ids
    assert ids >= set(range(100))
    produce(world.landing.topics, records(120, 20))
    world.settle()
    world.check(Counter(range(140)))
    check_verified(world)


def add_row(world: World, number: int) -> None:
    """Another writer's commit."""
    with world.session() as session:
        theirs = session.tables.load(world.landing.table)
        own = theirs.schema().select("id", "name").as_arrow()
        theirs.append(pa.table({"id": [number], "name": ["theirs"]}, schema=own))
