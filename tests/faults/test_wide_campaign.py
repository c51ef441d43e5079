# SPDX-License-Identifier: Apache-2.0
"""All that can be done with ranges, at random and with deaths: next to what `test_lane_campaign` does, replays of
ranges and of dead letters, rules that change, sweeps, expiry, and another engine that compacts.

At no moment a record is twice in the data table. In the end each is one row there, by an independent reader, no dead
letter is open, and history, ledger and rows agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

import duckdb
import pytest
from pyiceberg.table.snapshots import Operation

from airflow_provider_lakecommit.cycle.plan.open_lanes import OpenLane, open_lanes
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.opening import joined_session
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.backfill.request import LaneRequest, lane_request
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_dead_letters
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.stated import parse_offsets, parse_ranges
from airflow_provider_lakecommit.operations.maintenance.expire import expire
from airflow_provider_lakecommit.operations.maintenance.sweep import sweep
from tests.faults.test_lane_campaign import PARTITIONS, Campaign
from tests.faults.test_replay import DECISION, ReplayWorld, odd
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths, race, records

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
STEPS = 40


class WideCampaign(Campaign):
    """A landing with dead letters, whose rule for unknown fields is changed now and then."""

    def step(self) -> None:
        often = (self.more, self.live, self.lane, self.again)
        rarely = (self.hole, self.fill, self.back, self.letters, self.rule, self.sweeps, self.expires, self.compacts)
        acts = (*often, *often, *often, *rarely, self.gives_up, self.rolls_back, self.two)
        act = self.chance.choice(acts)
        # Of two at once nobody knows who dies.
        at = 0 if act == self.two else self.chance.choice((0, 0, 0, *range(1, 9)))
        self.lines.append(f"{act.__name__} dies at {at}")
        try:
            with deaths(at, self.chance.choice(("before", "after"))), suppress(Killed):
                act()
        except LakecommitError as e:
            self.lines.append(f"  {type(e).__name__}: {e}")
            self.follow_the_remedy(str(e))
        found = Counter(row["id"] for row in self.world.rows())
        twice = {i: n for i, n in found.items() if n > 1}
        assert not twice, twice

    def follow_the_remedy(self, text: str) -> None:
        """What a refusal says that a user may do."""
        for start in re.findall(r"--from (\S+) --delete", text):
            self.delete(parse_offsets(start, ""))

    def delete(self, start: dict[tuple[str, int], int]) -> None:
        with self.world.session() as session:
            delete_back(session, delete_preview(session, start), DECISION)

    def more(self) -> None:
        p, count = self.chance.randrange(PARTITIONS), self.chance.randint(1, 30)
        made = self.chance.choice((records, odd))(10_000 * p + self.ends[p], count)
        self.produce(self.world.landing.topics, made, partition=p)
        self.ends[p] += count

    def of(self, request: LaneRequest) -> World:
        if not request.replaces:
            return super().of(request)
        w, self.names = self.world, self.names + 1
        runs = 1000 * self.names
        return ReplayWorld(
            landing=w.landing, kafka=w.kafka, catalog=w.catalog, request=request, lines=w.lines, runs=runs, fewer=True
        )

    def go_on(self, name: str) -> None:
        with self.world.session() as session:
            lane = next((one for one in open_lanes(session) if one.name == name), None)
        if lane is None or not lane.replaces:
            super().go_on(name)
            return
        self._replays(lane_request(name=name, replaces=True))

    def again(self) -> None:
        """A range is read again, half of the time to its end."""
        p = self.chance.randrange(PARTITIONS)
        start = self.chance.randint(0, max(0, self.ends[p] - 1))
        end = self.chance.randint(start + 1, max(start + 1, self.ends[p]))
        ranges = parse_ranges([f"{self.world.landing.topics}:{p}={start}-{end}"])
        self._replays(lane_request(ranges=ranges, replaces=True))

    def _replays(self, request: LaneRequest) -> None:
        one = self.of(request)
        if self.chance.random() < 0.3:
            one.run(f"{request.name}-{one.runs}")
        else:
            one.finish()

    def letters(self) -> None:
        with self.world.session() as session:
            replay_dead_letters(session, Selection(), decision=DECISION)

    def rule(self) -> None:
        fields = self.chance.choice(("ignore", "dead_letter"))
        self.world.landing = changed_landing(self.world.landing, unknown_fields=fields)

    def sweeps(self) -> None:
        with self.world.session() as session:
            sweep(session, older_than=timedelta(0), remove=True)

    def expires(self) -> None:
        with self.world.session() as session:
            expire(session, older_than=timedelta(0), keep=self.chance.choice((1, 5)), remove=True)

    def compacts(self) -> None:
        with self.world.session() as session:
            table = session.tables.load(self.world.landing.table)
            if rows := table.scan().to_arrow():
                table.overwrite(rows)

    def rolls_back(self) -> None:
        """A user sets a table back by some snapshots."""
        with self.world.session() as session:
            table = session.tables.load(self.chance.choice(self.world.landing.tables))
            line = [
                s
                for s in ancestry(table.metadata, self.world.landing.branch)
                # A compaction of pyiceberg's takes all rows out before it puts them back.
                if s.summary is None or s.summary.operation is not Operation.DELETE
            ]
            to = self.chance.choice(line[: self.chance.randint(1, 8)])
            table.manage_snapshots().set_current_snapshot(to.snapshot_id).commit()

    def two(self) -> None:
        """Runs at once."""
        self.names += 1
        race(self.world, runs=2, name=f"race-{self.names}")

    def gives_up(self) -> None:
        with self.world.session() as session:
            if lanes := open_lanes(session):
                with joined_session(session, self.chance.choice(lanes)) as own:
                    close_lane(own, decision=DECISION)

    def end(self) -> None:
        self.world.landing = changed_landing(self.world.landing, unknown_fields="ignore")
        self.heeding(lambda: self.world.settle(limit=12))
        self.heeding(self.finishes)
        with self.world.session() as session:
            found = lane_preview(session, lane_request(since="2020-01-01"))
        if not found.done:
            self.heeding(lambda: self.of(lane_request(since="2020-01-01")).finish())
        self.world.settle(limit=12)
        self.letters()
        self.check_independently()
        check_verified(self.world)

    def heeding(self, act: Callable[[], None]) -> None:
        """What is refused is done once more, after what the refusal says."""
        try:
            act()
        except LakecommitError as e:
            self.lines.append(f"  {type(e).__name__}: {e}")
            self.follow_the_remedy(str(e))
            act()

    def finishes(self) -> None:
        """What is open is landed."""
        while lanes := self.lanes():
            if lanes[0].replaces:
                self.of(lane_request(name=lanes[0].name, replaces=True)).finish()
            else:
                self.go_on(lanes[0].name)

    def lanes(self) -> tuple[OpenLane, ...]:
        with self.world.session() as session:
            return open_lanes(session)

    def check_independently(self) -> None:
        with self.world.session() as session:
            table = session.tables.load(self.world.landing.table)
            data = [f.file.file_path.removeprefix("file://") for f in table.scan().plan_files()]
        rows = duckdb.sql(f"select id, count(*) from read_parquet({data}) group by id").fetchall()
        found = Counter(dict(rows))
        expected = Counter(10_000 * p + n for p in range(PARTITIONS) for n in range(self.ends[p]))
        assert found == expected, (expected - found, found - expected)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(n, marks=pytest.mark.campaign) for n in range(2, 30))])
def test_each_record_is_one_row_whatever_came_of_it(make_world: Make, produce: Produce, seed: int) -> None:
    world = make_world(
        metadata_columns=True,
        partitions=PARTITIONS,
        unknown_fields="dead_letter",
        dead_letter_max_records=100_000,
        dead_letter_max_ratio=1.0,
    )
    campaign = WideCampaign(world, produce, Random(seed))
    campaign.more()
    world.settle()
    try:
        for _ in range(STEPS):
            campaign.step()
        campaign.end()
    except BaseException:
        print("\n".join([*campaign.lines, *world.lines[-60:]]))
        raise
