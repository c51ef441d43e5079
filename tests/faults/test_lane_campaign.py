# SPDX-License-Identifier: Apache-2.0
"""A live stream, streams, resets with their holes, deletions and deaths, in an order that nobody thought of: in the end
each record is there once, and the ledger, its history and the rows agree.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.cycle.plan.open_lanes import open_lanes
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.operations.backfill.closing import close_lane, lane_rest
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.backfill.request import LaneRequest, lane_request
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.starts import Way
from tests.faults.test_lanes import LaneWorld
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths, records

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
PARTITIONS = 2
STEPS = 25


@dataclass(slots=True)
class Campaign:
    """One run of it; ``ends`` are the numbers of records of the partitions."""

    world: World
    produce: Produce
    chance: random.Random
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    names: int = 0
    lines: list[str] = field(default_factory=list)

    def step(self) -> None:
        acts = (self.more, self.live, self.live, self.lane, self.lane, self.hole, self.fill, self.back)
        act = self.chance.choice(acts)
        at = self.chance.choice((0, 0, *range(1, 9)))
        self.lines.append(f"{act.__name__} dies at {at}")
        with deaths(at, self.chance.choice(("before", "after"))), suppress(Killed, LakecommitError):
            act()

    def more(self) -> None:
        p, count = self.chance.randrange(PARTITIONS), self.chance.randint(1, 30)
        self.produce(self.world.landing.topics, records(10_000 * p + self.ends[p], count), partition=p)
        self.ends[p] += count

    def live(self) -> None:
        self.world.run()

    def lane(self) -> None:
        """Some cycles of a stream that is open."""
        with self.world.session() as session:
            lanes = open_lanes(session)
        if lanes:
            self.go_on(self.chance.choice(lanes).name)

    def go_on(self, name: str) -> None:
        lane = self.of(lane_request(name=name))
        lane.run()
        with lane.session() as session:
            if not lane_rest(session):
                close_lane(session)

    def of(self, request: LaneRequest) -> LaneWorld:
        w, self.names = self.world, self.names + 1
        # Each is a process of its own, whose runs have names that were never used.
        runs = 1000 * self.names
        return LaneWorld(landing=w.landing, kafka=w.kafka, catalog=w.catalog, request=request, lines=w.lines, runs=runs)

    def hole(self) -> None:
        """The live stream goes to the end, or to somewhere, and leaves the rest to a stream."""
        self.names += 1
        way = Way(fill=f"hole-{self.names}")
        with self.world.session() as session:
            ledger_init(session, "latest", way, agreed=init_preview(session, "latest", way))

    def fill(self) -> None:
        """A stream over all that is missing."""
        with self.world.session() as session:
            found = lane_preview(session, lane_request(since="2020-01-01"))
        if not found.done:
            self.of(lane_request(since="2020-01-01")).run()

    def back(self) -> None:
        """Some of what is landed goes, with its rows."""
        p = self.chance.randrange(PARTITIONS)
        start = {(str(self.world.landing.topics), p): self.chance.randint(0, max(1, self.ends[p]))}
        at = datetime.now(UTC).isoformat()
        with self.world.session() as session:
            decision = Decision(command="reset", actor="ann", host="here", at=at, landing=self.world.landing.name)
            delete_back(session, delete_preview(session, start), decision)

    def end(self) -> None:
        """All that is open is finished, and what is missing is filled."""
        self.world.settle(limit=12)
        for _ in range(40):
            with self.world.session() as session:
                lanes = open_lanes(session)
            if not lanes:
                break
            self.go_on(lanes[0].name)
        with self.world.session() as session:
            found = lane_preview(session, lane_request(since="2020-01-01"))
        if not found.done:
            self.of(lane_request(since="2020-01-01")).finish()
        self.world.settle(limit=12)
        self.world.check(Counter(10_000 * p + n for p in range(PARTITIONS) for n in range(self.ends[p])))
        check_verified(self.world)


@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_there_once_whatever_came_of_it(make_world: Make, produce: Produce, seed: int) -> None:
    world = make_world(metadata_columns=True, partitions=PARTITIONS)
    campaign = Campaign(world, produce, random.Random(seed))
    campaign.more()
    world.settle()
    try:
        for _ in range(STEPS):
            campaign.step()
        campaign.end()
    except BaseException:
        print("\n".join([*campaign.lines, *world.lines[-40:]]))
        raise
