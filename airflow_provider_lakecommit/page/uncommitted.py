# SPDX-License-Identifier: Apache-2.0
"""Rejected records of reports that no snapshot of their table has yet.

Contract: pure and frozen. A report is kept until a commit of its dead-letter table covers it, which counts its rejects,
or until another report covers some of its offsets again, which replaces it.

Failure story: of more than :data:`MOST` such reports the newest are kept; the rejects of the others are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from airflow_provider_lakecommit.core import Coverage, SliceReport, Span, TablePublished

MOST = 2000


class Uncommitted(NamedTuple):
    """A report with rejects: its ranges, its last table with files, all of its rejects, and those of each kind.

    The dead-letter table is the last one of a landing.
    """

    table: str
    spans: tuple[Span, ...]
    rejected: int
    rejects: Mapping[str, int]

    def overlaps(self, spans: Sequence[Span]) -> bool:
        return any(a.partition == b.partition and a.range.overlaps(b.range) for a in self.spans for b in spans)

    def is_in(self, coverage: Coverage) -> bool:
        return all(coverage[s.partition].covers(s.range) for s in self.spans)


def after_report(known: Sequence[Uncommitted], report: SliceReport) -> tuple[Uncommitted, ...]:
    """Return what is uncommitted after a finished report."""
    spans = tuple(s.span for s in report.spans)
    left = [one for one in known if not one.overlaps(spans)]
    rejected = sum(s.counts.rejected for s in report.spans)
    table = next((t.table for t in reversed(report.tables) if t.files), "")
    if rejected and table:
        left.append(Uncommitted(table=table, spans=spans, rejected=rejected, rejects=report.rejects))
    return tuple(left[-MOST:])


def after_commit(
    known: Sequence[Uncommitted], entry: TablePublished
) -> tuple[tuple[Uncommitted, ...], int, Mapping[str, int]]:
    """Return what is uncommitted after a commit, how many rejects it holds, and how many of each kind."""
    left, rejected, kinds = [], 0, Counter[str]()
    for one in known:
        if one.table == entry.table and one.is_in(entry.coverage):
            rejected += one.rejected
            kinds.update(one.rejects)
        else:
            left.append(one)
    return tuple(left), rejected, kinds
