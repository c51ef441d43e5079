# SPDX-License-Identifier: Apache-2.0
"""A range that a table has is landed anew: each record is there once, by the rules of now, whatever dies."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import FILLED, LIVE
from airflow_provider_lakecommit.cycle.commit import reported
from airflow_provider_lakecommit.cycle.plan.open_lanes import open_lanes
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError, SourceError
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.preview import LanePreview, lane_preview
from airflow_provider_lakecommit.operations.backfill.replaying import replace_lane, replaying_session, rows_to_replace
from airflow_provider_lakecommit.operations.backfill.request import LaneRequest, lane_request
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.stated import parse_ranges
from tests.faults.test_lanes import removed, sections
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import Killed, When, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
DECISION = Decision(command="backfill --close", actor="somebody", host="here", at="2026-01-01T00:00:00+00:00")


@dataclass(kw_only=True)
class ReplayWorld(World):
    """The same landing in a stream that replaces."""

    fewer: bool = False
    request: LaneRequest = field(default_factory=lambda: lane_request(since="2020-01-01", replaces=True))

    def preview(self) -> LanePreview:
        with World.session(self) as session:
            return lane_preview(session, self.request)

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        with World.session(self) as session:
            found = lane_preview(session, self.request)
            rows_to_replace(session, found, fewer=self.fewer)
            with replaying_session(session, found, self.run_identity(f"level-{self.runs}")) as own:
                yield own

    def read(self) -> None:
        """Cycles until all of it is reported."""
        for _ in range(6):
            self.runs += 1
            name = f"{self.request.name}-{self.runs}"
            opened = self.open(name)
            self.write(opened)
            self.close(name, opened)
            if not opened.slices:
                return
        raise AssertionError("not read after 6 runs")

    def finish(self) -> None:
        self.read()
        with self.session() as session:
            assert replace_lane(session, self.run_identity(f"{self.request.name}-end")) is not None
            close_lane(session)


def replay(world: World, *texts: str) -> ReplayWorld:
    """``0=10-20``: offsets of a partition of the world's topic; in the words that stand in the spec now."""
    request = lane_request(ranges=parse_ranges([f"{world.landing.topics}:{text}" for text in texts]), replaces=True)
    return ReplayWorld(
        landing=world.landing, kafka=world.kafka, catalog=world.catalog, request=request, lines=world.lines
    )


def half_done(world: World, text: str) -> ReplayWorld:
    """A replay that dies between its two tables."""
    again = replay(world, text)
    again.read()
    with again.session() as session, deaths(1, "after"), pytest.raises(Killed):
        replace_lane(session, again.run_identity("dies"))
    return again


def odd(first: int, count: int) -> list[tuple[str, str]]:
    """Records with a field that no column is for."""
    return [(k, v.replace("{", '{"more": 1, ')) for k, v in records(first, count)]


