# SPDX-License-Identifier: Apache-2.0
"""What is known of a landing's tables, by their ledgers and the control topic, and the first ledger entry of a stream.

Contract: reads only. The control topic names the tables of the landing's plans and reports: missing or unreadable ones,
and former ones, which its spec no longer names. The leading table and the dead-letter table are indispensable. The
newest plan has the columns of any other table of rows (:func:`newest_target`): they decide how records are decoded and
evaluated, so that no disposition changes, and nothing is written for the table. It then lacks the range like a table
whose commit failed; once it is readable, the range is planned for it alone. :func:`check_former` refuses a landing
whose data table lacks its ledger while a former table has one: it would land its topics a second time. A dropped table,
or one that never had a ledger, refuses nothing.

A topic that the landing has never landed begins at ``start`` of the landing. With ``latest``, a topic that the
landing's set has landed before, in another table, begins where the set began it, or where the source begins now: so
moving a topic to another table omits no record.

Failure story: a table in no plan of the log is needed to plan at all: its error is the landing's. The commit of each
run tries the table again, and the run fails as long as that fails. A former table is unknown once retention has removed
its control records. The set's other landings are found in the newest records of the control topic, and their offsets in
their tables' ledgers: one with a missing table or only older records is unknown.

A landing with a ledger entry, or with a record among the newest of the control topic, is known; for another one,
:func:`unknown_text` names landings of a similar name, and those that landed the same topics into the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import (
    BACKFILL,
    LIVE,
    RESET_ASSERT,
    RESET_OFFSETS,
    Coverage,
    CycleOpened,
    Entry,
    LedgerSection,
    RangeSet,
    SliceReported,
    SourcePartition,
    TablePublished,
    TableTarget,
    Watermark,
    set_of,
)
from airflow_provider_lakecommit.cycle.plan.lane_sections import initial_position, new_section, positions_at
from airflow_provider_lakecommit.cycle.plan.reports import endangered, known_section
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg import LedgerState, read_ledger
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.landing import nearest

ALIKE = 0.6
"""The least similarity, from 0 to 1, of a name that counts as misspelled."""


def all_entries(
    session: LandingSession, since: datetime | None = None, lane: str | None = None
) -> Iterator[tuple[int, tuple[Entry, ...]]]:
    """Yield the log's entries of a stream by partition: the landing's partition differed if partitions were added.

    :param since: skip records that are older by their own times
    :param lane: by default the session's
    :raises ControlTopicError: the control topic cannot be read
    """
    for partition in range(session.control.describe().partitions):
        start = 0 if since is None else session.control.first_since(partition, since)
        records = () if start is None else session.control.read(partition, start).records
        yield partition, read_entries(records, session.landing.name, lane or session.lane)


def ledger_state(session: LandingSession, name: str) -> LedgerState | None:
    """Return the ledger of a table; ``None`` if there is no such table.

    :raises CatalogError: the catalog is unavailable
    """
    table = session.tables.find(name)
    return None if table is None else read_ledger(table.metadata, session.landing.branch)


def ledger_states(session: LandingSession) -> dict[str, LedgerState | None]:
    """Return the ledgers of the landing's tables, as :func:`ledger_state` does."""
    return {name: ledger_state(session, name) for name in session.landing.tables}


def first_section(
    session: LandingSession, source: SourceState, data: LedgerSection | None, known: Iterable[LedgerSection]
) -> LedgerSection:
    """Return the first entry of a stream: at ``start`` for the data table, at the data table's end for a later one.

    :param known: all entries of the table
    """
    if data is None:
        starts = joining_offsets(session, source.partitions)
    else:
        behind = left_by_former(session, data)
        starts = {p: _first(behind[p], data.end(p)) for p in data.starts.keys() | source.partitions.keys()}
    control = initial_position(session) if data is None else data.control
    positions = positions_at(starts, source.partitions)
    return new_section(session, source, starts, Coverage(), control, positions=positions, known=known)


def _first(ranges: RangeSet, end: int) -> int:
    return min(end, ranges.ranges[0].start) if ranges else end


def joining_offsets(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark]
) -> dict[SourcePartition, int]:
    """Return the first offset of each of these partitions.

    :raises CatalogError: the catalog is unavailable
    :raises ControlTopicError: the control topic cannot be read
    """
    landing = session.landing
    firsts = first_offsets(partitions, landing.window.start)
    name = set_of(landing.name, landing.table)
    if landing.window.start == "earliest" or not partitions or not name:
        return firsts
    begun = _begun_by(session, f"{name}.")
    return {p: min(at, max(begun.get(p, at), partitions[p].start)) for p, at in firsts.items()}


