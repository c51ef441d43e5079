# SPDX-License-Identifier: Apache-2.0
"""Accounting: a slice is published only if its records add up to its span, and its files to its rows."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.accounting import check_files, check_report, total
from airflow_provider_lakecommit.core.model import Counts, SliceReport
from airflow_provider_lakecommit.exceptions import AccountingError
from tests.unit.core.story import DEAD, ORDERS, P0, P1, plan, report_of

ALL_KINDS = Counts(landed=5, rejected=1, filtered=1, gaps=2, skipped=1)


def report(*counts: Counts) -> SliceReport:
    """One or two spans of ten offsets with these counts."""
    slices = plan([[(p, 0, 10) for p, _ in zip((P0, P1), counts, strict=False)]], tables=(ORDERS, DEAD)).slices
    of = report_of(slices[0], attempt=UUID(int=1), files={ORDERS: 2})
    return replace(of, spans=tuple(replace(s, counts=c) for s, c in zip(of.spans, counts, strict=True)))


def test_every_kind_of_record_counts_towards_the_span() -> None:
    check_report(report(ALL_KINDS))


@pytest.mark.parametrize("kind", ["landed", "rejected", "filtered", "gaps", "skipped"])
@pytest.mark.parametrize("by", [-1, 1])
def test_one_record_too_few_or_too_many_is_refused(kind: str, by: int) -> None:
    off = replace(ALL_KINDS, **{kind: getattr(ALL_KINDS, kind) + by})
    with pytest.raises(AccountingError, match=rf"orders\[0\]\[0, 10\) spans 10 offsets, .* accounts for {10 + by} "):
        check_report(report(off))


def test_spans_do_not_make_up_for_each_other() -> None:
    with pytest.raises(AccountingError):
        check_report(report(Counts(landed=9), Counts(landed=11)))


def test_files_must_be_as_many_as_were_reported_and_hold_as_many_rows() -> None:
    check_files(report(ALL_KINDS), ORDERS, [4, 6])
    check_files(report(ALL_KINDS), DEAD, [])


@pytest.mark.parametrize("rows", [[4, 5], [4, 7], [10], [4, 5, 1], []])
def test_other_files_are_refused(rows: list[int]) -> None:
    with pytest.raises(AccountingError, match=f"{len(rows)} files of {sum(rows)} rows for shop.orders"):
        check_files(report(ALL_KINDS), ORDERS, rows)


def test_files_for_a_table_that_was_not_reported_are_refused() -> None:
    with pytest.raises(AccountingError, match="its report says none"):
        check_files(report(ALL_KINDS), "shop.other", [])


def test_total_adds_all_spans_of_all_reports() -> None:
    assert total([report(ALL_KINDS, Counts(gaps=10)), report(ALL_KINDS)]) == Counts(
        landed=10, rejected=2, filtered=2, gaps=14, skipped=2
    )
    assert total([]) == Counts()
