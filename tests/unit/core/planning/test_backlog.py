# SPDX-License-Identifier: Apache-2.0
"""What counts as planned, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry
from airflow_provider_lakecommit.core.model import Cycle, Plan, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.backlog import planned_after, unplanned
from airflow_provider_lakecommit.core.refusal import RefusalState

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B = SourcePartition("orders", 0, "id"), SourcePartition("orders", 1, "id")
ID = UUID(int=1)


def opened(
    spans: Mapping[SourcePartition, tuple[int, int]],
    ends: Mapping[SourcePartition, int],
    *,
    left: int = 0,
    refused: RefusalState | None = None,
) -> Entry:
    parts = tuple(Span(partition=p, range=OffsetRange(*r)) for p, r in spans.items())
    slices = (Slice(slice_id=ID, group=0, spans=parts, tables=("shop.orders",)),) if parts else ()
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="1",
        window_id=ID,
        slices=slices,
        targets=(),
        ends=ends,
        requested_at=NOON,
        left=left,
        refused=refused,
    )
    cycle = Cycle(commit_id=ID, dag="d", run="r", number=0, slot=0)
    return CycleOpened(offset=0, at=NOON, commit_id=ID, cycle=cycle, plan=plan)


def test_what_a_plan_takes_up_is_planned() -> None:
    planned = planned_after({}, opened({A: (0, 10)}, {A: 50, B: 5}, left=45))
    assert planned == {A: 10}
    assert unplanned(planned, {A: (3, 60), B: (2, 5)}) == {A: (10, 60), B: (2, 5)}


def test_a_plan_that_left_nothing_has_all_there_was() -> None:
    assert planned_after({A: 5}, opened({}, {A: 10, B: 7})) == {A: 10, B: 7}


def test_a_plan_that_was_kept_has_nothing() -> None:
    assert planned_after({A: 5}, opened({}, {A: 10}, refused=RefusalState.STALLED)) == {A: 5}


def test_an_older_range_that_is_planned_again_takes_nothing_back() -> None:
    assert planned_after({A: 50}, opened({A: (0, 10)}, {A: 60}, left=10)) == {A: 50}


def test_other_entries_change_nothing() -> None:
    closed = CycleClosed(offset=0, at=NOON, commit_id=ID, valid_through=NOON)
    assert planned_after({A: 5}, closed) == {A: 5}


def test_what_retention_removed_is_not_waited_for() -> None:
    assert unplanned({A: 5}, {A: (8, 10)}) == {A: (8, 10)}
    assert unplanned({A: 10}, {A: (0, 10)}) == {}
