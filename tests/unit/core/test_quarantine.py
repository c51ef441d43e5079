# SPDX-License-Identifier: Apache-2.0
"""Records that are passed over: counted, named up to a bound, and what they were about counts as not done."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.accounting import report_problem
from airflow_provider_lakecommit.core.fold import MOST_QUARANTINED, fold
from airflow_provider_lakecommit.core.log import CycleOpened, SliceReported, Unreadable
from airflow_provider_lakecommit.core.model import Counts, SliceReport, SpanReport
from airflow_provider_lakecommit.core.offsets import SourcePartition
from tests.support.story import ORDERS, P0, P1, TIMEOUT, Story, coverage, ledger

A, B = [(P0, 0, 10)], [(P0, 10, 20)]


def unreadable(story: Story, reason: str = "cut off") -> Unreadable:
    last = story.entries[-1]
    return Unreadable(offset=last.offset + 1, at=last.at, commit_id=UUID(int=0), reason=reason)


def test_one_that_cannot_be_read_is_named_and_changes_nothing_else() -> None:
    story = Story()
    story.opens("a", [A, B])
    story.reports("a", A)
    before = story.landing_state()
    after = fold([*story.entries, unreadable(story)], [ledger(ORDERS)], TIMEOUT)
    assert replace(after, quarantined=(), quarantined_count=0) == before
    assert [q.describe(3) for q in after.quarantined] == [f"3@{story.entries[-1].offset + 1}: cut off"]


def test_the_newest_are_named_and_all_are_counted() -> None:
    story = Story()
    story.opens("a", [A])
    some = [replace(unreadable(story, str(n)), offset=1000 + n) for n in range(MOST_QUARANTINED + 5)]
    state = fold([*story.entries, *some], [ledger(ORDERS)], TIMEOUT)
    assert state.quarantined_count == MOST_QUARANTINED + 5
    assert [q.reason for q in state.quarantined] == [str(n) for n in range(5, MOST_QUARANTINED + 5)]


def altered(report: SliceReport, **counts: int) -> SliceReport:
    first = report.spans[0]
    return replace(report, spans=(SpanReport(span=first.span, counts=Counts(**counts)), *report.spans[1:]))


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"landed": 11}, "spans 10 offsets, its report accounts for 11"),
        ({"landed": 12, "gaps": -2}, "negative count"),
        ({}, "accounts for 0"),
    ],
)
def test_a_report_that_contradicts_itself_is_not_accepted_and_its_slice_is_not_done(
    counts: dict[str, int], message: str
) -> None:
    story = Story()
    story.opens("a", [A, B])
    wrong = story.reports("a", A)
    right = story.reports("a", B)
    entries = [
        replace(e, report=altered(e.report, **counts))
        if isinstance(e, SliceReported) and e.report.attempt == wrong
        else e
        for e in story.entries
    ]
    state = fold(entries, [ledger(ORDERS)], TIMEOUT)
    assert [a.report.attempt for a in state.accepted[ORDERS]] == [right]
    assert [s.report.attempt for s, _ in state.redundant] == [wrong]
    assert message in state.quarantined[0].reason
    assert state.quarantined_count == 1
    (cycle,) = state.cycles.values()
    assert [s.coverage for s in cycle.unfinished] == [coverage(A)]


def test_what_is_wrong_with_a_report() -> None:
    story = Story()
    story.opens("a", [A])
    story.reports("a", A)
    report = next(e.report for e in story.entries if isinstance(e, SliceReported))
    assert report_problem(report, ()) is None
    assert report_problem(report, {P0}) is None
    assert "of no partition that its cycle was planned for" in str(report_problem(report, {P1}))
    other_topic = SourcePartition(topic=P0.topic, partition=P0.partition, topic_id="made anew")
    assert report_problem(report, {other_topic}) is not None
    assert report_problem(replace(report, tables=report.tables * 2), ()) == "it tells of a table twice"
    failed = replace(altered(report), tables=(), failed="x")
    assert report_problem(failed, ()) is None
    assert report_problem(failed, {P1}) is not None


def test_a_wrong_report_blocks_nothing() -> None:
    story = Story()
    story.opens("a", [A])
    story.reports("a", A)
    entries = [
        replace(e, report=replace(e.report, spans=e.report.spans, tables=(), blocked="too many"))
        if isinstance(e, SliceReported)
        else replace(e, plan=replace(e.plan, ends={P1: 5}))
        if isinstance(e, CycleOpened)
        else e
        for e in story.entries
    ]
    state = fold(entries, [ledger(ORDERS)], timedelta(hours=1))
    assert state.blocked == ()
    assert state.quarantined_count == 1
