# SPDX-License-Identifier: Apache-2.0
"""When a run of `land` is at its end, and what it says of a cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.cli.land import CycleOutcome, Written
from airflow_provider_lakecommit.core.model import Counts, Plan, Slice, Span, slice_id
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket, Opened, PublishedSnapshot

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


def outcome(
    slices: tuple[Slice, ...] = SLICES, written: Written | None = None, left: int = 0, released: int = 0, **closed: Any
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
        asked_at=NOON,
        left=left,
    )
    ticket = CycleTicket(landing="orders", lane="live", commit_id=UUID(int=1), slot=0, partition=0, read_from=0)
    return CycleOutcome(
        number=0,
        opened=Opened(ticket=ticket, plan=plan, slices=slices, explain=()),
        written=written or Written(slices=Counter(done=len(slices))),
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
        (outcome(written=Written(slices=Counter(done=1, again=1))), False),
        (outcome(written=Written(slices=Counter(done=1, superseded=1))), False),
        (outcome(written=Written(died=("java is gone",))), False),
        (outcome(released=1), False),
        (outcome(slices=(), released=1), False),
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
        (outcome(written=Written(slices=Counter(again=2))), False),
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
        (Written(slices=Counter(again=1)), True),
        (Written(died=("x",)), True),
        (Written(slices=Counter(failed=1)), False),
        (Written(slices=Counter(blocked=1)), False),
    ],
)
def test_only_what_may_pass_by_itself_is_waited_for(written: Written, may_pass: bool) -> None:
    assert written.may_pass is may_pass


def test_the_line_of_a_cycle_counts_the_data_table_alone() -> None:
    dead = replace(SNAPSHOT, table="shop.dead", rows=1)
    line = outcome(table="shop.orders", published=(SNAPSHOT, dead), valid_through=NOON).to_dict("shop.orders")
    assert line["rows"] == 9
    assert line["counts"] == {"landed": 9, "rejected": 0, "filtered": 1, "gaps": 0, "skipped": 0}
    assert line["offsets"] == {"orders[0]": [[0, 10]]}
    assert line["window"] == {"window_id": str(WINDOW), "slices": 2, "offsets": {"orders[0]": [[0, 10]]}}
    assert line["seconds"] == {"open": 0.123}
    assert line["valid_through"].startswith("2026-01-01T12:00:00")
