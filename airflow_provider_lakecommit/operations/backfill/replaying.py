# SPDX-License-Identifier: Apache-2.0
"""Complete a backfill that replaces: its reported slices take the place of the tables' rows of its range.

Contract: :func:`replace_lane` does nothing before every table of the landing has all of the range reported. Then each
table gets one snapshot: the old rows of the range are removed, the new ones added, with those of the range that were
never landed. The data table is first, the dead letters follow; a reader of one table sees its old rows or its new ones.
A reader of both may see, between the two, a record in both that is good by now.

Before the range is read, every other table takes what it has passed of it without a row: otherwise the live stream
would read that again, for this table alone and by other rules.

Failure story: after a kill anywhere, the same command does the rest; the backfill's next cycle announces an unannounced
snapshot. A slice that cannot be published ends the epoch of its table: the range is read again.

An attempt after the one that did it finds what its run has replaced, although the backfill is closed: it reads the
control log and the tables, and writes nothing. A run has replaced its range when a cycle that
announces it (:func:`~airflow_provider_lakecommit.operations.backfill.replaying.replace_lane`) is complete: then that
run, or its successor, closed the backfill. The snapshots are read from the tables.

Failure story: without the log's record of it, the range is replayed once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as changed
from uuid import uuid5

from airflow_provider_lakecommit.core import BACKFILL, AcceptedSlice, Coverage, Decision, RangeSet
from airflow_provider_lakecommit.cycle import (
    Closed,
    EarlierCycles,
    LandingSession,
    PreparedTable,
    PublishedSnapshot,
    RunIdentity,
    close_cycle,
    cycles_of,
    ledger_state,
    open_cycle,
    snapshot_of,
    staged_slice,
)
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg import (
    LogPoint,
    Replaced,
    SnapshotKind,
    StagedSlice,
    change_section,
    landing_snapshots,
)
from airflow_provider_lakecommit.operations.backfill.closing import lane_tables
from airflow_provider_lakecommit.operations.backfill.level import take_passed
from airflow_provider_lakecommit.operations.backfill.opening import lane_session
from airflow_provider_lakecommit.operations.backfill.preview import LanePreview
from airflow_provider_lakecommit.operations.backfill.range_replacement import (
    ReplacePreview,
    check_rows,
    preview_of,
    replace_all,
    replace_preview,
)


def rows_to_replace(session: LandingSession, found: LanePreview, *, fewer: bool = False) -> tuple[ReplacePreview, ...]:
    """Return what is removed from each table once the backfill is complete, in its current state.

    :param fewer: accept that a table has fewer rows of the range than were landed
    :raises LedgerError: it has fewer, or does not show which rows to remove
    :raises TableError: a table has no columns that identify the rows
    :raises CatalogError: the catalog or the storage cannot be reached
    """
    previews = replace_preview(session, found.missing)
    check_rows(previews, fewer=fewer)
    return previews


@contextmanager
def replaying_session(
    session: LandingSession, found: LanePreview, run: RunIdentity, decision: Decision | None = None
) -> Iterator[LandingSession]:
    """Return the session of a backfill that replaces, and open it if necessary.

    :param session: of the landing
    :param run: owner of the cycle that refreshes ledgers, if necessary
    :param decision: the user who opens it, for the tables' histories
    :raises LedgerError: the ledger of a table needs an operator
    :raises LakecommitError: the reason that prevents a refresh
    """
    with lane_session(session, found, decision) as own:
        # What a table then lacks, for example after a rollback of it alone, the backfill lands there with the rest.
        if _is_behind(session, found):
            take_passed(session, run, "a backfill is to replace ranges that tables have passed and not taken yet")
        yield own


def replace_lane(session: LandingSession, run: RunIdentity) -> Closed | None:
    """Put the reported slices in the place of the tables' rows, and announce it; ``None`` if some are not reported.

    :param session: of the backfill
    :param run: owner of the cycle that announces it
    :raises LedgerError: a ledger has changed meanwhile: try again
    :raises LakecommitError: a table cannot be read or written
    """
    prepared = lane_tables(session)
    if not any(t.ledger.section.replaces for t in prepared.tables):
        raise LedgerError(
            "LC7231",
            f"backfill {session.lane} no longer replaces rows: its ledger was written since it was opened, without "
            f"what it replaces. Run `{BACKFILL} SPEC --close {session.lane}`, then start it again",
        )
    folded = session.read_state(prepared.ledgers)
    accepted = folded.state.accepted
    reported = {t.name: Coverage.union(a.coverage for a in accepted[t.name]) for t in prepared.tables}
    if unreported := Coverage.union(_lacking(t) - reported[t.name] for t in prepared.tables):
        session.log(f"backfill {session.lane} stays open, {unreported} is not read yet: nothing was replaced")
        return None
    end = changed(folded.begin, offset=folded.end)
    waiting = [t for t in prepared.tables if _lacking(t)]
    # Check all before the first one is changed: a slice that is refused then is read again for all.
    staged = [_staged(session, t, accepted[t.name]) for t in waiting]
    if None in staged:
        return None
    _replace(session, waiting, [slices or () for slices in staged], end)
    opened = open_cycle(session, run)
    return close_cycle(session, run, opened.ticket)


def _replace(
    session: LandingSession, tables: Sequence[PreparedTable], staged: Sequence[Sequence[StagedSlice]], end: LogPoint
) -> None:
    """Replace the tables' rows of the range, except where another process has done it since."""
    found = {t.name: preview_of(session, t.name, _lacking(t)) or _none_of(t) for t in tables}
    requests = [
        # One id for all processes of the backfill, so that their work is done once.
        p.request(
            session,
            uuid5(t.ledger.section.epoch, "replace"),
            slices=tuple(slices),
            lane=session.lane,
            control_end=end,
            extra={"files": str(sum(len(s.files) for s in slices))},
        )
        for t, slices in zip(tables, staged, strict=True)
        if t.ledger.section.key not in (p := found[t.name]).epochs
    ]
    for name, done in replace_all(session, requests).items():
        if done.made is not None:
            replaced = done.made.replaced
            rows = sum(s.rows for r in requests if r.table == name for s in r.slices)
            session.log(
                f"{name}: replaced {replaced.rows} rows of {replaced.ranges} by {rows} rows in snapshot "
                f"{done.snapshot_id}"
            )


