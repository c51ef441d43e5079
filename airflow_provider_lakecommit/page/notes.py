# SPDX-License-Identifier: Apache-2.0
"""Notes on a landing beyond its cycles: decisions of users, rejects with reasons, and rejects without a snapshot.

Frozen and bounded: the newest :data:`MOST` decisions and kinds of rejects, and :data:`MOST_UNCOMMITTED` reports. They
begin where the reading of the log began; ``lakecommit history`` reads older decisions from the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from airflow_provider_lakecommit.core import Decision, SliceReport, SliceReported, Span, TablePublished

MOST = 20
MOST_UNCOMMITTED = 2000


class ObservedReject(NamedTuple):
    """Rejected records of one kind, with ranges and reason of the newest slice that had some."""

    kind: str
    records: int
    since: float
    at: float
    ranges: tuple[str, ...]
    reason: str


class Uncommitted(NamedTuple):
    """A report with rejects, until a commit of its dead-letter table covers it or another report replaces it.

    ``table`` is its last one with files, as the dead-letter table is the last of a landing.
    """

    table: str
    spans: tuple[Span, ...]
    rejected: int
    rejects: Mapping[str, int]


class LandingNotes(NamedTuple):
    """Oldest first."""

    decisions: tuple[Decision, ...] = ()
    rejects: tuple[ObservedReject, ...] = ()
    uncommitted: tuple[Uncommitted, ...] = ()


def after_decisions(known: LandingNotes, decided: Iterable[Decision]) -> LandingNotes:
    """Return the notes after an event with decisions of users; repeated decisions are ignored."""
    new = tuple(d for d in decided if d not in known.decisions)
    return known._replace(decisions=(*known.decisions, *new)[-MOST:]) if new else known


def after_rejects(known: LandingNotes, entry: SliceReported, at: float) -> LandingNotes:
    """Return the notes after a report that counts; its records count once they are committed."""
    report = entry.report
    if not report.rejects:
        return known
    known_rejects = {r.kind: r for r in known.rejects}
    ranges, most = tuple(str(s.span) for s in report.spans[:3]), max(report.rejects.values())
    for kind, records in report.rejects.items():
        before = known_rejects.pop(kind, None)
        known_rejects[kind] = ObservedReject(
            kind=kind,
            records=before.records if before else 0,
            since=before.since if before else at,
            at=at,
            ranges=ranges,
            # The report has the reason of most of its rejects.
            reason=report.reject_reason if records == most else before.reason if before else "",
        )
    return known._replace(rejects=tuple(known_rejects.values())[-MOST:])


def after_report(known: LandingNotes, report: SliceReport) -> LandingNotes:
    spans = tuple(s.span for s in report.spans)

    def is_replaced(one: Uncommitted) -> bool:
        return any(a.partition == b.partition and a.range.overlaps(b.range) for a in one.spans for b in spans)

    left = [one for one in known.uncommitted if not is_replaced(one)]
    rejected = sum(s.counts.rejected for s in report.spans)
    table = next((t.table for t in reversed(report.tables) if t.files), "")
    if rejected and table:
        left.append(Uncommitted(table=table, spans=spans, rejected=rejected, rejects=report.rejects))
    return known._replace(uncommitted=tuple(left[-MOST_UNCOMMITTED:]))


def after_commit(known: LandingNotes, entry: TablePublished) -> tuple[LandingNotes, int]:
    left, rejected, kinds = [], 0, Counter[str]()
    for one in known.uncommitted:
        if one.table == entry.table and all(entry.coverage[s.partition].covers(s.range) for s in one.spans):
            rejected += one.rejected
            kinds.update(one.rejects)
        else:
            left.append(one)
    rejects = tuple(r._replace(records=r.records + kinds[r.kind]) for r in known.rejects) if kinds else known.rejects
    return known._replace(uncommitted=tuple(left), rejects=rejects), rejected
