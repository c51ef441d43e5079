# SPDX-License-Identifier: Apache-2.0
"""Committers that race, a hundred times: of the same cycle, of different cycles, of different landings of one table.

After each race one snapshot has each token, no file path is there twice, no slice is lost, and what every racer was
told agrees with the table.
"""

from __future__ import annotations

import multiprocessing
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from tests.fakes.lake import Lake, section, staged
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.faults

REAL = RetryPolicy(seconds=120, requests=200, first_wait=0.005, longest_wait=0.1)
RACERS = 3
RACES = 25
LENGTH = 5


class Field:
    """A table of two landings, and what is raced about: the next slices of each."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.lakes = [Lake(path) for _ in range(RACERS)]
        self.lakes[0].create()
        self.epochs = {name: self.lakes[0].join(section(name, starts={})).epoch for name in ("orders", "returns")}
        self.reached: Counter[int] = Counter()

    def slice(self, partition: int, landing: str = "orders", length: int = LENGTH) -> StagedSlice:
        start = self.reached[partition]
        return staged((partition, start, start + length), epoch=self.epochs[landing])

    def requests(self) -> list[AppendRequest]:
        """One per racer, in one of the ways in which committers meet."""
        lake = self.lakes[0]
        a, b, c = self.slice(0), self.slice(1), self.slice(7, "returns")
        kind = self.random.choice(["same cycle", "same slices", "parts", "longer", "landings"])
        if kind == "same cycle":
            return [lake.request(a, b)] * RACERS
        if kind == "same slices":
            return [lake.request(*s) for s in ((a, b), (b, a), (a,))]
        if kind == "parts":
            return [lake.request(*s) for s in ((a,), (b,), (a, b))]
        if kind == "longer":
            return [lake.request(*s) for s in ((a,), (self.slice(0, length=LENGTH - 2),), (b,))]
        return [lake.request(a), lake.request(c, landing="returns"), lake.request(a, b)]

    def race(self) -> None:
        requests = self.requests()
        barrier = threading.Barrier(RACERS, timeout=PATIENCE)
        outcomes: dict[int, PublishOutcome | BaseException] = {}

        def run(n: int) -> None:
            lake = self.lakes[n]

            def wait() -> None:
                lake.catalog.before_commit = lambda: None
                barrier.wait()

            lake.catalog.before_commit = wait
            try:
                outcomes[n] = publish(lake.tables, requests[n], retry_policy=REAL)
            except BaseException as e:
                outcomes[n] = e

        threads = [threading.Thread(target=run, args=(n,)) for n in range(RACERS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(timeout=PATIENCE)
        self.evaluate(requests, [outcomes[n] for n in range(RACERS)])

    def evaluate(self, requests: Sequence[AppendRequest], outcomes: Sequence[PublishOutcome | BaseException]) -> None:
        """What was reported agrees, and nothing of what was requested is missing."""
        finished = [o for o in outcomes if isinstance(o, PublishOutcome)]
        assert len(finished) == RACERS, outcomes
        published = Counter(s.slice_id for o in finished for s in o.published)
        assert set(published.values()) <= {1}, "two racers were told that they published the same slice"
        covered = self.lakes[0].state().covered()
        for request in requests:
            for s in request.slices:
                (partition, ranges), *_ = s.coverage.items()
                assert covered[partition].overlaps(ranges), f"{s.coverage} is lost"
                self.reached[partition.partition] = covered[partition].reach(0)


def check(lake: Lake) -> None:
    """Table and ledger agree, and nothing is there twice."""
    paths = Counter(lake.paths())
    tokens = Counter(r.token for r in landing_snapshots(lake.load().metadata) if r.token is not None)
    assert [p for p, n in paths.items() if n > 1] == []
    assert [t for t, n in tokens.items() if n > 1] == []
    assert lake.rows() == sum(len(r) for _, r in lake.state().covered().items())


@pytest.mark.heavy(but=("0",))
@pytest.mark.parametrize("seed", range(4))
def test_races(tmp_path: Path, seed: int) -> None:
    field = Field(tmp_path, seed)
    for _ in range(RACES):
        field.race()
    check(field.lakes[0])


def _commit_all(path: Path, seed: int, commit_id: UUID, slices: list[StagedSlice]) -> None:
    """One process: publishes everything in order, in chunks of its own choice."""
    lake, chance, left = Lake(path), random.Random(seed), list(slices)
    while left:
        n = chance.randint(1, 4)
        chunk, left = left[:n], left[n:]
        outcome = publish(lake.tables, replace(lake.request(*chunk), commit_id=commit_id), retry_policy=REAL)
        assert len(outcome.published) + len(outcome.already) == len(chunk), outcome.refused


@pytest.mark.campaign
def test_processes_that_race(tmp_path: Path) -> None:
    """Two of the same cycle, one of another."""
    lake = Lake(tmp_path)
    lake.create()
    epoch = lake.join(section(starts={})).epoch
    slices = [staged((p, n * LENGTH, (n + 1) * LENGTH), epoch=epoch) for n in range(6) for p in (0, 1)]
    spawn = multiprocessing.get_context("spawn")
    cycles = (UUID(int=1), UUID(int=1), UUID(int=2))
    racers = [spawn.Process(target=_commit_all, args=(tmp_path, n, cycle, slices)) for n, cycle in enumerate(cycles)]
    for r in racers:
        r.start()
    for r in racers:
        r.join(180)
    assert [r.exitcode for r in racers] == [0] * len(racers)
    assert lake.rows() == sum(s.rows for s in slices)
    check(lake)
