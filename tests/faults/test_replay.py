# SPDX-License-Identifier: Apache-2.0
"""A range that a table has is landed anew: each record is there once, by the rules of now, whatever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from airflow_provider_lakecommit.core.model import FILLED
from airflow_provider_lakecommit.lanes.asked import LaneAsked, lane_asked
from airflow_provider_lakecommit.lanes.closing import close_lane
from airflow_provider_lakecommit.lanes.preview import LanePreview, lane_preview
from airflow_provider_lakecommit.lanes.replaying import replace_lane, replaying_session, rows_to_replace
from airflow_provider_lakecommit.repair.stated import parse_ranges
from airflow_provider_lakecommit.session.landing_session import LandingSession
from tests.faults.test_lanes import sections
from tests.support.steps import check_verified
from tests.support.world import Killed, When, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@dataclass(kw_only=True)
class ReplayWorld(World):
    """The same landing in a lane that replaces."""

    asked: LaneAsked = field(default_factory=lambda: lane_asked(since="2020-01-01", replaces=True))

    def look(self) -> LanePreview:
        with World.session(self) as session:
            return lane_preview(session, self.asked)

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        with World.session(self) as session:
            found = lane_preview(session, self.asked)
            rows_to_replace(session, found)
            with replaying_session(session, found, self.run_identity(f"level-{self.runs}")) as own:
                yield own

    def read(self) -> None:
        """Cycles until all of it is reported."""
        for _ in range(6):
            self.runs += 1
            name = f"{self.asked.name}-{self.runs}"
            opened = self.open(name)
            self.write(opened)
            self.close(name, opened)
            if not opened.slices:
                return
        raise AssertionError("not read after 6 runs")

    def finish(self) -> None:
        self.read()
        with self.session() as session:
            assert replace_lane(session, self.run_identity(f"{self.asked.name}-end")) is not None
            close_lane(session)


def replay(world: World, *texts: str) -> ReplayWorld:
    """``0=10-20``: offsets of a partition of the world's topic; in the words that stand in the spec now."""
    asked = lane_asked(ranges=parse_ranges([f"{world.landing.topics}:{text}" for text in texts]), replaces=True)
    return ReplayWorld(landing=world.landing, kafka=world.kafka, catalog=world.catalog, asked=asked, lines=world.lines)


def odd(first: int, count: int) -> list[tuple[str, str]]:
    """Records with a field that no column is for."""
    return [(k, v.replace("{", '{"more": 1, ')) for k, v in records(first, count)]


def dead(world: World) -> Counter[int]:
    return Counter(row["offset"] for row in world.rows("shop.dead"))


@pytest.fixture
def landed(make_world: Make, produce: Produce) -> World:
    """Two partitions of 60 records; of the first one 20 in the middle were rejected, and the rule for that is changed
    since.
    """
    world = make_world(metadata_columns=True, unknown_fields="dead_letter")
    topic = str(world.landing.topics)
    produce(topic, [*records(0, 20), *odd(20, 20), *records(40, 20)], partition=0)
    produce(topic, records(100, 60), partition=1)
    world.settle()
    world.check(Counter([*range(20), *range(40, 60), *range(100, 160)]))
    assert dead(world) == Counter(range(20, 40))
    world.landing = replace(world.landing, unknown_fields="ignore")
    return world


EVERYTHING = Counter([*range(60), *range(100, 160)])


def test_rejects_of_before_become_rows_by_the_rules_of_now(landed: World, produce: Produce) -> None:
    again = replay(landed, "0=10-50", "1=0-30")
    again.read()
    # Nothing of it is published before all of it is; the live stream goes on beside it.
    produce(str(landed.landing.topics), records(60, 10), partition=0)
    landed.settle()
    landed.check(Counter([*range(20), *range(40, 70), *range(100, 160)]))
    assert dead(landed) == Counter(range(20, 40))
    again.finish()
    landed.check(EVERYTHING + Counter(range(60, 70)))
    assert dead(landed) == Counter()
    check_verified(landed)
    assert sections(landed) == {FILLED: "[0] [10, 50), [1] [0, 30)", "live": "[0] [0, 10) [50, 70), [1] [30, 60)"}
    landed.settle()
    landed.check(EVERYTHING + Counter(range(60, 70)))
    check_verified(landed)


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replay_that_dies_anywhere_is_finished_by_the_same_words(landed: World, when: When) -> None:
    """Each time over what was replayed before: the range is there once after each of them."""
    step = 0
    while True:
        step += 1
        again = replay(landed, "0=10-50")
        with deaths(step, when) as counter:
            try:
                again.finish()
            except Killed:
                pass
            else:
                break
        assert len(counter.steps) >= step
        found = Counter(row["id"] for row in landed.rows())
        assert found - EVERYTHING == Counter()
        if (left := replay(landed, "0=10-50")).look().opened or step == 1:
            left.finish()
        landed.check(EVERYTHING)
        assert dead(landed) == Counter()
        check_verified(landed)
        assert set(sections(landed)) == {"live", FILLED}
    assert step > 8