def first_offsets(partitions: Mapping[SourcePartition, Watermark], start: str) -> dict[SourcePartition, int]:
    """Return the offset of ``earliest`` or ``latest`` in each partition."""
    return {p: w.start if start == "earliest" else w.stable for p, w in partitions.items()}


def _begun_by(session: LandingSession, prefix: str) -> dict[SourcePartition, int]:
    """Return where the other landings of a set began each partition."""
    out: dict[SourcePartition, int] = {}
    for name in session.control.recent(prefix):
        if name != session.landing.name and "." in name.removeprefix(prefix):
            for p, start in _starts_of(session, name, name.removeprefix(prefix)):
                out[p] = min(start, out.get(p, start))
    return out


def _starts_of(session: LandingSession, landing: str, table: str) -> Iterator[tuple[SourcePartition, int]]:
    found = session.tables.find(table)
    if found is None:
        return
    try:
        state = read_ledger(found.metadata, session.landing.branch)
    except TableError as e:
        session.log(f"WARNING: the first offsets of landing {landing} are unknown: {e}")
        return
    for section in state.known_sections:
        if section.landing == landing:
            yield from section.starts.items()


def check_lane_open(session: LandingSession, name: str) -> None:
    """:raises LedgerError: a backfill has no entry where it should, and this call does not make one"""
    if session.lane != LIVE:
        raise LedgerError(
            "LC6011",
            f"{name}: backfill {session.lane} of landing {session.landing.name} is not open, or a rollback of the "
            f"table closed it: list open backfills with `{BACKFILL} SPEC --list`, or use `{BACKFILL} SPEC --close "
            f"{session.lane}` if it is still open",
        )


def check_new(session: LandingSession, leading: LedgerSection | None, name: str, table: Table | None = None) -> None:
    """Check that a table may get its first ledger entry of this stream.

    :raises LedgerError: the log has slices for it
    :raises TableError: the landing lands into another table, which its spec does not name
    """
    check_first_run(session, name, table)
    if leading is None:
        check_former(session, name)


def check_first_run(session: LandingSession, name: str, table: Table | None = None) -> None:
    """Check that a missing table, or one without a ledger, is a first run: the log has no slices for it.

    :raises LedgerError: the log has some
    """
    uuids = remembered(session, name)
    if table is not None and table.metadata.table_uuid in uuids:
        raise LedgerError(
            "LC6014",
            f"branch {session.landing.branch} of {name} has no snapshot of landing {session.landing.name}, but the "
            "control topic remembers slices for this very table: it was rolled back to before the first one, or "
            "replaced, or the landing used another branch, and its rows are missing. "
            f"`{RESET_OFFSETS} SPEC --from earliest` reads again all of them "
            f"that the source has; if the rows were restored, state their offsets with `{RESET_ASSERT} SPEC --at "
            "TOPIC:PARTITION=OFFSET,…`",
        )
    if uuids and table is None and (where := session.tables.elsewhere(name)):
        raise LedgerError("LC6051", f"there is no table {name} in {session.tables.called}, but {where}")
    if uuids:
        raise LedgerError(
            "LC6015",
            f"{name} of {session.tables.called} has no ledger, but the control topic remembers slices of landing "
            f"{session.landing.name} for table {', '.join(sorted(map(str, uuids)))}: it was dropped, renamed or "
            "recreated, or this is another catalog. Restore the table, or correct the catalog connection; else assert "
            f"that it holds the landed rows (`{RESET_ASSERT} SPEC --from-log`), or set where it "
            f"continues (`{RESET_OFFSETS} SPEC --from OFFSETS`); LandingOperationOperator does both",
        )


def remembered(session: LandingSession, name: str) -> set[UUID]:
    """Return the tables of this name for which the log has slices with rows, of this stream or the live one. A table
    that never had a row can lose none, and counts as new.
    """
    entries = (e for lane in {session.lane, LIVE} for _, some in all_entries(session, lane=lane) for e in some)
    reports = (e.report for e in entries if isinstance(e, SliceReported))
    return {t.uuid for report in reports if (t := report.table(name)) is not None and t.rows}


