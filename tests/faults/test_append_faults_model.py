# SPDX-License-Identifier: Apache-2.0
"""Many commits, faults, rollbacks, late requests and foreign writers in a row: after every step the table holds exactly
what its ledger says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from airflow_provider_lakecommit.exceptions import CommitUnknownError
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, ancestry, landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import renew_epochs
from tests.fakes.catalog import Fault
from tests.fakes.lake import Lake, at, section, staged

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

STEPS = 60
LANDINGS = ("orders", "returns")


class World:
    """One table, two landings that own three partitions each, and all that can happen to them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.lake = Lake(path)
        self.lake.create()
        for landing in LANDINGS:
            self.lake.join(section(landing, starts={}))
        self.origin = self.lake.load().metadata.current_snapshot_id
        self.requests: list[AppendRequest] = []
        self.published = 0
        self.here: set[str] = set()
        self.deleted: set[str] = set()

    def step(self) -> None:
        acts: list[Callable[[], None]] = [self.publish] * 5
        acts += [self.repeat] * 3 + [self.foreign, self.deliver, self.deliver, self.roll_back, self.renew, self.renew]
        self.random.choice(acts)()

    def publish(self) -> None:
        landing = self.random.choice(LANDINGS)
        ours = self.lake.state().section(landing, "live")
        assert ours is not None
        slices = []
        for _ in range(self.random.randint(1, 3)):
            partition = LANDINGS.index(landing) * 3 + self.random.randint(0, 2)
            start = max(0, ours.covered[at(partition)].reach(0) + self.random.choice([0, 0, 0, -2, 3]))
            slices.append(staged((partition, start, start + self.random.randint(1, 5)), epoch=ours.epoch))
        self.send(self.lake.request(*slices, landing=landing))

    def repeat(self) -> None:
        if self.requests:
            self.send(self.random.choice(self.requests))

    def send(self, request: AppendRequest) -> None:
        self.requests.append(request)
        faults = [None, None, *Fault]
        faults.remove(Fault.AWAY_AFTER)
        self.lake.catalog.faults.extend(self.random.choices(faults, k=2))
        with suppress(CommitUnknownError):
            self.published += len(self.lake.publish(request, requests=self.random.choice([1, 5])).published)
        self.lake.catalog.faults.clear()

    def foreign(self) -> None:
        self.lake.append_foreign()

    def deliver(self) -> None:
        if self.lake.catalog.on_its_way:
            with suppress(CommitFailedException):
                self.lake.catalog.deliver()

    def roll_back(self) -> None:
        line = [s.snapshot_id for s in ancestry(self.lake.load().metadata, "main")]
        reachable = line[: line.index(self.origin) + 1]
        self.lake.load().manage_snapshots().rollback_to_snapshot(self.random.choice(reachable[:4])).commit()

    def renew(self) -> None:
        renew_epochs(self.lake.tables, self.lake.name, "orders", "live")

    def check(self) -> None:
        state = self.lake.state()
        assert state.condition in (Condition.PRESENT, Condition.ROLLED_BACK)
        paths = self.lake.paths()
        ours = [p for p in paths if "/foreign/" not in p]
        assert len(ours) == len(set(ours)), "a file is in the table twice"
        self.deleted |= self.here - set(ours)
        self.here = set(ours)
        assert not self.here & self.deleted, "a slice that was rolled back came again"
        foreign = len(paths) - len(ours)
        assert self.lake.rows() - foreign == len(state.covered()), "rows and ledger differ"
        records = list(landing_snapshots(self.lake.load().metadata))
        assert sum(len(r.ranges) for r in records) == len(state.covered()), "a range was added twice"
        tokens = [r.token for r in records if r.token]
        assert len(tokens) == len(set(tokens)), "two snapshots have one token"


@pytest.mark.heavy(but=("0",))
@pytest.mark.parametrize("seed", range(4))
def test_the_table_always_holds_what_its_ledger_reports(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for _ in range(STEPS):
        world.step()
        world.check()
    assert world.published > 5