def _none_of(t: PreparedTable) -> ReplacePreview:
    """Return the preview of a table without a row of the range: nothing is removed from it."""
    return ReplacePreview(table=t.name, table_uuid=t.ledger.uuid, epochs={}, replaced=Replaced(ranges=Coverage()))


def _lacking(t: PreparedTable) -> Coverage:
    """Return what the backfill has not landed again in a table: all of its range, none, or what was removed since."""
    section = t.ledger.section
    return section.bounds - section.covered if section.replaces else Coverage()


def _staged(
    session: LandingSession, t: PreparedTable, accepted: Sequence[AcceptedSlice]
) -> tuple[StagedSlice, ...] | None:
    """Return the slices to add to a table; ``None``: some of them are refused, and read again."""
    try:
        return tuple(staged_slice(session, a, t.name, t.table) for a in accepted)
    except TableError as e:
        old, new = t.ledger.section.epoch, session.new_id()
        session.log(f"WARNING: {t.name}: {e}; backfill {session.lane} voided its slices, reads them again (new epoch)")
        change_section(
            session.tables,
            t.name,
            session.landing.name,
            session.lane,
            SnapshotKind.EPOCH,
            lambda s: changed(s, epoch=new) if s.epoch == old else None,
            branch=session.landing.branch,
        )
        return None


def _is_behind(session: LandingSession, found: LanePreview) -> bool:
    """Return True if a table lacks some of a range that the data table has, after its own beginning; what the backfill
    landed does not count.
    """
    data = ledger_state(session, session.landing.table)
    landed = Coverage() if data is None else data.covered(exclude=(session.landing.name, found.name)) & found.missing
    for name in session.landing.tables[1:]:
        state = ledger_state(session, name)
        live = None if state is None else state.section(session.landing.name, session.lane)
        if state is None or live is None:
            continue
        lacks = landed - state.covered()
        if any(r - RangeSet.of((0, live.starts.get(p, 0))) for p, r in lacks.parts.items()):
            return True
    return False


def replaced_before(lane: LandingSession, read: RunIdentity, ends: Iterable[RunIdentity]) -> Closed | None:
    """Return what was replaced, as the earlier attempt would have returned it; ``None``: nothing, as far as known.

    :param lane: a session that reads the backfill
    :param read: cycles that may have read the range
    :param ends: cycles that may have announced the replacement
    :raises LakecommitError: the log or a table cannot be read
    """
    announced = (found for run in ends if (found := cycles_of(lane, run)) is not None)
    end = next((found for found in announced if found.newest.closed_at is not None), None)
    begin = None if end is None else cycles_of(lane, read)
    if end is None or begin is None:
        return None
    return end.to_closed(lane.landing.table, _replacements(lane, begin, end))


def _replacements(lane: LandingSession, begin: EarlierCycles, end: EarlierCycles) -> Iterator[PublishedSnapshot]:
    """Return the backfill's newest replacement in each table; the log distinguishes a table that got the name since
    from the one that had it before the run.
    """
    name = lane.landing.name
    first, last = begin.cycles[0].offset, end.newest.offset
    for table in lane.landing.tables:
        metadata = lane.tables.load(table).metadata
        ours = landing_snapshots(metadata, lane.landing.branch, landing=name, lane=lane.lane)
        newest = None
        for record in ours:
            at = None if record.kind is not SnapshotKind.REPLACE or record.control_end is None else record.control_end
            if at is None or record.commit_id is None or not first <= at.offset <= last:
                continue
            newest = newest or record.commit_id
            if record.commit_id == newest:
                yield snapshot_of(record, table, newest)
