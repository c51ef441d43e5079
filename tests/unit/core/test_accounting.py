# SPDX-License-Identifier: Apache-2.0
"""Accounting: a slice is published only if its records add up to its span, and its files to its rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.accounting import MOST_NAMES, OTHERS, add_names, rows_problem, spans_problem
from airflow_provider_lakecommit.core.model import Counts, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import OffsetRange
from tests.support.story import P0, P1

ALL_KINDS = Counts(landed=5, rejected=1, filtered=1, gaps=2, skipped=1)


def spans(*counts: Counts) -> list[SpanReport]:
    """Spans of ten offsets, each in a partition of its own."""
    return [SpanReport(span=Span(p, OffsetRange(0, 10)), counts=c) for p, c in zip((P0, P1), counts, strict=False)]


def test_every_kind_of_record_counts_towards_the_span() -> None:
    assert spans_problem(spans(ALL_KINDS)) is None


@pytest.mark.parametrize("kind", ["landed", "rejected", "filtered", "gaps", "skipped"])
@pytest.mark.parametrize("by", [-1, 1])
def test_one_record_too_few_or_too_many_is_reported(kind: str, by: int) -> None:
    off = replace(ALL_KINDS, **{kind: getattr(ALL_KINDS, kind) + by})
    problem = spans_problem(spans(off))
    assert problem is not None
    assert f"spans 10 offsets, its report accounts for {10 + by} " in problem


def test_spans_do_not_make_up_for_each_other() -> None:
    assert spans_problem(spans(Counts(landed=9), Counts(landed=11))) is not None


def test_counts_do_not_make_up_for_each_other_by_being_negative() -> None:
    assert "negative" in str(spans_problem(spans(Counts(landed=11, gaps=-1))))


def test_a_span_is_not_counted_twice() -> None:
    (one,) = spans(ALL_KINDS)
    assert "overlap" in str(spans_problem([one, one]))


def test_the_rows_of_the_files_are_the_ones_that_were_reported() -> None:
    assert rows_problem([4, 6], 10) is None
    assert rows_problem([], 0) is None


@pytest.mark.parametrize("rows", [[4, 5], [4, 7], []])
def test_other_rows_are_reported(rows: list[int]) -> None:
    assert f"hold {sum(rows)} rows, its report says 10" in str(rows_problem(rows, 10))


def test_names_that_records_make_up_without_end_are_reported_within_bounds() -> None:
    counted: Counter[str] = Counter()
    add_names(counted, {"often": 3, "x" * 1_000_000: 1})
    add_names(counted, {f"id {i}": 2 for i in range(10_000)})
    add_names(counted, {"often": 4, "late": 1})

    assert counted["often"] == 7
    assert counted.total() == 3 + 1 + 20_000 + 4 + 1
    assert len(counted) == MOST_NAMES + 1
    assert counted[OTHERS] == 2 * (10_000 - MOST_NAMES + 2) + 1
    assert max(map(len, counted)) <= 101
