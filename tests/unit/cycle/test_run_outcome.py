# SPDX-License-Identifier: Apache-2.0
"""When a run of cycles is at its end, and what it comes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Counts, Plan, Slice, Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket, Opened, PublishedSnapshot
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome, RunOutcome, Written
from airflow_provider_lakecommit.spark.job import SliceStatus

P = SourcePartition("orders", 0, "id")
WINDOW = UUID(int=9)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def a_slice(start: int, end: int) -> Slice:
    spans = (Span(P, OffsetRange(start, end)),)
    return Slice(slice_id=slice_id(WINDOW, spans, ["shop.orders"]), group=0, spans=spans, tables=("shop.orders",))


SLICES = (a_slice(0, 5), a_slice(5, 10))
SNAPSHOT = PublishedSnapshot(
    table="shop.orders",
    snapshot_id=1,
    commit_id=UUID(int=1),
    coverage=Coverage.of([(P, OffsetRange(0, 10))]),
    rows=9,
    files=2,
    counts=Counts(landed=9, filtered=1),
)


def ended(**slices: int) -> Counter[SliceStatus]:
    return Counter({SliceStatus(status): n for status, n in slices.items()})


def outcome(
    slices: tuple[Slice, ...] = SLICES,
    written: Written | None = None,
    left: int = 0,
    released: int = 0,
    refused: RefusalState | None = None,
    **closed: Any,
) -> CycleOutcome:
    """A cycle that did all it planned, but for what is given."""
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="s",
        window_id=WINDOW,
        slices=slices,
        targets=(),
        ends={P: 10},
        requested_at=NOON,
        left=left,
        reason=None if refused is None else f"{refused}: something",
        refused=refused,
    )
    ticket = CycleTicket(landing="orders", lane="live", commit_id=UUID(int=1), slot=0, partition=0, read_from=0)
    return CycleOutcome(
        number=0,
        opened=Opened(ticket=ticket, plan=plan, slices=slices, explain=()),
        written=written or Written(slices=ended(done=len(slices))),
        closed=Closed(commit_id=UUID(int=1), **closed),
        seconds={"open": 0.12345},
        released=released,
    )


@pytest.mark.parametrize(
    ("cycle", "final"),
    [
        (outcome(), True),
        (outcome(slices=()), True),
        (outcome(left=3), False),
        (outcome(missing=("orders[0][5, 10)",)), False),
        (outcome(voided=("gone",)), False),
        (outcome(written=Written(slices=ended(done=1, again=1))), False),
        (outcome(written=Written(slices=ended(done=1, superseded=1))), False),
        (outcome(written=Written(died=("java is gone",))), False),
        (outcome(released=1), False),
        (outcome(slices=(), released=1), False),
        (outcome(slices=(), left=3), True),
        (outcome(slices=(), left=3, refused=RefusalState.STALLED), False),
        (outcome(slices=(), refused=RefusalState.STALLED), True),
    ],
)
def test_a_run_ends_when_everything_that_was_planned_is_done_and_nothing_became_free(
    cycle: CycleOutcome, final: bool
) -> None:
    assert cycle.final is final


@pytest.mark.parametrize(
    ("cycle", "progress"),
    [
        (outcome(), True),
        (outcome(written=Written(slices=ended(again=2))), False),
        (outcome(written=Written(died=("java is gone",))), False),
        (outcome(written=Written(died=("java is gone",)), published=(SNAPSHOT,)), True),
        (outcome(slices=(), released=1), True),
    ],
)
def test_progress_is_what_was_reported_or_published_or_set_free(cycle: CycleOutcome, progress: bool) -> None:
    assert cycle.progress is progress


@pytest.mark.parametrize(
    ("written", "may_pass"),
    [
        (Written(slices=ended(again=1)), True),
        (Written(died=("x",)), True),
        (Written(slices=ended(failed=1)), False),
        (Written(slices=ended(blocked=1)), False),
    ],
)
def test_only_what_may_pass_by_itself_is_waited_for(written: Written, may_pass: bool) -> None:
    assert written.may_pass is may_pass


def test_slices_that_an_earlier_attempt_reported_count_as_done() -> None:
    continued = outcome(written=Written(slices=ended(done=1, reported=1)))
    assert continued.caught_up
    assert not outcome(written=Written(slices=ended(reported=1))).caught_up


def test_what_two_groups_wrote_is_added_up() -> None:
    both = Written(slices=ended(done=1), died=("a",)) + Written(slices=ended(done=2, again=1), unfinished=("b",))
    assert both == Written(slices=ended(done=3, again=1), died=("a",), unfinished=("b",))
    assert both.trouble == ("a", "b")


def snapshot(number: int, cycle: int, start: int, end: int, table: str = "shop.orders") -> PublishedSnapshot:
    return replace(
        SNAPSHOT,
        table=table,
        snapshot_id=number,
        commit_id=UUID(int=cycle),
        coverage=Coverage.of([(P, OffsetRange(start, end))]),
        rows=end - start,
        counts=Counts(landed=end - start),
    )


def test_a_run_of_several_cycles_holds_all_their_snapshots_and_the_state_of_the_newest_one() -> None:
    first = outcome(left=5, table="shop.orders", published=(snapshot(1, 1, 0, 5), snapshot(2, 1, 0, 5, "shop.dead")))
    second = outcome(table="shop.orders", published=(snapshot(3, 2, 5, 10),), valid_through=NOON)
    run = RunOutcome.of("orders", [first, second], before=[snapshot(9, 8, 10, 12)])
    assert [p.snapshot_id for p in run.whole.published] == [9, 1, 2, 3]
    assert run.whole.commit_id == UUID(int=2)
    assert run.whole.valid_through == NOON
    covered, counts = run.of_table("shop.orders")
    assert covered == Coverage.of([(P, OffsetRange(0, 12))])
    assert counts.landed == 12
    assert str(run) == f"orders: 12 rows in 4 snapshots, 2 cycles; all up to {NOON.isoformat()} is in the tables"


def test_a_window_is_put_off_where_there_was_something_to_read_or_it_is_unknown() -> None:
    plan = outcome(slices=(), refused=RefusalState.CATALOG_AWAY).opened.plan
    assert not plan.deferred
    assert replace(plan, left=1).deferred
    assert replace(plan, ends={}).deferred
    assert not replace(plan, ends={}, refused=None).deferred


def test_a_run_that_ends_without_a_window_reports_what_kept_it() -> None:
    refused = RunOutcome.of("orders", [outcome(slices=(), left=3, refused=RefusalState.STALLED, published=())])
    assert refused.refused == "stalled: something"
    assert str(refused).endswith("; no window was planned: stalled: something")
    assert (
        RunOutcome.of("orders", [outcome(slices=(), left=3, refused=RefusalState.STALLED), outcome()]).refused is None
    )


def test_a_run_that_ends_reports_what_it_left_what_is_blocked_and_what_waits() -> None:
    text = str(RunOutcome.of("orders", [outcome(left=3, blocked=("a", "b"), waiting=("c",), published=())]))
    assert "0 rows in 0 snapshots, 1 cycles" in text
    assert "a and 1 more are blocked: correct the spec or the table and run again, or decide with `lakecommit" in text
    assert text.endswith("c is waiting")
