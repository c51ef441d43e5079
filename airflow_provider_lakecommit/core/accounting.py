# SPDX-License-Identifier: Apache-2.0
"""Account for every source record of a slice before it may be published.

Per span, the sum of all counts equals the number of offsets, and the rows per table equal the record counts of the
files. A slice that does not add up is never published: its range is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from airflow_provider_lakecommit.core.model import Counts, SliceReport, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition

MOST_NAMES = 500
"""Names of unknown fields that are counted one by one; a record may make up any number of them."""
NAME_LENGTH = 100
OTHERS = "(others)"
ODD_TIME = "time in 1970: "
"""Before the name of a column by which records are counted among the ignored fields whose time is hardly meant so."""


def add_names(totals: Counter[str], found: Mapping[str, int]) -> None:
    """Add counts by name. Long names are cut; names beyond :data:`MOST_NAMES` share one count."""
    for name, count in found.items():
        short = name if len(name) <= NAME_LENGTH else f"{name[:NAME_LENGTH]}…"
        totals[short if short in totals or len(totals) < MOST_NAMES else OTHERS] += count


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    out: Counter[str] = Counter()
    for each in counts:
        add_names(out, each)
    return dict(out)


def spans_problem(spans: Sequence[SpanReport]) -> str | None:
    """Return why the spans do not add up, or ``None``."""
    for s in spans:
        c = s.counts
        if min(c.to_dict().values()) < 0:
            return f"{s.span} has a negative count ({c})"
        if c.total != len(s.span):
            return f"{s.span} spans {len(s.span)} offsets, its report accounts for {c.total} ({c})"
    if sum(len(s.span) for s in spans) != len(Coverage.of((s.span.partition, s.span.range) for s in spans)):
        return "its spans overlap each other"
    return None


def report_problem(report: SliceReport, planned: Collection[SourcePartition]) -> str | None:
    """Return what in a report is impossible, or ``None``.

    :param planned: partitions known when its cycle was planned; empty if unknown
    """
    strange = next((s.span for s in report.spans if planned and s.span.partition not in planned), None)
    if strange is not None:
        return f"{strange} is of no partition that its cycle was planned for"
    if len({t.table for t in report.tables}) < len(report.tables):
        return "it tells of a table twice"
    return None if report.blocked or report.failed else spans_problem(report.spans)


def rows_problem(files: Sequence[int], reported: int) -> str | None:
    """Return how the files' record counts differ from the reported rows, or ``None``."""
    rows = sum(files)
    return None if rows == reported else f"its files hold {rows} rows, its report says {reported}"


def counts_by_partition(reports: Iterable[SpanReport]) -> dict[SourcePartition, Counts]:
    parts: dict[SourcePartition, Counts] = {}
    for r in reports:
        parts[r.span.partition] = parts.get(r.span.partition, Counts()) + r.counts
    return parts


def total_of(counts: Iterable[Counts]) -> Counts:
    return sum(counts, Counts())
