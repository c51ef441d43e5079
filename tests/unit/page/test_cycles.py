# SPDX-License-Identifier: Apache-2.0
"""What the page knows of cycles and partitions, from the log of a landing and the events of a connector."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.log import EndAsked, Entry, TablePublished
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.page.cycles import (
    MOST_CYCLES,
    CycleOutcome,
    LandingCycles,
    connector_cycles_after,
    cycles_after,
    outcomes,
)
from airflow_provider_lakecommit.stall.verdict import EventKind, Seen
from tests.support.story import DEAD, ORDERS, P0, P1, Story, coverage, plan

AT = ("orders", 0)


def told(entries: Sequence[Entry]) -> LandingCycles:
    known = LandingCycles()
    for entry in entries:
        known = cycles_after(known, entry)
    return known


def ended(story: Story) -> list[str]:
    return [str(o) for o in outcomes(told(story.entries).cycles)]


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
    running = told(story.entries).cycles[-1]
    assert (running.outcome, running.landed, running.done, running.slices) == ("running", 10, 1, 2)
    story.reports("a", [(P1, 0, 5)])
    published(story, "a", [(P0, 0, 10), (P1, 0, 5)])
    story.closes("a")
    known = told(story.entries)
    done = known.cycles[-1]
    assert (done.outcome, done.landed, done.files, done.planned) == ("complete", 15, 2, 15)
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
    assert told(story.entries).cycles[-1].failures == 2
    story.closes("failed")
    assert ended(story)[-1] == "partial", "its slice was never reported"


def test_one_that_nobody_goes_on_with_is_left_to_the_later_one_that_completes() -> None:
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
    from dataclasses import replace

    opened = story.entries[-1]
    story.entries[-1] = replace(opened, plan=replace(plan([]), refused=refused, reason="why"))  # type: ignore[call-arg]
    story.closes("a")
    assert ended(story) == [outcome]
    assert told(story.entries).cycles[-1].reason == "why"


def test_one_that_was_asked_to_end_is_partial_and_says_by_whom() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    story.entries.append(EndAsked(offset=1, at=story.now, commit_id=story.id("a"), job=None, reason="ann wants it now"))
    story.reports("a", [(P0, 0, 10)])
    story.closes("a")
    assert (ended(story), told(story.entries).cycles[-1].end_asked) == (["partial"], "ann wants it now")


def test_a_partition_is_published_as_far_as_the_data_table_has_it() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]], tables=(ORDERS, DEAD), ends={P0: 10})
    published(story, "a", [(P0, 0, 4)], DEAD)
    assert [p.published for p in told(story.entries).partitions({})] == [4], "until the data table is seen"
    published(story, "a", [(P0, 0, 10)], ORDERS)
    assert [p.published for p in told(story.entries).partitions({})] == [10]


def test_the_history_is_bounded_and_late_events_of_old_cycles_change_none() -> None:
    story = Story()
    for n in range(MOST_CYCLES + 5):
        story.opens(f"r{n}", [[(P0, n, n + 1)]])
        story.passes(timedelta(seconds=1))
    story.closes("r0")
    known = told(story.entries)
    assert len(known.cycles) == MOST_CYCLES
    assert known.cycles[0].run == "r5"
    assert all(c.ended is None for c in known.cycles)


def test_a_connectors_cycles_have_files_and_no_records() -> None:
    known, first, second, third = LandingCycles(), uuid4(), uuid4(), uuid4()

    def sees(kind: EventKind, commit: UUID, **more: object) -> None:
        nonlocal known
        known = connector_cycles_after(known, Seen(kind, 100.0, commit.bytes, **more))  # type: ignore[arg-type]

    sees(EventKind.START, first)
    sees(EventKind.WRITTEN, first, table="shop.orders", files=3)
    sees(EventKind.PUBLISHED, first, table="shop.orders")
    sees(EventKind.COMPLETED, first)
    sees(EventKind.START, second)
    sees(EventKind.COMPLETED, second)
    sees(EventKind.START, third)
    assert outcomes(known.cycles) == (CycleOutcome.COMPLETE, CycleOutcome.EMPTY, CycleOutcome.RUNNING)
    assert (known.cycles[0].files, known.tables) == (3, ("shop.orders",))
