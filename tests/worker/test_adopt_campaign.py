# SPDX-License-Identifier: Apache-2.0
"""A real sink under load is adopted and gets its table back, again and again, at random moments, killed and raced."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dev.record_traces import CONFLICT, TRIGGER, Lake, Scene
from dev.servers.connect import ConnectServer
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from tests.support.cli import LAND_SECONDS, Answer
from tests.support.waiting import until
from tests.worker.adopting import Adoption

pytestmark = [pytest.mark.worker, pytest.mark.timeout(7200)]

LOAD = 400
"""Records a second."""


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("worker"), broker.bootstrap, flush=0.5, heap="512m") as running:
        yield running


def two_at_once(adoption: Adoption, *more: str) -> Answer:
    """Both end; of one that was reported to look again the other one's word holds."""
    both = [adoption.running(*more) for _ in range(2)]
    outputs = [one.communicate(timeout=LAND_SECONDS)[1] for one in both]
    assert any(one.returncode == 0 for one in both), outputs
    return adoption.adopt(*more)


def carried_out(adoption: Adoption, chance: random.Random, story: list[str], *more: str) -> Answer:
    """The command, at first perhaps killed or raced, until it is done."""
    how = chance.choice(["plain", "killed", "killed", "raced"])
    story.append(f"{' '.join(more)} {how}")
    if how == "raced":
        return two_at_once(adoption, *more)
    for _ in range(2 if how == "killed" else 0):
        adoption.killed_in(chance.uniform(1.0, 6.0), *more)
    return adoption.adopt(*more)


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.campaign)])
def test_rows_are_there_once_whoever_lands_them(
    broker: Broker, worker: ConnectWorker, connect_server: ConnectServer, tmp_path: Path, rounds: int
) -> None:
    chance, story = random.Random(rounds), list[str]()
    scene = Scene("campaign", {"bootstrap.servers": broker.bootstrap}, Lake(tmp_path), [worker], rate=LOAD)
    adoption = Adoption.of(scene, tmp_path, broker.bootstrap, worker.url, connect_server.url, slice_records=2_000)
    scene.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    for turn in range(rounds):
        waits = chance.random() < 0.5
        if waits:
            scene.lake.execute(TRIGGER.format(CONFLICT))
        time.sleep(chance.uniform(0, 6))
        if waits:
            scene.lake.execute("drop trigger outage")
        crashed = chance.random() < 0.3
        if crashed:
            # Its place in the groups and its transactions stay for a while.
            worker.kill()
            worker.start()
        story.append(f"{turn}: {'files wait, ' if waits else ''}{'Connect crashed, ' if crashed else ''}")
        taken = carried_out(adoption, chance, story, "--yes", "--json")
        assert taken.code == 0, (story, taken.err)
        adoption.check_exactly_once({p: int(offset) for p, offset in taken.value["next"].items()})
        landed = adoption.land()
        assert landed.code == 0, (story, landed.err)
        back = carried_out(adoption, chance, story, "--back", "--yes", "--json")
        assert back.code == 0, (story, back.err)
        assert adoption.verified().code == 0, story
        if chance.random() < 0.7:
            scene.landed(1)
    last = scene.close_source()
    with suppress(AssertionError):
        until(lambda: adoption.rows().total() >= last, timeout=120, what="all records to land")
    adoption.check_exactly_once()
    print("\n".join(story))
    scene.write(tmp_path)
