# SPDX-License-Identifier: Apache-2.0
"""Notes on a landing beyond its cycles: decisions of users, and rejected records with reasons.

Contract: pure and frozen, and bounded: the newest :data:`MOST` decisions, and as many kinds of rejects, those
that were seen last. A kind is one of the dead-letter table, with its column, as in reports.

Failure story: it starts where the reading of the log started. ``lakecommit history`` reads older decisions, and
versions of the spec, from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from airflow_provider_lakecommit.core import Decision, SliceReported

MOST = 20


class RejectSeen(NamedTuple):
    """Rejected records of one kind: how many were committed, when the first and last were reported, the ranges of the
    newest slice that had some, and the reason in the newest slice with mostly this kind.
    """

    kind: str
    records: int
    since: float
    at: float
    ranges: tuple[str, ...]
    reason: str


class LandingNotes(NamedTuple):
    """Oldest first."""

    decisions: tuple[Decision, ...] = ()
    rejects: tuple[RejectSeen, ...] = ()


def after_decisions(known: LandingNotes, decided: Iterable[Decision]) -> LandingNotes:
    """Return the notes after an event with decisions of users; repeated decisions are ignored."""
    new = tuple(d for d in decided if d not in known.decisions)
    return known._replace(decisions=(*known.decisions, *new)[-MOST:]) if new else known


def after_rejects(known: LandingNotes, entry: SliceReported, at: float) -> LandingNotes:
    """Return the notes after a report that counts; its records count once they are committed."""
    report = entry.report
    if not report.rejects:
        return known
    seen = {r.kind: r for r in known.rejects}
    ranges, most = tuple(str(s.span) for s in report.spans[:3]), max(report.rejects.values())
    for kind, records in report.rejects.items():
        before = seen.pop(kind, None)
        seen[kind] = RejectSeen(
            kind=kind,
            records=before.records if before else 0,
            since=before.since if before else at,
            at=at,
            ranges=ranges,
            # The report has the reason of most of its rejects.
            reason=report.reject_reason if records == most else before.reason if before else "",
        )
    return known._replace(rejects=tuple(seen.values())[-MOST:])


def after_committed(known: LandingNotes, kinds: Mapping[str, int]) -> LandingNotes:
    """Return the notes after a commit with the given number of rejected records of each kind."""
    if not kinds:
        return known
    return known._replace(rejects=tuple(r._replace(records=r.records + kinds.get(r.kind, 0)) for r in known.rejects))
