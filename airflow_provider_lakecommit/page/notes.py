# SPDX-License-Identifier: Apache-2.0
"""What is worth knowing of a landing beyond its cycles: its specs, what persons decided, and what was rejected and why.

Contract: pure and frozen, and bounded: the newest :data:`MOST` specs and decisions, and as many kinds of rejects, those
that were seen last. A kind is one of the dead-letter table, with the column that it is about, as reports tell it.

Failure story: it begins where the reading of the log began. Older decisions, and what changed between two specs, is
what ``lakecommit history`` reads from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.log import CycleOpened, SliceReported
from airflow_provider_lakecommit.core.model import Cycle

__all__ = ["LandingNotes", "RejectSeen", "SpecSeen", "after_decisions", "after_rejects", "after_start"]

MOST = 20


class SpecSeen(NamedTuple):
    """A version of the spec, and the first cycle that was planned by it. ``at`` in seconds of the epoch."""

    version: str
    at: float
    dag: str
    run: str


class RejectSeen(NamedTuple):
    """Rejected records of one kind: how many in all, when first and last, and the newest slice that had some: where
    its ranges are; and in what words it is told, by the newest slice of which it was the kind of most rejects.
    """

    kind: str
    records: int
    since: float
    at: float
    ranges: tuple[str, ...]
    reason: str


class LandingNotes(NamedTuple):
    """The oldest first."""

    specs: tuple[SpecSeen, ...] = ()
    decisions: tuple[Decision, ...] = ()
    rejects: tuple[RejectSeen, ...] = ()


def after_start(known: LandingNotes, entry: CycleOpened, at: float) -> LandingNotes:
    """After a START_COMMIT, whose plan names the spec."""
    version, cycle = entry.plan.spec_version, entry.cycle
    known = after_decisions(known, entry.directives.decided)
    if not version or (known.specs and known.specs[-1].version == version):
        return known
    return known._replace(specs=(*known.specs, _spec(version, at, cycle))[-MOST:])


def _spec(version: str, at: float, cycle: Cycle) -> SpecSeen:
    return SpecSeen(version=version, at=at, dag=cycle.dag, run=cycle.run)


def after_decisions(known: LandingNotes, decided: Iterable[Decision]) -> LandingNotes:
    """After an event that tells what a person decided; who says it again says nothing new."""
    new = tuple(d for d in decided if d not in known.decisions)
    return known._replace(decisions=(*known.decisions, *new)[-MOST:]) if new else known


def after_rejects(known: LandingNotes, entry: SliceReported, at: float) -> LandingNotes:
    """After a report that counts."""
    report = entry.report
    if not report.rejects:
        return known
    seen = {r.kind: r for r in known.rejects}
    ranges, most = tuple(str(s.span) for s in report.spans[:3]), max(report.rejects.values())
    for kind, records in report.rejects.items():
        before = seen.pop(kind, None)
        seen[kind] = RejectSeen(
            kind=kind,
            records=records + (before.records if before else 0),
            since=before.since if before else at,
            at=at,
            ranges=ranges,
            # The report has the words of most of its rejects.
            reason=report.reject_reason if records == most else before.reason if before else "",
        )
    return known._replace(rejects=tuple(seen.values())[-MOST:])
