# SPDX-License-Identifier: Apache-2.0
"""A follow on parts in memory, by a clock that only waiting moves: what it opens, waits out, says, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_lakecommit.control.control_topic_settings import partition_of
from airflow_provider_lakecommit.core.log import CycleOpened
from airflow_provider_lakecommit.cycle.commit import failing, publish
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.run import follow as follow_run
from airflow_provider_lakecommit.cycle.run import loop, pauses, successor
from airflow_provider_lakecommit.cycle.run.follow import Follow
from airflow_provider_lakecommit.cycle.run.interval import Total, WindowLog
from airflow_provider_lakecommit.cycle.run.next_window import FollowOptions
from airflow_provider_lakecommit.cycle.run.successor import Successor
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.cycle.session.turns import log_end, turn_at
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ControlTopicError,
    SourceError,
    SourceUnavailableError,
    SparkJobError,
    TableError,
)
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
from tests.fakes.engine import FakeEngine
from tests.fakes.session import CREATE, DATA, P0, FakeLanding


@dataclass
class Followed:
    """A landing that is followed; ``plans`` are what happens at which second, in order."""

    landing: FakeLanding
    engine: FakeEngine
    plans: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    checked_at: list[float] = field(default_factory=list)
    away: Callable[[], Exception | None] = lambda: None
    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        end = self.seconds + seconds
        while self.plans and self.plans[0][0] <= end:
            at, act = self.plans.pop(0)
            self._pass(max(0.0, at - self.seconds))
            act()
        self._pass(end - self.seconds)
        if self.seconds > 100_000:
            raise AssertionError("it waits for ever")

    def _pass(self, seconds: float) -> None:
        self.seconds += seconds
        self.landing.clock.passes(timedelta(seconds=seconds))

    def watermarks(self, **options: Any) -> SourceState:
        self.checked_at.append(self.seconds)
        if (error := self.away()) is not None:
            raise error
        return self.landing.source.__class__.watermarks(self.landing.source, **options)

    def come(self, at: float, count: int) -> None:
        """So many records more from that second on."""

        def act() -> None:
            self.landing.source.ends[P0] += count

        self.plans.append((at, act))

    def follow(self, *, turns: bool = False, **options: Any) -> Follow:
        lasting = {"lifetime": timedelta(seconds=60), "keep_snapshots": None}
        log = WindowLog(self.landing.lines.append)
        self.landing.session.log = log
        identity = self.landing.run_identity()
        chosen = FollowOptions(**{**lasting, **options})
        return Follow(
            self.landing.session, self.engine, lambda n: replace(identity, number=n), chosen, log, turns=turns
        )

    def opened(self) -> list[float]:
        """When windows were opened."""
        entries = self.landing.session.read_state(()).entries
        noon = self.landing.clock.now - timedelta(seconds=self.seconds)
        return [(e.at - noon).total_seconds() for e in entries if isinstance(e, CycleOpened)]


@pytest.fixture
def make(make_landing: Callable[..., FakeLanding], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Followed]:
    def make(**fields: Any) -> Followed:
        landing = make_landing(**fields)
        followed = Followed(landing, FakeEngine(landing))
        monkeypatch.setattr(follow_run, "time", followed)
        monkeypatch.setattr(failing, "monotonic", followed.monotonic)
        by_clock = partial(RetryPolicy, sleep=followed.sleep, clock=followed.monotonic)
        monkeypatch.setattr(swap, "RetryPolicy", by_clock)
        monkeypatch.setattr(publish, "HASTE", by_clock(seconds=publish.HASTE.seconds))
        monkeypatch.setattr(loop.LandingRunner, "_pause", lambda _self, seconds: followed.sleep(seconds))
        monkeypatch.setattr(pauses, "PAUSES", (0.0,))
        monkeypatch.setattr(landing.source, "watermarks", followed.watermarks)
        return followed

    return make


@pytest.fixture
def followed(make: Callable[..., Followed]) -> Followed:
    return make()


def rows(outcomes: list[CycleOutcome]) -> list[int]:
    return [o.closed.rows for o in outcomes]


def test_windows_are_opened_when_records_are_old_and_never_without(followed: Followed) -> None:
    followed.come(10.0, 5)
    followed.come(10.0, 7)
    followed.come(30.0, 1)
    outcomes = list(followed.follow().cycles())
    assert rows(outcomes) == [30, 12, 1]
    first, second, third = followed.opened()
    assert first == 0.0
    assert 10.0 <= second <= 13.0
    assert 31.0 <= third <= 33.0
    assert len(followed.checked_at) < 40


@pytest.mark.heavy
def test_a_topic_that_is_never_idle_gets_a_window_each_time_it_is_old(followed: Followed) -> None:
    for tenth in range(1, 300):
        followed.come(tenth / 10, 2)
    outcomes = list(followed.follow(lifetime=timedelta(seconds=30)).cycles())
    assert sum(rows(outcomes)) >= 30 + 2 * 270
    gaps = [b - a for a, b in zip(followed.opened(), followed.opened()[1:], strict=False)]
    assert all(2.0 <= gap <= 2.3 for gap in gaps), gaps
    # One look after a window tells that something is there, one by the plan itself.
    assert len(followed.checked_at) <= 3 * len(outcomes) + 3


def test_a_full_window_does_not_wait_until_it_is_old(make: Callable[..., Followed]) -> None:
    followed = make(max_records=10)
    followed.come(5.0, 25)
    outcomes = list(followed.follow(window_age=timedelta(seconds=20)).cycles())
    assert rows(outcomes) == [10, 10, 10, 10, 10, 5]
    assert followed.opened()[3] <= 5.0 + 5.0 + 1.0


def test_an_idle_topic_has_a_window_now_and_then_which_states_up_to_when_it_is_complete(followed: Followed) -> None:
    outcomes = list(followed.follow(lifetime=timedelta(minutes=11)).cycles())
    assert rows(outcomes) == [30, 0, 0]
    assert all(300 <= b - a <= 305 for a, b in zip(followed.opened(), followed.opened()[1:], strict=False))
    assert outcomes[-1].closed.valid_through is not None


def test_brokers_that_are_away_for_a_while_are_waited_for(followed: Followed) -> None:
    followed.come(9.0, 4)
    followed.away = lambda: SourceUnavailableError("LC9999", "no answer") if 10 < followed.seconds < 40 else None
    outcomes = list(followed.follow(lifetime=timedelta(minutes=2)).cycles())
    assert sum(rows(outcomes)) == 34
    lines = [line for line in followed.landing.lines if "continuing in" in line]
    assert 3 <= len(lines) <= 7
    assert lines[0] == "WARNING: continuing in 1 s, after error 1 in a row: no answer [LC9999]"


def test_a_source_that_needs_a_user_ends_it(followed: Followed) -> None:
    followed.away = lambda: SourceError("LC9999", "topic orders is gone") if followed.seconds > 10 else None
    with pytest.raises(SourceError, match="LC9999"):
        list(followed.follow().cycles())


def test_before_anything_was_closed_an_error_ends_it(followed: Followed) -> None:
    followed.away = lambda: SourceUnavailableError("LC9999", "no answer")
    with pytest.raises(SourceUnavailableError, match="LC9999"):
        list(followed.follow().cycles())


def test_a_catalog_that_is_away_costs_cycles_and_no_row_and_counts_as_failures(followed: Followed) -> None:
    landing = followed.landing

    def away(*, now: bool) -> Callable[[], None]:
        return lambda: setattr(landing.catalog, "away", now)

    followed.plans.append((9.5, away(now=True)))
    followed.come(10.0, 8)
    followed.plans.append((70.0, away(now=False)))
    outcomes, failed = [], 0
    for outcome in followed.follow(lifetime=timedelta(minutes=4)).cycles():
        outcomes.append(outcome)
        state = landing.session.read_state(()).state
        failed = max(failed, sum(bool(c.failed) for c in state.cycles.values()))
    assert sum(rows(outcomes)) == 38
    assert failed >= landing.session.landing.backpressure.stalled_cycles, "each try is a cycle that failed"
    assert [c for c in landing.session.read_state(()).state.open_cycles() if c.live(landing.clock())] == []


def test_a_commit_whose_answer_is_lost_is_not_made_twice(followed: Followed) -> None:
    follow, landing = followed.follow(), followed.landing
    followed.come(10.0, 8)
    errors = [CatalogError("LC9999", "the answer was lost"), CatalogError("LC9999", "the answer was lost")]
    close = loop.close_cycle

    def closed(*arguments: Any, **options: Any) -> Any:
        done = close(*arguments, **options)
        if done.rows == 8 and errors:
            raise errors.pop()
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "close_cycle", closed)
        outcomes = list(follow.cycles())
    assert len(errors) == 1
    total = int(landing.snapshots()[-1]["total-records"])
    assert (sum(rows(outcomes)), total) == (30, 38)


def test_spark_that_dies_each_time_ends_it_in_the_end(followed: Followed) -> None:
    def die(_: WindowJob) -> list[SliceResult]:
        raise SparkJobError("LC9999", "java is gone")

    follow = followed.follow(lifetime=timedelta(hours=1))
    followed.come(10.0, 8)
    cycles = follow.cycles()
    next(cycles)
    followed.engine.acts += [die] * 100
    with pytest.raises(SparkJobError, match="LC6217"):
        list(cycles)
    assert len([line for line in followed.landing.lines if "continuing in" in line]) == 2


def test_when_its_time_is_over_what_is_under_way_is_finished_and_nothing_opened(make: Callable[..., Followed]) -> None:
    followed = make(max_records=5)
    followed.engine.ahead = 2
    taken: list[CycleOutcome] = []
    follow = followed.follow(lifetime=timedelta(seconds=20))
    for outcome in follow.cycles():
        taken.append(outcome)
        followed.seconds += 30
    opened = len(followed.opened())
    assert opened == len(taken) < 6, "there was more to be read"
    assert list(followed.landing.session.read_state(()).state.open_cycles()) == []
    assert all(o.whole for o in taken)


def test_a_stop_while_it_waits_ends_it(followed: Followed) -> None:
    follow = followed.follow(lifetime=None)
    followed.plans.append((12.0, follow.stop))
    assert rows(list(follow.cycles())) == [30]
    assert followed.seconds < 14


def test_over_is_requested_now_and_then_and_ends_it(make: Callable[..., Followed]) -> None:
    followed = make()
    identity, requests = followed.landing.run_identity(), list[float]()

    def over() -> bool:
        requests.append(followed.seconds)
        return followed.seconds >= 25

    follow = Follow(
        followed.landing.session,
        followed.engine,
        lambda n: replace(identity, number=n),
        FollowOptions(),
        WindowLog(followed.landing.lines.append),
        over=over,
    )
    list(follow.cycles())
    assert len(requests) <= 4
    assert followed.seconds < 36


def test_it_reports_a_line_in_an_interval_and_all_of_a_window_with_trouble(followed: Followed) -> None:
    def die(_: WindowJob) -> list[SliceResult]:
        raise SparkJobError("LC9999", "java is gone")

    for second in range(5, 200, 5):
        followed.come(float(second), 1)
    quiet = followed.landing.lines
    counts: list[int] = []
    for n, _ in enumerate(followed.follow(lifetime=timedelta(seconds=190)).cycles()):
        counts.append(len(quiet))
        if n == 15:
            followed.engine.acts.append(die)
    lines = [line for line in quiet if line.startswith("followed for")]
    assert len(lines) == 4
    assert "; records were 0.0 to " in lines[1]
    of_windows = [line for line in quiet[counts[1] :] if "reported" in line or line.startswith("cycle ")]
    assert any("0 slices (0 records) are reported" in line for line in of_windows)
    assert len(of_windows) < 12, of_windows


def test_a_table_that_is_rolled_back_under_it_is_reported(followed: Followed) -> None:
    def roll_back() -> None:
        table = followed.landing.session.tables.load(DATA)
        table.manage_snapshots().set_current_snapshot(table.metadata.snapshots[1].snapshot_id).commit()

    for second in (5.0, 20.0, 40.0):
        followed.come(second, 10)
    followed.plans.insert(2, (30.0, roll_back))
    # What two windows had published is read again, together with what came since.
    assert rows(list(followed.follow().cycles())) == [30, 10, 10, 30]
    lines = [line for line in followed.landing.lines if "rolled back" in line]
    assert [line.partition(" from ")[0] for line in lines] == [f"WARNING: {DATA}: the branch was rolled back"]


def test_the_sum_of_a_run_does_not_grow_with_its_windows(followed: Followed) -> None:
    for second in range(5, 50):
        followed.come(float(second), 1)
    total = Total(landing="rows")
    for outcome in followed.follow(lifetime=timedelta(seconds=40)).cycles():
        total.add(outcome)
    ended = total.ended()
    assert (ended.snapshots, len(ended.published)) == (total.cycles, 1)
    assert ended.published[0].rows == sum(int(s.get("added-records", 0)) for s in followed.landing.snapshots())
    assert f"{ended.published[0].rows} rows in {total.cycles} snapshots, {total.cycles} cycles" in str(ended)


@pytest.mark.heavy
def test_its_own_old_snapshots_go_while_it_follows_and_no_row_with_them(followed: Followed) -> None:
    landing = followed.landing
    # Snapshots have the time of the machine.
    landing.clock.now = datetime.now(UTC) + timedelta(hours=1)
    for second in range(5, 60):
        followed.come(float(second), 1)
    options = {"keep_snapshots": timedelta(minutes=30), "interval": timedelta(seconds=10)}
    windows = sum(bool(o.closed.rows) for o in followed.follow(**options).cycles())
    kept = landing.snapshots()
    assert len(kept) <= windows / 3
    assert kept[-1]["total-records"] == "85"
    assert landing.open("next").plan.left == 0, "the ledger is there"


def start_other(followed: Followed, identity: RunIdentity) -> None:
    """Another run opens a cycle, and leaves it to others."""
    open_cycle(followed.landing.connect(), identity)


def test_a_run_ends_behind_its_window_once_a_later_run_of_its_dag_follows(followed: Followed) -> None:
    for second in range(1, 60):
        followed.come(second, 5)
    later = replace(followed.landing.run_identity("later"), turn=1000)
    followed.plans.append((20.2, lambda: start_other(followed, later)))
    followed.plans.sort(key=lambda plan: plan[0])
    outcomes = list(followed.follow(turns=True).cycles())
    assert 20.0 <= followed.seconds <= 24.0
    assert all(o.whole for o in outcomes)
    assert [line for line in followed.landing.lines if "run later continues from here" in line]


def test_an_idle_run_sees_the_later_one_within_some_seconds(followed: Followed) -> None:
    later = replace(followed.landing.run_identity("later"), turn=1000)
    followed.plans.append((20.0, lambda: start_other(followed, later)))
    list(followed.follow(turns=True).cycles())
    assert 20.0 <= followed.seconds <= 20.0 + 2 * follow_run.CHECK_SECONDS


@pytest.mark.heavy(but=("other1",))
@pytest.mark.parametrize(
    "other", [{"turn": 0}, {"turn": 1000, "dag_id": "other"}, {"turn": 1000, "deployment": "other"}]
)
def test_what_is_no_later_follow_of_its_dag_ends_no_run(followed: Followed, other: dict[str, Any]) -> None:
    for second in range(1, 60):
        followed.come(second, 5)
    run = replace(followed.landing.run_identity("later"), **other)
    followed.plans.append((20.2, lambda: start_other(followed, run)))
    followed.plans.sort(key=lambda plan: plan[0])
    list(followed.follow(turns=True).cycles())
    assert followed.seconds >= 60.0


def test_a_run_goes_on_where_the_log_does_not_report_a_successor(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ControlTopicError("LC9999", "the brokers are away")

    followed.plans.append((5.0, lambda: monkeypatch.setattr(successor, "cycles_since", fail)))
    list(followed.follow(turns=True).cycles())
    assert followed.seconds >= 60.0


@pytest.mark.heavy
def test_a_run_takes_over_from_all_that_began_before_it(followed: Followed) -> None:
    for second in range(1, 60):
        followed.come(second, 5)
    start_other(followed, replace(followed.landing.run_identity("z"), turn=1))
    followed.plans.append((20.2, lambda: start_other(followed, replace(followed.landing.run_identity("z", 1), turn=1))))
    followed.plans.sort(key=lambda plan: plan[0])
    list(followed.follow(turns=True).cycles())
    assert followed.seconds >= 60.0
    assert not followed.landing.printed("continues from here")


def turns_reported(followed: Followed) -> list[int]:
    """Those in the log, in its order."""
    entries = followed.landing.session.read_state(()).entries
    return [e.cycle.turn for e in entries if isinstance(e, CycleOpened)]


@pytest.mark.heavy
def test_a_turn_is_reported_once_the_run_has_landed(followed: Followed) -> None:
    followed.landing.source.ends[P0] = 5
    for second in range(1, 60):
        followed.come(second, 5)
    list(followed.follow(turns=True).cycles())
    first, *others = turns_reported(followed)
    assert first == 0
    assert set(others) == {1}


def test_on_an_idle_topic_a_turn_is_reported_as_soon_as_spark_is_there(followed: Followed) -> None:
    list(followed.follow(turns=True).cycles())
    assert turns_reported(followed) == [0, 1]
    assert followed.opened()[1] < 2.0


@pytest.mark.parametrize("idle", [True, False], ids=["first idle", "busy"])
def test_a_run_whose_spark_is_away_takes_nothing_over(
    followed: Followed, idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: Any) -> Any:
        raise SparkJobError("LC9999", "nobody is there")

    monkeypatch.setattr(followed.engine, "start", dead)
    monkeypatch.setattr(followed.engine, "run", dead)
    followed.landing.source.ends[P0] = 0 if idle else 5
    for second in range(1, 60):
        followed.come(second, 5)
    with pytest.raises(SparkJobError):
        list(followed.follow(turns=True).cycles())
    assert set(turns_reported(followed)) == {0}


def test_a_run_takes_a_turn_in_a_control_topic_that_was_made_anew(followed: Followed) -> None:
    landing, control = followed.landing, followed.landing.control
    for number in range(3):
        start_other(followed, landing.run_identity("before", number))
    run = Successor(landing.session, landing.lines.append, followed.engine.start, turns=True)
    run.in_turn(landing.run_identity("first"))
    control.topic_id = "control-2"
    control.logs.clear()
    assert not run.has_begun()
    partition = landing.session.own_partition()
    control.logs[partition] = [None]
    later = turn_at(log_end(landing.session, partition))
    start_other(followed, replace(landing.run_identity("later"), turn=later))
    assert run.has_begun()


def test_a_later_run_is_observed_where_the_control_topic_has_got_more_partitions(followed: Followed) -> None:
    landing, control = followed.landing, followed.landing.control
    start_other(followed, landing.run_identity("before"))
    former = control.partition_for(landing.session.landing.group_id)
    control.partitions = next(n for n in range(4, 100) if partition_of(landing.session.landing.group_id, n) != former)
    run = Successor(landing.connect(), landing.lines.append, followed.engine.start, turns=True)
    run.in_turn(landing.run_identity("first"))
    start_other(followed, replace(landing.run_identity("later"), turn=1000))
    assert run.has_begun()


OTHER = "shop.others"
ROUTE = {"field": "kind", "tables": {"row": DATA, "other": OTHER}, "create": {OTHER: CREATE}}


@pytest.fixture
def routed(make: Callable[..., Followed]) -> Followed:
    """Of two tables; all rows are for the first. Records come every five seconds for five minutes."""
    followed = make(route=ROUTE)
    for second in range(5, 300, 5):
        followed.come(float(second), 3)
    return followed


def at(followed: Followed, second: float, act: Callable[[], object]) -> None:
    followed.plans.append((second, lambda: act() and None))
    followed.plans.sort(key=lambda plan: plan[0])


def test_a_table_that_takes_no_commits_for_a_while_ends_no_follow_and_is_tried_ever_more_rarely(
    routed: Followed,
) -> None:
    refused = routed.landing.catalog.refused
    at(routed, 20.0, lambda: refused.update({DATA: 0}))
    tries = list[int]()
    at(routed, 200.0, lambda: tries.append(refused.pop(DATA)))
    outcomes = list(routed.follow(lifetime=timedelta(seconds=310)).cycles())
    opened = [second for second in routed.opened() if 100 < second < 200]
    assert all(b - a <= 12.0 for a, b in pairwise(opened)), "windows are opened as they were"
    assert sum(rows(outcomes)) == 30 + 59 * 3
    assert tries[0] <= 50
    assert not outcomes[-1].closed.failed
    assert outcomes[-1].closed.valid_through is not None
    lines = [line for line in routed.landing.lines if "not to be written" in line or "accepts commits again" in line]
    assert len(lines) == 2
    assert any("commits fail for shop.rows" in line for line in routed.landing.lines if "followed for" in line)
    state = routed.landing.session.read_state(()).state
    assert max(c.cycle.slot for c in state.cycles.values()) <= 2, "what is left open takes no slots"
    assert list(state.open_cycles()) == []


@pytest.mark.heavy
def test_what_a_table_lacks_in_the_end_is_the_error_of_the_follow(routed: Followed) -> None:
    refused = routed.landing.catalog.refused
    at(routed, 20.0, lambda: refused.update({DATA: 0}))
    outcomes = list[CycleOutcome]()
    with pytest.raises(CatalogError, match="LC6241"):
        outcomes.extend(routed.follow(lifetime=timedelta(seconds=290)).cycles())
    assert refused[DATA] <= 90
    refused.clear()
    assert routed.landing.cycle("next").rows >= 3 * 50


@pytest.mark.heavy
def test_a_follow_that_was_taken_over_from_leaves_a_failing_table_to_the_other_and_is_not_tried_again(
    routed: Followed,
) -> None:
    refused = routed.landing.catalog.refused
    later = replace(routed.landing.run_identity("later"), turn=1000)
    at(routed, 20.0, lambda: refused.update({DATA: 0}))
    at(routed, 150.2, lambda: start_other(routed, later))
    with pytest.raises(TableError, match="LC6212"):
        list(routed.follow(turns=True, lifetime=timedelta(seconds=290)).cycles())
    assert routed.seconds < 190
