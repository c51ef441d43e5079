# SPDX-License-Identifier: Apache-2.0
"""How long unread offsets are kept: what a plan asks of the source next to its work, and what it says aloud."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.headroom import Headroom, Retention
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.headroom_watch import (
    FEW,
    ROUNDS,
    Watch,
    headroom_now,
    plan_lines,
    plan_threshold,
    request,
    sharpened,
    warnings,
)
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog
from airflow_provider_lakecommit.kafka.source_topic import First
from tests.fakes.kafka import NOON
from tests.fakes.session import P0, P1, FakeLanding

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WEEK = Retention(time=7 * DAY, bytes=None)


@pytest.fixture
def asking(landing: FakeLanding) -> FakeLanding:
    """With a topic that keeps records for a week, whose partitions were written to six and two days ago."""
    landing.open()
    landing.source.requests.clear()
    landing.lines.clear()
    landing.source.kept = {"orders": WEEK}
    written_at(landing, {P0: NOON - 6 * DAY, P1: NOON - 2 * DAY})
    return landing


def written_at(landing: FakeLanding, times: dict[SourcePartition, datetime]) -> None:
    def first_since(p: SourcePartition, time: datetime) -> First:
        return (0, times[p]) if p in times and times[p] >= time else None

    landing.source.first_since = first_since


def read_log(landing: FakeLanding) -> FoldedLog:
    return landing.session.read_state(prepare_for_commit(landing.session).ledgers)


def watch(landing: FakeLanding, threshold: timedelta = HOUR) -> Watch:
    return request(landing.session, read_log(landing).state, landing.source.watermarks(), threshold)


def test_the_shortest_headroom_comes_first_and_one_that_is_unknown_last(asking: FakeLanding) -> None:
    assert [(h.partition, h.left) for h in watch(asking).found()] == [(P0, DAY), (P1, 5 * DAY)]
    written_at(asking, {P1: NOON - 2 * DAY})
    asking.source.kept = {}
    other = SourcePartition("others", 0, "topic-2")
    asking.source.ends[other] = 5
    asking.source.kept = {"others": WEEK}
    written_at(asking, {other: NOON})
    assert [h.partition for h in watch(asking).found()] == [other, P0, P1]


@pytest.mark.parametrize("error", [ValueError("year 55840 is out of range"), OverflowError("date"), KeyError("x")])
def test_advice_that_cannot_be_made_is_a_warning_and_no_error(
    asking: FakeLanding, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def broken(p: SourcePartition, time: datetime) -> First:
        raise error

    asking.source.first_since = broken
    session, folded, source = asking.session, read_log(asking), asking.source.watermarks()
    assert plan_lines(session, watch(asking)) == ()
    assert headroom_now(session, folded.state, source, HOUR, 1.0) == ()
    assert any("WARNING: could not determine the retention of unread offsets" in line for line in asking.lines)
    monkeypatch.setattr("airflow_provider_lakecommit.cycle.plan.headroom_watch.oldest_unread", broken)
    assert request(session, folded.state, source, HOUR).found() == ()


def test_a_partition_without_unread_offsets_is_not_queried(asking: FakeLanding) -> None:
    asking.source.ends = {P0: 0, P1: 10}
    assert [h.partition for h in watch(asking).found()] == [P1]
    assert {p for p, _ in asking.source.requests} == {P1}


def test_what_is_reported_is_not_unread(asking: FakeLanding) -> None:
    opened = asking.open(retry=True)
    asking.report(opened, lambda s: s.spans[0].partition == P1)
    assert [(h.partition, h.offset) for h in watch(asking).found()] == [(P0, 0)]


def test_settings_that_may_not_be_read_make_it_unknown_and_never_a_warning(asking: FakeLanding) -> None:
    asking.source.kept = {}
    found = watch(asking)
    assert plan_lines(asking.session, found) == (
        "orders[0]: the oldest unread offset 0 expires at an unknown time (the topic's settings were not "
        "readable or did not arrive in time: grant DESCRIBE_CONFIGS)",
    )
    assert (asking.lines, asking.source.requests) == ([], [])


def test_an_answer_that_does_not_come_makes_it_unknown(asking: FakeLanding) -> None:
    late = Watch(began=0.0, threshold=HOUR, requested=watch(asking).requested, answers=lambda _: [])
    (line,) = plan_lines(asking.session, late)
    assert "unknown time (no answer in time)" in line
    assert asking.lines == []


def test_the_time_to_wait_counts_from_when_it_was_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def answers(seconds: float) -> list[tuple[SourcePartition, datetime, First]]:
        waited.append(seconds)
        return []

    monkeypatch.setattr("airflow_provider_lakecommit.cycle.plan.headroom_watch.time.monotonic", lambda: 107.0)
    Watch(began=100.0, threshold=HOUR, requested=(), answers=answers).found(10.0)
    assert waited == [3.0]


def test_a_plan_reports_the_shortest_or_aloud_all_that_are_short(asking: FakeLanding) -> None:
    assert [line.split(": ")[0] for line in plan_lines(asking.session, watch(asking))] == ["orders[0]"]
    assert asking.lines == []
    written_at(asking, {P0: NOON - 7 * DAY + HOUR / 2, P1: NOON - 7 * DAY + HOUR / 4})
    lines = plan_lines(asking.session, watch(asking))
    assert [line.split(": ")[0] for line in lines] == ["orders[0]", "orders[1]"]
    assert asking.lines == [f"WARNING: {line}" for line in lines]
    assert lines[1].endswith(
        "may expire within 1 h; that is less than 1 h (window.completion_timeout, or two runs): land more often, "
        "or raise retention.ms of orders"
    )


@pytest.mark.parametrize(("left", "short"), [(HOUR, True), (HOUR + timedelta(seconds=1), False)])
def test_what_may_be_missing_at_the_threshold_is_short(left: timedelta, short: bool) -> None:
    newest = NOON - WEEK.time + left if WEEK.time else NOON
    found = Headroom(partition=P0, offset=0, at=NOON, retention=WEEK, low=newest, high=newest)
    assert bool(warnings([found], HOUR)) is short


def test_of_many_partitions_only_whether_they_are_short_is_requested(asking: FakeLanding) -> None:
    asking.source.ends = {SourcePartition("orders", n, "topic-1"): 1 for n in range(FEW)}
    watch(asking)
    assert len(asking.source.requests) > FEW
    asking.source.requests.clear()
    asking.source.ends[SourcePartition("orders", FEW, "topic-1")] = 1
    watch(asking)
    assert asking.source.requests == [(p, NOON - 7 * DAY + HOUR) for p in asking.source.ends]


def test_the_threshold_is_the_timeout_or_two_runs(landing: FakeLanding) -> None:
    landing.open("a")
    assert plan_threshold(landing.session, read_log(landing)) == landing.session.landing.window.completion_timeout
    landing.clock.passes(DAY)
    landing.open("b")
    assert plan_threshold(landing.session, read_log(landing)) == 2 * DAY


def unsure(p: SourcePartition = P0) -> Headroom:
    return Headroom(partition=p, offset=0, at=NOON, retention=WEEK)


def test_users_get_it_as_exactly_as_needed(asking: FakeLanding) -> None:
    moments = [NOON - 6 * DAY + n * HOUR for n in range(6)]
    # Offset 5 is the oldest unread one: what is at or below it keeps its segment.
    asking.source.first_since = lambda _, t: next(((n, m) for n, m in enumerate(moments) if m >= t), None)
    unread = Headroom(partition=P0, offset=5, at=NOON, retention=WEEK, low=moments[0])
    (found,) = sharpened(asking.session, [unread], seconds=60)
    assert found.sharp
    assert found.expires_at == moments[5] + 7 * DAY
    assert 1 < len(asking.source.requests) <= ROUNDS


def test_what_is_known_well_enough_is_not_requested_again(asking: FakeLanding) -> None:
    known = [
        Headroom(partition=P0, offset=0, at=NOON, retention=None),
        Headroom(partition=P1, offset=0, at=NOON, retention=Retention(time=None, bytes=None)),
    ]
    assert set(sharpened(asking.session, known, seconds=60)) == set(known)
    assert asking.source.requests == []


def test_when_the_time_is_over_nothing_more_is_requested(asking: FakeLanding) -> None:
    assert sharpened(asking.session, [unsure()], seconds=0) == (unsure(),)
    assert asking.source.requests == []


def test_answers_that_report_nothing_new_end_after_a_bounded_number_of_questions(asking: FakeLanding) -> None:
    asking.source.first_since = lambda _p, _t: (0, NOON - 6 * DAY)
    unread = Headroom(partition=P0, offset=5, at=NOON, retention=WEEK, low=NOON - 6 * DAY)
    assert sharpened(asking.session, [unread], seconds=60) == (unread,)
    assert len(asking.source.requests) == ROUNDS