@contextmanager
def over_and_over(*acts: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Each in a thread of its own, again and again; what is no error of the package ends it and is reported."""
    errors, done = list[BaseException](), threading.Event()

    def repeat(act: Callable[[], object]) -> None:
        while not done.is_set() and not errors:
            try:
                with suppress(LakecommitError):
                    act()
            except BaseException as e:
                errors.append(e)

    threads = [threading.Thread(target=repeat, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        done.set()
        for thread in threads:
            thread.join(PATIENCE)


def dead(world: World) -> Counter[int]:
    return Counter(row["offset"] for row in world.rows("shop.dead"))


@pytest.fixture
def landed(make_world: Make, produce: Produce) -> World:
    """Two partitions of 60 records; of the first one 20 in the middle were rejected, and the rule for that is changed
    since.
    """
    world = make_world(metadata_columns=True, unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    topic = str(world.landing.topics)
    produce(topic, [*records(0, 20), *odd(20, 20), *records(40, 20)], partition=0)
    produce(topic, records(100, 60), partition=1)
    world.settle()
    world.check(Counter([*range(20), *range(40, 60), *range(100, 160)]))
    assert dead(world) == Counter(range(20, 40))
    world.landing = changed_landing(world.landing, unknown_fields="ignore")
    return world


EVERYTHING = Counter([*range(60), *range(100, 160)])


@pytest.mark.heavy
def test_a_decision_after_a_replay_knows_what_the_stream_has_and_of_what_log_it_was(
    landed: World, produce: Produce
) -> None:
    """Of the live section a stream has the middle: it goes on behind it, and gives nothing of that up."""
    replay(landed, "0=10-50").finish()
    produce(str(landed.landing.topics), records(60, 5), partition=0)
    landed.settle()
    with landed.session() as session:
        state = read_ledger(session.tables.load(landed.landing.table).metadata)
        live = state.section(landed.landing.name, LIVE)
        assert live is not None
        assert {p.partition: at.offset for p, at in live.positions.items()} == {0: 65, 1: 60}
        preview = init_preview(session, "latest")
        assert not any(t.given_up for t in preview.tables)
        ledger_init(session, "latest", agreed=preview)
    check_verified(landed)
    produce(str(landed.landing.topics), records(65, 5), partition=0)
    landed.settle()
    landed.check(EVERYTHING + Counter(range(60, 70)))
    check_verified(landed)


@pytest.mark.heavy
def test_a_replay_of_the_newest_range_keeps_the_leader_epochs_of_the_live_stream(landed: World) -> None:
    """Until it has landed anything more it knows by these whether the log is still the one that was read."""
    replay(landed, "0=20-60", "1=0-60").finish()
    with landed.session() as session:
        state = read_ledger(session.tables.load(landed.landing.table).metadata)
        live = state.section(landed.landing.name, LIVE)
    assert live is not None
    assert {p.partition: at.offset for p, at in live.positions.items()} == {0: 60, 1: 60}
    landed.settle()
    landed.check(EVERYTHING)
    check_verified(landed)


def test_rejects_of_before_become_rows_by_the_rules_of_now(landed: World, produce: Produce) -> None:
    again = replay(landed, "0=10-50", "1=0-30")
    again.read()
    # Nothing of it is published before all of it is; the live stream goes on next to it.
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


@pytest.mark.campaign
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_replay_that_dies_anywhere_is_finished_by_the_same_command(landed: World, when: When) -> None:
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
        if step > 1:
            # Old rows or new ones: all of them were there before.
            landed.check(EVERYTHING)
        if (left := replay(landed, "0=10-50")).preview().opened or step == 1:
            left.finish()
        landed.check(EVERYTHING)
        assert dead(landed) == Counter()
        check_verified(landed)
        assert set(sections(landed)) == {"live", FILLED}
    assert step > 8


@pytest.mark.heavy
def test_dead_between_its_tables_a_stream_is_not_given_up_and_goes_on(landed: World) -> None:
    """The data table is first: what was a reject is in both for a moment, and never in neither."""
    again = half_done(landed, "0=10-50")
    landed.check(EVERYTHING)
    assert dead(landed) == Counter(range(20, 40))
    # By other rules the rest would be of another disposition.
    landed.landing = changed_landing(landed.landing, unknown_fields="dead_letter")
    again = replay(landed, "0=10-50")
    with again.session() as session, pytest.raises(LedgerError, match="LC7207"):
        close_lane(session, decision=DECISION)
    again.finish()
    landed.check(EVERYTHING)
    assert dead(landed) == Counter()
    check_verified(landed)


@pytest.mark.heavy
def test_what_is_taken_out_between_its_tables_is_landed_anew_with_the_rest(landed: World) -> None:
    """A part of what the stream has replaced in one table is deleted there before the other table has its turn."""
    again = half_done(landed, "0=10-50")
    with World.session(landed) as session:
        delete_back(session, delete_preview(session, {(str(landed.landing.topics), 0): 30}), DECISION)
    landed.check(EVERYTHING - Counter(range(30, 60)))
    rest = replay(landed, "0=10-50")
    # Its runs have names of their own.
    rest.runs = again.runs
    rest.finish()
    landed.settle()
    landed.check(EVERYTHING)
    assert dead(landed) == Counter()
    check_verified(landed)


@pytest.mark.heavy
def test_a_spec_that_is_changed_while_it_is_read_counts_for_all_of_it(landed: World) -> None:
    old = changed_landing(landed.landing, max_records=20)
    landed.landing = changed_landing(old, unknown_fields="dead_letter")
    first = replay(landed, "0=10-50")
    opened = first.open("first")
    first.write(opened)
    first.close("first", opened)
    landed.check(Counter([*range(20), *range(40, 60), *range(100, 160)]))
    landed.landing = old
    replay(landed, "0=10-50").finish()
    landed.check(EVERYTHING)
    assert dead(landed) == Counter()
    check_verified(landed)


def test_what_waits_between_its_tables_is_in_no_other_replay(landed: World) -> None:
    """The other table takes the first one's reading later, and would have the other's rows again."""
    again = half_done(landed, "0=10-50")
    with World.session(landed) as session:
        (lane,) = open_lanes(session)
        assert lane.lacking
        with pytest.raises(LedgerError, match="LC7225"):
            lane_preview(session, replay(landed, "0=40-60").request)
    again.finish()
    landed.check(EVERYTHING)
    assert dead(landed) == Counter()
    check_verified(landed)


def test_two_that_replay_at_once_replace_once_and_a_zombie_nothing(landed: World) -> None:
    one, other = replay(landed, "0=10-50"), replay(landed, "0=10-50")
    first, second = one.open("one", release=False), other.open("other", release=False)
    one.write(first)
    other.write(second)
    other.close("other", second)
    one.close("one", first)
    with one.session() as session, other.session() as second_session:
        assert replace_lane(session, one.run_identity("one-end")) is not None
        assert replace_lane(second_session, one.run_identity("other-end")) is not None
        close_lane(session)
        with pytest.raises(LedgerError, match="LC6011"):
            replace_lane(second_session, one.run_identity("late"))
    landed.check(EVERYTHING)
    check_verified(landed)
    # The same words again are another replay; what is left of the first one has no part in it.
    again = replay(landed, "0=10-50")
    late = again.open("late")
    World(landing=landed.landing, kafka=landed.kafka, catalog=landed.catalog).write(second)
    again.write(late)
    again.close("late", late)
    again.finish()
    landed.check(EVERYTHING)
    check_verified(landed)


def test_another_engine_compacts_before_it_is_replaced(landed: World) -> None:
    again = replay(landed, "0=10-50", "1=0-30")
    again.read()
    with World.session(landed) as session:
        table = session.tables.load(landed.landing.table)
        table.overwrite(table.scan().to_arrow())
    again.finish()
    landed.check(EVERYTHING)
    assert dead(landed) == Counter()
    landed.settle()
    landed.check(EVERYTHING)
    check_verified(landed)


@pytest.mark.heavy
def test_a_table_that_had_no_row_of_it_takes_what_it_passed_first(make_world: Make, produce: Produce) -> None:
    """Else the live stream would read all of it again, for that table alone and by other rules."""
    world = make_world(metadata_columns=True, partitions=1, unknown_fields="dead_letter")
    produce(str(world.landing.topics), records(0, 60))
    world.settle()
    assert sections(world, "shop.dead") == {"live": "nothing"}
    world.landing = changed_landing(world.landing, unknown_fields="ignore")
    replay(world, "0=10-50").finish()
    assert sections(world, "shop.dead") == {FILLED: "[0] [10, 50)", "live": "[0] [0, 10) [50, 60)"}
    assert not world.open("live").slices
    world.check(Counter(range(60)))
    check_verified(world)


@pytest.mark.heavy
def test_the_unlanded_part_of_a_range_comes_in_with_it(make_world: Make, produce: Produce) -> None:
    world = make_world(metadata_columns=True, partitions=1, start="latest")
    produce(str(world.landing.topics), records(0, 30))
    world.settle()
    produce(str(world.landing.topics), records(30, 20))
    world.settle()
    with World.session(world) as session, pytest.raises(LedgerError, match=r"`lakecommit backfill`.*LC7224"):
        lane_preview(session, replay(world, "0=0-20").request)
    half_done(world, "0=10-40")
    replay(world, "0=10-40").finish()
    world.check(Counter(range(10, 50)))
    world.settle()
    world.check(Counter(range(10, 50)))
    check_verified(world)


@pytest.mark.heavy
def test_what_the_source_has_removed_stays_as_it_is(landed: World) -> None:
    removed(landed, 25)
    again = replay(landed, "0=10-50")
    assert str(again.preview().removed).endswith("[0] [10, 25)")
    again.finish()
    landed.check(EVERYTHING - Counter(range(20, 25)))
    assert dead(landed) == Counter(range(20, 25))
    check_verified(landed)


@pytest.mark.heavy
def test_what_retention_takes_from_an_open_replay_is_named_with_the_way_on(landed: World) -> None:
    again = replay(landed, "0=10-50")
    opened = again.open("first")
    removed(landed, 25)
    again.write(opened)
    again.close("first", opened)
    with pytest.raises(
        SourceError, match=r"`lakecommit backfill SPEC --close \S+`, .*; the same command then replays.*LC1303"
    ):
        again.run()
    with again.session() as session:
        close_lane(session, decision=DECISION)
    rest = replay(landed, "0=10-50")
    rest.runs = 100
    rest.finish()
    landed.check(EVERYTHING - Counter(range(20, 25)))
    assert dead(landed) == Counter(range(20, 25))
    check_verified(landed)


@pytest.mark.heavy
def test_a_file_that_is_missing_before_it_is_published_is_written_again(
    landed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(landed.catalog["warehouse"].removeprefix("file://"))
    before = set(folder.rglob("*.parquet"))
    again = replay(landed, "0=10-50")
    again.read()
    monkeypatch.setattr(reported, "CHECK_AGE", timedelta(0))
    written = set(folder.rglob("*.parquet")) - before
    assert written
    for path in written:
        path.unlink()
    with again.session() as session:
        assert replace_lane(session, again.run_identity("gone")) is None
    landed.check(Counter([*range(20), *range(40, 60), *range(100, 160)]))
    again.finish()
    landed.check(EVERYTHING)
    check_verified(landed)


@pytest.mark.heavy
def test_rows_that_others_deleted_come_back_only_with_a_decision(landed: World) -> None:
    with World.session(landed) as session:
        session.tables.load(landed.landing.table).delete("id = 15")
    again = replay(landed, "0=0-60", "1=0-60")
    with pytest.raises(LedgerError, match=r"--fewer.*LC7230"), again.session():
        pass
    assert set(sections(landed)) == {"live"}
    again.fewer = True
    again.finish()
    landed.check(EVERYTHING)
    check_verified(landed)


def test_a_table_without_metadata_columns_is_refused(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, metadata_columns=False)
    produce(str(world.landing.topics), records(0, 10))
    world.settle()
    with pytest.raises(LedgerError, match="LC3023"), replay(world, "0=0-10").session():
        pass
    assert set(sections(world)) == {"live"}


@pytest.mark.heavy
def test_a_stream_is_a_backfill_or_a_replay(landed: World) -> None:
    again = replay(landed, "0=10-50")
    with again.session():
        pass
    assert again.preview().opened
    with World.session(landed) as session:
        with pytest.raises(LedgerError, match=r"was opened by `lakecommit backfill --replace`.*LC7220"):
            lane_preview(session, lane_request(name=again.request.name))
        with pytest.raises(LedgerError, match="LC7225"):
            lane_preview(session, replay(landed, "0=40-60").request)
    with again.session() as own:
        assert close_lane(own, decision=DECISION)
    landed.check(Counter([*range(20), *range(40, 60), *range(100, 160)]))
    assert sections(landed) == {FILLED: "nothing", "live": "[0] [0, 60), [1] [0, 60)"}
    check_verified(landed)


@pytest.mark.campaign
def test_replays_next_to_runs_that_land_what_is_new(landed: World, produce: Produce) -> None:
    """Ten replays of ranges at random, some of which die, while runs go on and a user reads."""
    choose, sent = random.Random(17), 0
    replay(landed, "0=0-60", "1=0-60").finish()

    def reads() -> None:
        ids = Counter(row["id"] for row in landed.rows())
        assert not EVERYTHING - ids
        assert max(ids.values()) == 1

    with over_and_over(landed.run, reads) as errors:
        for n in range(10):
            sent += 20
            produce(str(landed.landing.topics), records(200 + 20 * n, 20), partition=n % 2)
            start = choose.randint(0, 50)
            again = replay(landed, f"{n % 2}={start}-{start + choose.randint(1, 60 - start)}")
            opened = again.open(f"half-{n}")
            if choose.random() < 0.5:
                again.write(opened, lambda place: place % 2 == 0)
            again.finish()
    assert errors == []
    landed.settle(20)
    landed.check(EVERYTHING + Counter(range(200, 200 + sent)))
    assert dead(landed) == Counter()
    check_verified(landed)
