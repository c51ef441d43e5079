# SPDX-License-Identifier: Apache-2.0
"""Go back over landed offsets and delete their rows: `lakecommit reset offsets --delete` and `reset hard`.

Contract: the landing's rows from the given offsets on are removed from each of its tables and their ledgers, in one
snapshot per table (:mod:`~airflow_provider_lakecommit.operations.backfill.range_replacement`); the next run of the live
stream reads them again. Records that the source no longer has cannot be read again: their rows are deleted, and given
up. `reset hard` removes all rows of the landing, which then begins where its declaration says.

Before the first row is removed, the tables are leveled (:mod:`~airflow_provider_lakecommit.operations.backfill.level`)
and all of them are checked: a refused operation has deleted nothing.

After an approval, rows that are landed between preview and action are deleted too, because they come after the new
start and are read again. Refused is everything that was not previewed: rows before those ranges, offsets that the
source has removed since, or another topic.

Failure story: after a kill, some tables are back and some are not; the same command or task continues, even if the
landing continues after offsets that the source has removed. Rows that the source no longer has are deleted only if the
preview showed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_lakecommit.core import (
    BACKFILL,
    LIVE,
    PAUSE,
    Coverage,
    Decision,
    LedgerSection,
    RangeSet,
    shares_of,
    unmarked,
)
from airflow_provider_lakecommit.cycle import BEYOND, LandingSession, RunIdentity, ledger_state
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import check_turn, require_ledger
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.operations.backfill.level import check_pending, level
from airflow_provider_lakecommit.operations.backfill.range_replacement import (
    ReplacePreview,
    check_rows,
    replace_preview,
)
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace as take_out
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import check_init, ledger_init
from airflow_provider_lakecommit.operations.decisions.operation import NothingToDoError, Proposal, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.requests import ResetHard, ResetOffsets
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, Way, offsets_of
from airflow_provider_lakecommit.operations.decisions.stated import parse_start, ranges_beyond, ranges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteBack:
    """What goes, table by table. ``removed`` of it the source has no more; ``before`` lies before the place where the
    live lane began, so that only a lane reads it again, or where it begins after a hard reset, which is ``start``.
    """

    tables: tuple[ReplacePreview, ...]
    removed: Coverage
    before: Coverage
    start: str = ""
    within: Coverage | None = None
    """The requested offsets; ``None``: all of the landing."""

    def lines(self) -> Iterator[str]:
        yield from (f"DELETES of {t}" for t in self.tables)
        yield from (
            f"  including rows of earlier readings of the topics: {t.replaced.past} ({len(t.replaced.past)} offsets)"
            for t in self.tables
            if t.replaced.past
        )
        yield from (f"  {t.missing} landed rows are no longer in {t.table}" for t in self.tables if t.missing)
        if not self.tables:
            yield "the tables have no rows of the landing: no row is deleted"
        if self.removed:
            yield f"  CANNOT be read again, the source has removed it: {self.removed} ({len(self.removed)} offsets)"
        if self.before:
            live = f"is read again by `{BACKFILL}` only, because the live stream began after it"
            yield f"  {'GIVES UP, because the landing starts over after it' if self.start else live}: {self.before}"
        if self.start:
            unread = "" if self.start == "earliest" else ", and gives up what it has not read until then"
            yield f"the landing starts over at {self.start}{unread}"

    def to_dict(self) -> dict[str, Any]:
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


def preview(session: LandingSession, request: ResetOffsets | ResetHard) -> DeleteBack:
    """Return the rows to delete, and what cannot be read again."""
    start = None if request.start is None else parse_start(request.start, "start:")
    return delete_preview(session, start, Way(only=request.only))


def propose(session: LandingSession, request: ResetOffsets | ResetHard) -> Proposal:
    found = preview(session, request)
    if not found.tables and request.start is not None:
        raise NothingToDoError(f"the tables have no rows of landing {session.landing.name}: no row is deleted")
    check_rows(found.tables, fewer=request.fewer)
    return {"from": request.start, **_values(found)}, [*found.lines()]


def confirm(session: LandingSession, request: ResetOffsets | ResetHard, agreed: Mapping[str, Any]) -> DeleteBack:
    """Return the effect if the agreed one has all of it."""
    if "topic_ids" not in agreed or agreed.get("from") != request.start:
        raise not_as_previewed(f"start={request.start!r}")
    found = preview(session, request)
    if more := list(_more(_values(found), agreed)):
        raise not_as_previewed("; ".join(more))
    # If an attempt was killed after deleting the rows, the landing's new start must still be set.
    known = {(p.topic, p.partition): p for p in session.source.watermarks().partitions}
    previewed = {known[p]: ranges for p, ranges in ranges_of(agreed["removed"]).items() if p in known}
    return replace(found, removed=found.removed | Coverage(previewed))


def apply(
    session: LandingSession, request: ResetOffsets | ResetHard, found: DeleteBack, decision: Decision
) -> dict[str, Any]:
    return delete_back(session, found, decision, fewer=request.fewer)


def _values(found: DeleteBack) -> dict[str, Any]:
    ids = {p.topic: p.topic_id for t in found.tables for p in t.replaced.ranges.parts}
    return {"topic_ids": ids, **found.to_dict()}


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> Iterator[str]:
    """Return what would be deleted or given up beyond the preview."""
    previewed_ids = agreed["topic_ids"]
    if any(previewed_ids.get(topic, its_id) != its_id for topic, its_id in now["topic_ids"].items()):
        yield "the topic was recreated"
    before = {t["table"]: ranges_of(t["ranges"]) for t in agreed["tables"]}
    for t in now["tables"]:
        for p, ranges in ranges_of(t["ranges"]).items():
            previewed = before.get(t["table"], {}).get(p, RangeSet())
            first = previewed.ranges[0].start if previewed else BEYOND
            if more := ranges - RangeSet.of((first, BEYOND)):
                yield f"{t['table']} deletes {p[0]}[{p[1]}] {more}"
    for what in ("removed", "before"):
        yield from (f"{what} {text}" for text in ranges_beyond(now[what], agreed[what]))


def delete_preview(session: LandingSession, start: Start | None, way: Way = PLAIN) -> DeleteBack:
    """Return what would be deleted; writes nothing.

    :param start: the first offset of each partition; ``None``: everything of the landing, as `reset hard` does
    :raises LedgerError: a ledger needs an operator
    :raises TableError: a table does not show which rows to remove
    :raises SourceError: the source has no such partition
    """
    source = session.source.watermarks()
    if start is None:
        return _found(session, source, None)
    offsets = offsets_of(session, source.partitions, start, way).offsets
    return _found(session, source, Coverage({p: RangeSet.of((o, BEYOND)) for p, o in offsets.items()}))


def _found(session: LandingSession, source: SourceState, within: Coverage | None) -> DeleteBack:
    found, live, copied = Coverage(), Coverage(), Coverage()
    for name in session.landing.tables:
        if (state := ledger_state(session, name)) is None:
            continue
        require_ledger(state, name)
        if name == session.landing.table:
            check_turn(state, session.landing.name, name)
        own = [s for s in state.sections if s.landing == session.landing.name]
        found |= Coverage.union(s.covered for s in own)
        live |= Coverage({p: RangeSet.of((o, BEYOND)) for s in own if s.lane == LIVE for p, o in s.starts.items()})
        copied |= _copied(own)
    if within is not None:
        found &= within
    hard, start = within is None, session.landing.window.start
    tables = replace_preview(session, found - copied if hard else found, hard=hard)
    past = Coverage.union(t.replaced.past for t in tables)
    removed = found - copied - Coverage({p: RangeSet.of((m.start, BEYOND)) for p, m in source.partitions.items()})
    return DeleteBack(
        tables=tables,
        removed=removed | past,
        before=Coverage() if hard and start == "earliest" else found - removed - (copied if hard else live),
        start=start if hard else "",
        within=within,
    )


def _copied(own: Sequence[LedgerSection]) -> Coverage:
    """Return what the live lane covers as landed from another cluster: its rows are those of a lane of that cluster."""
    live = next((s for s in own if s.lane == LIVE and s.sink is None), None)
    if live is None or not any(s.lane.startswith(f"{LIVE}@") for s in own):
        return Coverage()
    before = Coverage({p: RangeSet.of((0, start)) for p, start in live.starts.items()}) & live.covered
    return unmarked(shares_of(live.provenance, before), before)


def delete_back(
    session: LandingSession, found: DeleteBack, decision: Decision, *, fewer: bool = False
) -> dict[str, Any]:
    """Delete what the preview showed.

    :param fewer: accept that other writers have already deleted some of these rows
    :raises LakecommitError: as :func:`delete_preview`, and the reason that prevents the deletion
    """
    run = RunIdentity(deployment="person", dag_id="delete back", run_id=str(session.new_id()))
    level(session, run, "publishes reported slices before rows are deleted")
    now = _found(session, session.source.watermarks(), found.within)
    if more := (now.removed - found.removed) | (now.before - found.before):
        raise LedgerError(
            "LC7011",
            f"landing {session.landing.name}: this would now also delete {more}, which the next run does not read "
            "again. No row is deleted; run the command again to see the new preview",
        )
    found = replace(now, removed=found.removed | now.removed)
    coverage = Coverage.union(t.replaced.ranges for t in found.tables)
    if coverage:
        check_pending(session, coverage)
    begin = _beginning(session, found)
    if begin is not None:
        check_init(session, *begin)
    if coverage:
        after = f"; starts over at {found.start} after that" if found.start else ""
        decided = replace(decision, what=f"deletes the rows of {coverage}{after}")
        take_out(
            session,
            coverage,
            commit_id=session.new_id(),
            previews=found.tables,
            fewer=fewer,
            hard=bool(found.start),
            decision=decided,
        )
        session.log(f"deleted the rows of {coverage}")
    if begin is not None:
        agreed = init_preview(session, *begin)
        late = _found(session, session.source.watermarks(), None).tables if found.start else ()
        if landed := Coverage.union(t.replaced.ranges for t in late):
            raise LedgerError(
                "LC7057",
                f"landing {session.landing.name}: another run landed {landed} after the rows were deleted. The landing "
                f"does not start over, which would land that twice. Pause it with `{PAUSE} SPEC`, then run this "
                "command again",
            )
        ledger_init(session, *begin, agreed=agreed, decision=decision)
    return {"deleted": coverage.to_dict(), "rows": {t.table: t.replaced.rows for t in found.tables}}


def _beginning(session: LandingSession, found: DeleteBack) -> tuple[Start, Way] | None:
    """Return where the ledgers begin once the rows are deleted; None if that is where they were deleted from."""
    if found.start:
        return found.start, Way(again=True)
    if not found.removed:
        return None
    marks = session.source.watermarks().partitions
    return {(p.topic, p.partition): marks[p].start for p in found.removed.parts if p in marks}, PLAIN
