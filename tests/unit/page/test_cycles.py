# SPDX-License-Identifier: Apache-2.0
"""What the page knows of cycles and partitions, from the log of a landing and the events of a connector."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleOpened, EndRequested, Entry, TablePublished
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.page.cycles import (
    MOST_CYCLES,
    MOST_OPEN,
    LandingCycles,
    Totals,
    connector_cycles_after,
    cycles_after,
)
from airflow_provider_lakecommit.page.observed_cycle import CycleOutcome, outcomes
from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent
from tests.support.story import DEAD, ORDERS, P0, P1, Story, coverage, plan

AT = ("orders", 0)


def folded(entries: Sequence[Entry]) -> LandingCycles:
    known = LandingCycles()
    for entry in entries:
        known = cycles_after(known, entry)
    return known


def ended(story: Story) -> list[str]:
    return [str(o) for o in outcomes(folded(story.entries).cycles)]


def published(story: Story, run: str, ranges: Sequence[tuple[object, int, int]], table: str = ORDERS) -> None:
    story.publishes(run, table)
    last = story.entries[-1]
    assert isinstance(last, TablePublished)
    story.entries[-1] = TablePublished(
        offset=last.offset,
        at=last.at,
        commit_id=last.commit_id,
        table=table,
        snapshot_id=7,
        token=last.token,
        coverage=coverage(ranges),  # type: ignore[arg-type]
    )


def test_a_cycle_counts_what_its_slices_report_once() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)], [(P1, 0, 5)]], ends={P0: 30, P1: 5})
    story.reports("a", [(P0, 0, 10)])
    story.reports("a", [(P0, 0, 10)])
    running = folded(story.entries).cycles[-1]
    assert (running.outcome, running.records, running.done, running.slices) == ("running", 10, 1, 2)
    story.reports("a", [(P1, 0, 5)])
    published(story, "a", [(P0, 0, 10), (P1, 0, 5)])
    story.closes("a")
    known = folded(story.entries)
    done = known.cycles[-1]
    assert (done.outcome, done.records, done.files, done.planned) == ("complete", 15, 2, 15)
    assert [(p.planned, p.reported, p.published, p.end) for p in known.partitions({})] == [
        (10, 10, 10, 30),
        (5, 5, 5, 5),
    ]
    assert [p.end for p in known.partitions({AT: 99})] == [99, 5]


def test_what_a_cycle_did_not_do_is_not_called_complete() -> None:
    story = Story()
    story.opens("blocked", [[(P0, 0, 10)]])
    story.reports("blocked", [(P0, 0, 10)], blocked="too many rejects")
    story.closes("blocked")
    story.opens("short", [[(P0, 0, 10)], [(P1, 0, 10)]])
    story.reports("short", [(P0, 0, 10)])
    story.closes("short")
    story.opens("failed", [[(P0, 0, 10)]])
    story.fails_to_commit("failed")
    story.fails_to_commit("failed", "2")
    assert ended(story) == ["partial", "partial", "failed"]
    assert folded(story.entries).cycles[-1].failures == 2
    story.closes("failed")
    assert ended(story)[-1] == "partial", "its slice was never reported"


def test_one_that_is_not_continued_is_left_to_the_later_one_that_completes() -> None:
    story = Story()
    story.opens("dead", [[(P0, 0, 10)]])
    assert ended(story) == ["running"]
    story.opens("next", [[(P0, 0, 10)]])
    assert ended(story) == ["running", "running"]
    story.reports("next", [(P0, 0, 10)])
    story.closes("next")
    assert ended(story) == ["left", "complete"]


@pytest.mark.parametrize(("refused", "outcome"), [(None, "empty"), (RefusalState.OTHER, "refused")])
def test_a_plan_without_slices_is_empty_or_refused(refused: RefusalState | None, outcome: str) -> None:
    story = Story()
    story.opens("a")
    opened = story.entries[-1]
    story.entries[-1] = replace(opened, plan=replace(plan([]), refused=refused, reason="why"))  # type: ignore[call-arg]
    story.closes("a")
    assert ended(story) == [outcome]
    assert folded(story.entries).cycles[-1].reason == "why"


def test_one_that_was_stopped_is_partial_and_reports_by_which_user() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    story.entries.append(
        EndRequested(offset=1, at=story.now, commit_id=story.id("a"), job=None, reason="ann wants it now")
    )
    story.reports("a", [(P0, 0, 10)])
    story.closes("a")
    assert (ended(story), folded(story.entries).cycles[-1].end_asked) == (["partial"], "ann wants it now")


def test_one_that_left_out_partitions_is_partial() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    opened = story.entries[-1]
    assert isinstance(opened, CycleOpened)
    story.entries[-1] = replace(opened, plan=replace(opened.plan, refused=RefusalState.DIVERGED, reason="why"))
    story.reports("a", [(P0, 0, 10)])
    story.closes("a")
    assert ended(story) == ["partial"]


def test_a_slice_behind_an_unreported_one_waits_and_counts_once_that_is_reported_or_published() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 5)], [(P0, 5, 8)], [(P0, 8, 10)]], ends={P0: 10})
    story.reports("a", [(P0, 8, 10)])
    story.reports("a", [(P0, 8, 10)])
    known = folded(story.entries)
    assert ([p.reported for p in known.partitions({})], len(known.staged)) == ([None], 1)
    story.reports("a", [(P0, 0, 5)])
    known = folded(story.entries)
    assert ([p.reported for p in known.partitions({})], len(known.staged)) == ([5], 1)
    for skipped in (False, True):
        end = deepcopy(story)
        if skipped:
            published(end, "a", [(P0, 0, 8)], ORDERS)
        else:
            end.reports("a", [(P0, 5, 8)])
        known = folded(end.entries)
        assert ([p.reported for p in known.partitions({})], known.staged) == ([10], ())


def test_unplanned_offsets_are_in_the_table_when_a_complete_plan_leaves_them_out() -> None:
    """A landing that begins at the newest records has skipped the older ones."""
    story = Story()
    story.opens("a", [[(P0, 0, 10)]], tables=(ORDERS,), ends={P0: 10, P1: 16})
    by_number = {p.partition: p for p in folded(story.entries).partitions({})}
    assert (by_number[1].published, by_number[1].lag, by_number[0].lag) == (16, 0, 10)
    story.opens("b", [[(P0, 10, 11)]], tables=(ORDERS,), ends={P0: 11, P1: 17})
    assert {p.partition: p.lag for p in folded(story.entries).partitions({})} == {0: 11, 1: 1}


def test_a_landing_that_began_at_the_newest_records_is_not_behind_before_it_has_read_any() -> None:
    story = Story()
    story.opens("a", [], tables=(), ends={P0: 5, P1: 2})
    assert [(p.published, p.lag) for p in folded(story.entries).partitions({})] == [(5, 0), (2, 0)]
    story.opens("b", [[(P0, 5, 8)]], tables=(ORDERS, DEAD), ends={P0: 8, P1: 2})
    assert [(p.published, p.lag) for p in folded(story.entries).partitions({})] == [(5, 3), (2, 0)]
    published(story, "b", [(P0, 5, 8)])
    assert [(p.published, p.lag) for p in folded(story.entries).partitions({})] == [(8, 0), (2, 0)]


def test_nothing_but_rejects_are_in_the_tables_once_a_later_cycle_has_published_them() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 2)], [(P0, 2, 7)], [(P0, 7, 10)]], tables=(ORDERS, DEAD), ends={P0: 10})
    story.reports("a", [(P0, 0, 2)], files={ORDERS: 1})
    published(story, "a", [(P0, 0, 2)])
    for ranges in ([(P0, 2, 7)], [(P0, 7, 10)]):
        story.reports("a", ranges, files={DEAD: 1})
    story.fails_to_commit("a", tables=(DEAD,))
    assert [p.published for p in folded(story.entries).partitions({})] == [2]
    story.opens("b", [], tables=(), ends={P0: 10})
    published(story, "b", [(P0, 2, 10)], DEAD)
    assert [(p.published, p.lag) for p in folded(story.entries).partitions({})] == [(10, 0)]


def test_files_wait_until_their_own_table_has_them_though_their_cycle_goes_on() -> None:
    """As of rows on a branch whose check refuses them: they are in the table, and the cycle is not complete."""
    story = Story()
    story.opens("a", [[(P0, 0, 4)], [(P0, 4, 6)]], tables=(ORDERS, DEAD), ends={P0: 6})
    for ranges in ([(P0, 0, 4)], [(P0, 4, 6)]):
        story.reports("a", ranges, files={ORDERS: 2, DEAD: 1})

    def waits() -> list[tuple[tuple[str, int], ...]]:
        return [w.waits for c in folded(story.entries).cycles for w in c.work.values()]

    assert waits() == [((ORDERS, 2), (DEAD, 1))] * 2
    published(story, "a", [(P0, 0, 6)])
    story.fails_to_commit("a", tables=(DEAD,))
    assert waits() == [((DEAD, 1),)] * 2
    story.opens("b", [], tables=(), ends={P0: 6})
    published(story, "b", [(P0, 0, 4)], DEAD)
    assert waits() == [(), ((DEAD, 1),)]


def test_a_partition_is_published_as_far_as_the_data_table_has_it() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]], tables=(ORDERS, DEAD), ends={P0: 10})
    published(story, "a", [(P0, 0, 4)], DEAD)
    assert [p.published for p in folded(story.entries).partitions({})] == [4], "until the data table is seen"
    published(story, "a", [(P0, 0, 10)], ORDERS)
    assert [p.published for p in folded(story.entries).partitions({})] == [10]


def test_the_history_is_bounded_and_late_events_of_old_cycles_change_none() -> None:
    story = Story()
    for n in range(MOST_CYCLES + 5):
        story.opens(f"r{n}", [[(P0, n, n + 1)]])
        story.passes(timedelta(seconds=1))
    story.closes("r0")
    known = folded(story.entries)
    assert len(known.cycles) == MOST_CYCLES
    assert known.cycles[0].run == "r5"
    assert all(c.ended is None for c in known.cycles)


def test_a_connectors_cycles_have_files_and_no_records() -> None:
    known, first, second, third = LandingCycles(), uuid4(), uuid4(), uuid4()

    def sees(kind: EventKind, commit: UUID, **more: object) -> None:
        nonlocal known
        known = connector_cycles_after(known, ObservedEvent(kind, 100.0, commit.bytes, **more))  # type: ignore[arg-type]

    sees(EventKind.START, first)
    sees(EventKind.WRITTEN, first, table="shop.orders", files=3)
    sees(EventKind.PUBLISHED, first, table="shop.orders")
    sees(EventKind.COMPLETED, first)
    sees(EventKind.START, second)
    sees(EventKind.COMPLETED, second)
    sees(EventKind.START, third)
    assert outcomes(known.cycles) == (CycleOutcome.COMPLETE, CycleOutcome.EMPTY, CycleOutcome.RUNNING)
    assert (known.cycles[0].files, known.tables) == (3, ("shop.orders",))


def test_slices_of_a_window_are_reported_one_by_one_until_it_ends() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)], [(P1, 0, 5)], [(P1, 5, 9)]])
    assert [w.outcome for w in folded(story.entries).cycles[-1].work.values()] == ["waiting"] * 3
    story.reports("a", [(P0, 0, 10)])
    story.reports("a", [(P0, 0, 10)])
    story.reports("a", [(P1, 0, 5)], blocked="too many rejects")
    running = folded(story.entries).cycles[-1]
    first, second, third = running.work.values()
    assert (first.outcome, first.reports, first.counts.total, first.rows) == ("done", 2, 10, 10)
    assert (second.outcome, second.reason, third.outcome) == ("blocked", "too many rejects", "waiting")
    assert (running.redundant, running.done, running.undone, running.rows) == (1, 1, 1, ((ORDERS, 10),))
    story.reports("a", [(P1, 0, 5)])
    running = folded(story.entries).cycles[-1]
    assert (running.done, running.undone, running.counts.total) == (2, 0, 15)
    story.closes("a")
    assert folded(story.entries).cycles[-1].work == {}


def test_what_is_planned_again_by_the_same_run_keeps_what_was_reported() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)], [(P1, 0, 5)]])
    story.reports("a", [(P0, 0, 10)])
    story.opens("a", [[(P0, 0, 10)], [(P1, 0, 5)]])
    assert [w.outcome for w in folded(story.entries).cycles[-1].work.values()] == ["done", "waiting"]


def test_slices_are_kept_of_the_newest_open_windows_only() -> None:
    story = Story()
    for n in range(MOST_OPEN + 1):
        story.opens(f"r{n}", [[(P0, n, n + 1)]])
    story.reports("r0", [(P0, 0, 1)])
    cycles = folded(story.entries).cycles
    assert [bool(c.work) for c in cycles] == [False] + [True] * MOST_OPEN
    assert cycles[0].done == 0, "which slices of it were reported is not known any more"


def test_totals_count_each_slice_once_and_commits_with_their_seconds() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    story.reports("a", [(P0, 0, 10)])
    story.reports("a", [(P0, 0, 10)])
    story.fails_to_commit("a")
    story.passes(timedelta(seconds=7))
    published(story, "a", [(P0, 0, 10)])
    published(story, "a", [(P0, 0, 10)], DEAD)
    story.closes("a")
    known = folded(story.entries)
    assert known.totals == Totals(read=10, committed=10, commits=1)
    done = known.cycles[-1]
    assert known.took == (done.ended or 0) - (done.last_report or 0) > 7


def test_tasks_of_a_connector_that_answer_are_reported_and_those_that_ended_are_left_out() -> None:
    known, commit = LandingCycles(), uuid4()

    def answers(task: str, at: float) -> None:
        nonlocal known
        event = ObservedEvent(
            EventKind.ANSWERED, at, commit.bytes, task.encode(), partitions=frozenset({("orders", len(task))})
        )
        known = connector_cycles_after(known, event)

    for n in range(3):
        answers("a", 10.0 * n)
        answers("bb", 10.0 * n + 1)
    assert [(t.id, t.since, t.at, t.answers, t.partitions) for t in known.tasks] == [
        ("a", 0.0, 20.0, 3, (("orders", 1),)),
        ("bb", 1.0, 21.0, 3, (("orders", 2),)),
    ]
    for n in range(100):
        answers("bb", 30.0 + n)
    assert [t.id for t in known.tasks] == ["bb"]
    for n in range(1000):
        answers(f"made up {n}", 200.0)
    assert len(known.tasks) <= 200
