# SPDX-License-Identifier: Apache-2.0
"""Accounting in source records: what a slice read must add up to what its ranges span, before it may be published.

Contract: per span, landed + rejected + filtered + gaps + skipped equals the number of offsets. Rows per table are a
separate sum and equal the record counts of the files. A slice that does not add up is never published.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.core.model import Counts, SliceReport
from airflow_provider_lakecommit.exceptions import AccountingError

__all__ = ["check_files", "check_report", "total"]


def check_report(report: SliceReport) -> None:
    """:raises AccountingError: naming the span that does not add up"""
    for s in report.spans:
        if s.counts.total != len(s.span):
            raise AccountingError(
                f"slice {report.slice_id}: {s.span} spans {len(s.span)} offsets, "
                f"its report accounts for {s.counts.total} ({s.counts}); "
                f"it is voided and its range is read again"
            )


def check_files(report: SliceReport, table: str, file_rows: Iterable[int]) -> None:
    """:raises AccountingError: when the files of a table are not the ones that were reported"""
    rows = list(file_rows)
    told = report.table(table)
    if told is None or (len(rows), sum(rows)) != (told.files, told.rows):
        raise AccountingError(
            f"slice {report.slice_id}: {len(rows)} files of {sum(rows)} rows for {table}, its report says "
            f"{(told.files, told.rows) if told else 'none'}; it is voided and its range is read again"
        )


def total(reports: Iterable[SliceReport]) -> Counts:
    """Sum over all spans of all reports."""
    out = Counts()
    for r in reports:
        for s in r.spans:
            out = out + s.counts
    return out
