# SPDX-License-Identifier: Apache-2.0
"""Going back over what is landed, with its rows: `lakecommit reset offsets --delete` and `reset hard`.

Contract: the rows of the landing from the stated offsets on are taken out of each of its tables, and of their ledgers,
in one snapshot per table (:mod:`~airflow_provider_lakecommit.replace.replace`); the live lane reads them again with its
next run. What the source has removed of them cannot be read again: it is deleted, and given up. `reset hard` takes out
all there is of the landing, and has it begin where its declaration says.

Failure story: killed in between, some tables are back and some are not, and the same words go on. Nothing is taken out
that was not shown: where the ledger was made anew since it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_lakecommit.committer.ledger import require_ledger
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.prepare.tables import ledger_state
from airflow_provider_lakecommit.repair.init_preview import init_preview
from airflow_provider_lakecommit.repair.ledger_init import ledger_init
from airflow_provider_lakecommit.repair.word import PLAIN, Start, Way, offsets_of
from airflow_provider_lakecommit.replace.replace import ReplacePreview, replace_preview
from airflow_provider_lakecommit.replace.replace import replace as take_out
from airflow_provider_lakecommit.session.landing_session import BEYOND, LandingSession

__all__ = ["DeleteBack", "delete_back", "delete_preview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBack:
    """What goes, table by table. ``removed`` of it the source has no more; ``before`` lies before the place where the
    live lane began, so that only a lane reads it again. ``start`` is where the landing begins after a hard reset.
    """

    tables: tuple[ReplacePreview, ...]
    removed: Coverage
    before: Coverage
    start: str = ""

    @property
    def deletes(self) -> bool:
        return bool(self.tables)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from (f"DELETES of {t}" for t in self.tables)
        yield from (
            f"  {t.missing} rows that were landed are not there, or do not say which records they are of: {t.table}"
            for t in self.tables
            if t.missing
        )
        if not self.tables:
            yield "nothing of the landing is landed there: no row is deleted"
        if self.removed:
            yield f"  CANNOT be read again, as the source has removed it: {self.removed} ({len(self.removed)} offsets)"
        if self.before:
            yield f"  is read again by `lakecommit backfill` only, as the live lane began behind it: {self.before}"
        if self.start:
            yield f"the landing begins anew at {self.start}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "tables": [
                {
                    "table": t.table,
                    "rows": t.replaced.rows,
                    "missing": t.missing,
                    "ranges": t.replaced.ranges.to_dict(),
                    "dropped_files": t.replaced.dropped_files,
                    "rewritten_files": t.replaced.rewritten_files,
                    "rewritten_bytes": t.replaced.rewritten_bytes,
                }
                for t in self.tables
            ],
            "removed": self.removed.to_dict(),
            "before": self.before.to_dict(),
            "start": self.start or None,
        }


def delete_preview(session: LandingSession, start: Start | None, way: Way = PLAIN) -> DeleteBack:
    """What goes; nothing is written.

    :param start: from where on, for each partition; ``None``: all there is of the landing, as `reset hard` does
    :raises LedgerError: a ledger needs a person
    :raises TableError: a table does not say which rows to take
    :raises SourceError: the source has no such partition
    """
    source = session.source.watermarks()
    offsets = None if start is None else offsets_of(session, source.partitions, start, way).offsets
    found, live = Coverage(), Coverage()
    for name in session.landing.tables:
        if (state := ledger_state(session, name)) is None:
            continue
        require_ledger(state, name)
        own = [s for s in state.sections if s.landing == session.landing.name]
        found |= Coverage.union(s.covered for s in own)
        live |= Coverage({p: RangeSet.of((o, BEYOND)) for s in own if s.lane == LIVE for p, o in s.starts.items()})
    if offsets is not None:
        found &= Coverage({p: RangeSet.of((o, BEYOND)) for p, o in offsets.items()})
    removed = found & Coverage({p: RangeSet.of((0, m.start)) for p, m in source.partitions.items()})
    hard = start is None
    return DeleteBack(
        tables=replace_preview(session, found) if found else (),
        removed=removed,
        before=Coverage() if hard else found - removed - live,
        start=session.landing.start if hard else "",
    )


def delete_back(
    session: LandingSession, found: DeleteBack, decision: Decision, *, fewer: bool = False
) -> dict[str, Any]:
    """Do what was shown.

    :param fewer: where a table has fewer of these rows than were landed, others deleted them
    :raises LakecommitError: as :func:`delete_preview`, and what keeps it from being done
    """
    coverage = Coverage.union(t.replaced.ranges for t in found.tables)
    if coverage:
        told = replace(decision, what=f"deletes the rows of {coverage}")
        take_out(session, coverage, commit_id=session.new_id(), previews=found.tables, fewer=fewer, decision=told)
        session.log(f"the rows of {coverage} are deleted")
    if found.start:
        _begin(session, found.start, decision)
    elif found.removed:
        marks = session.source.watermarks().partitions
        _begin(session, {(p.topic, p.partition): marks[p].start for p in found.removed.parts}, decision)
    return {"deleted": coverage.to_dict(), "rows": {t.table: t.replaced.rows for t in found.tables}}


def _begin(session: LandingSession, start: Start, decision: Decision) -> None:
    ledger_init(session, start, agreed=init_preview(session, start), decision=decision)