def newest_target(session: LandingSession, name: str) -> TableTarget | None:
    """Return the newest plan's entry on a table that a window may be planned without; ``None`` if there is none."""
    if session.lane != LIVE or name not in session.landing.data_tables[1:]:
        return None
    opened = (e for _, some in all_entries(session) for e in some if isinstance(e, CycleOpened))
    known = [(e.at, t) for e in opened for t in e.plan.targets if t.table == name]
    return max(known, key=lambda one: one[0])[1] if known else None


def check_former(session: LandingSession, name: str) -> None:
    """Refuse a data table without a ledger of this landing, while a former table has one.

    :raises LedgerError: rows are reported for the former table that the source no longer has
    :raises TableError: the landing lands into the former table
    """
    landing, own = session.landing.name, {(session.landing.name, session.lane)}
    entries = [e for _, some in all_entries(session) for e in some]
    for former in sorted(_tables_of(entries) - set(session.landing.tables)):
        if (state := ledger_state(session, former)) is None:
            continue
        if lost := endangered(session, former, state, own):
            raise LedgerError(
                "LC6007",
                f"landing {landing} has reported slices for {former}, which its spec no longer names, and the source "
                f"no longer has them: {'; '.join(lost.values())}. {name} cannot get them: name {former} until "
                f"`lakecommit land SPEC` has published them, or give them up with `{RESET_OFFSETS} SPEC --from "
                f"earliest --give-up-reported` while {former} is named",
            )
        if known_section(session, state) is not None:
            raise TableError(
                "LC6008",
                f"landing {landing} already lands into {former}, so it cannot land into {name} under the same name: "
                f"it would land all of its topics again. Name {former} again, or give the landing of {name} a name "
                f"of its own. To continue in {name} instead of {former}: `{RESET_OFFSETS} SPEC --from latest` lands "
                "only new records, `--from earliest` lands everything that the source has",
            )


def _tables_of(entries: Iterable[Entry]) -> set[str]:
    """Return the tables that plans, reports and snapshots of a landing name."""
    found: set[str] = set()
    for e in entries:
        if isinstance(e, CycleOpened):
            found |= {t.table for t in e.plan.targets}
        elif isinstance(e, SliceReported):
            found |= {t.table for t in e.report.tables}
        elif isinstance(e, TablePublished):
            found.add(e.table)
    return found


def left_by_former(session: LandingSession, data: LedgerSection) -> Coverage:
    """Return ranges of the data table whose other records a former table should have and lacks: its replacement must
    take them.
    """
    log = session.control.read(data.control.partition, data.control.read_from)
    reported: dict[str, Coverage] = {}
    taken: dict[str, Coverage] = {}
    for e in read_entries(log.records, session.landing.name, session.lane):
        if isinstance(e, TablePublished):
            taken[e.table] = taken.get(e.table, Coverage()) | e.coverage
        elif isinstance(e, SliceReported):
            for t in e.report.tables:
                if t.table not in session.landing.tables and t.rows:
                    reported[t.table] = reported.get(t.table, Coverage()) | e.report.coverage
    left = Coverage()
    for name, coverage in reported.items():
        state = ledger_state(session, name)
        section = None if state is None else state.section(session.landing.name, session.lane)
        left |= coverage - (taken.get(name, Coverage()) if section is None else section.covered)
    left &= data.covered
    if left:
        session.log(
            f"{left} was reported for a table that the spec no longer names, and is missing there: it is read again"
        )
    return left


def unknown_text(session: LandingSession, states: Mapping[str, LedgerState | None]) -> str:
    """Return a message that this landing is unknown, with similar known landings; empty if it is known, or none is
    similar.

    :raises ControlTopicError: the control topic cannot be read
    """
    name = session.landing.name
    there = {s.landing for state in states.values() if state for s in (*state.sections, *state.remembered)}
    if name in there:
        return ""
    recent = session.control.recent() if session.control.exists() else {}
    if name in recent:
        return ""
    near = nearest(name, {*there, *recent}, alike=ALIKE)
    like = dict.fromkeys((*near, *(n for n in sorted(recent) if _lands_the_same(session, n))))
    return f"no table or control record has a landing {name}; similar names are {', '.join(like)}" if like else ""


def _lands_the_same(session: LandingSession, name: str) -> bool:
    """Return True if a plan of another landing has a topic and a table of this one."""
    topics, tables = {*session.landing.topic_names}, {*session.landing.tables}
    entries = read_entries(session.control.recent(name).get(name, ()), name, LIVE)
    plans = (e.plan for e in entries if isinstance(e, CycleOpened))
    return any(topics & {p.topic for p in plan.ends} and tables & {t.table for t in plan.targets} for plan in plans)
