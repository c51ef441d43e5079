# SPDX-License-Identifier: Apache-2.0
"""The dispositions of files that a landing's streams wrote for one table: the live stream, and each open backfill.

Contract: the mark in a file's name shows its stream. If the stream has a ledger entry, its log and its ledger decide
about the file. A stream without an entry is closed: nothing of it can be published any more, whatever its log has, and
a new one under its name has another epoch. So its files are garbage, if no stream with that mark is in the ledger when
they are removed: a present file is then of the closed stream. Marks are short: if two present streams have the same
mark, the files of both stay.

Failure story: a stream whose log is not the one in its ledger, or was cut, is an error of the table, and so is a ledger
that needs a new epoch or an operator first: pending slices are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.core import STATUS, Cycle, TableLedger, file_mark, landing_mark
from airflow_provider_lakecommit.cycle import FoldedLog, LandingSession, PreparedTable, open_lanes, prepared_table
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg import Condition, read_ledger, require_ledger
from airflow_provider_lakecommit.operations.backfill.opening import joined_session
from airflow_provider_lakecommit.operations.maintenance.garbage import Kept, Why, reports_of

ROLE = "sweep"


Stream = tuple[LandingSession, PreparedTable, FoldedLog]
"""A stream that has landed in a table: its session, the table, and its log, which was read after the table."""


@contextmanager
def lanes_by_table(session: LandingSession) -> Iterator[Callable[[str], TableLanes]]:
    """Yield a function that returns the streams of a table: the session's own, and the open backfills.

    :raises LakecommitError: of that function: the table cannot be swept, by one of them
    """
    try:
        lanes = open_lanes(session)
    except LakecommitError:
        # The unreadable table is reported separately, and files of unknown backfills stay.
        lanes = ()
    streams: dict[str, list[Stream]] = {}
    errors: dict[str, str] = {}
    with ExitStack() as opened:
        joined = [opened.enter_context(joined_session(session, lane)) for lane in lanes if lane.bounds]
        for own in (session, *joined):
            found: list[PreparedTable] = []
            for name in own.landing.tables:
                try:
                    found += _ready(own, name)
                except LakecommitError as e:
                    errors.setdefault(name, str(e))
            if found:
                folded = own.read_state([t.ledger for t in found])
                for table in found:
                    streams.setdefault(table.name, []).append((own, table, folded))

        def lanes_of(name: str) -> TableLanes:
            if name in errors:
                raise LedgerError("LC7704", errors[name])
            if name not in streams:
                raise LedgerError(
                    "LC7705", f"{name}: landing {session.landing.name} has landed nothing in it yet: run it first"
                )
            return TableLanes(session, streams[name])

        yield lanes_of


class LaneFiles:
    """The files of one stream.

    :raises LedgerError: pending slices are unknown
    """

    def __init__(self, session: LandingSession, table: PreparedTable, folded: FoldedLog) -> None:
        low = table.ledger.section.control.low
        if low is not None and folded.begin.offset > low:
            raise LedgerError(
                "LC7711",
                f"{table.name}: the control log begins at offset {folded.begin.offset} of partition "
                f"{folded.partition}; records of pending slices since offset {low} were removed. Nothing is swept; run "
                "the landing first",
            )
        self._session, self._folded = session, folded
        self._ledger: TableLedger = table.ledger
        self._reports = reports_of(folded.entries, table.ledger)
        self._accepted = {a.report.attempt for a in folded.state.accepted.get(table.name, ())}

    def disposition_of(self, attempt: UUID) -> Why | Kept:
        """Return the disposition of a file that is old enough and in no snapshot."""
        if attempt in self._accepted:
            return Kept.WAITS
        return (self._reports[attempt] or Kept.WAITS) if attempt in self._reports else Why.UNREPORTED

    def record_void(self, attempts: set[UUID]) -> set[UUID]:
        """Record in the log that these attempts are void; return those that were reported before that, which are not
        void.
        """
        session = self._session
        own = Cycle(commit_id=session.new_id(), dag=ROLE, run=ROLE, number=0, slot=0, deployment="person")
        record = session.sender(ROLE, own.commit_id).voided(session.new_id(), session.now(), sorted(attempts))
        sent = session.send(ROLE, own, self._folded.partition, [record])
        self._folded = session.read_state(self._folded.ledgers, since=self._folded, until=sent)
        self._reports = reports_of(self._folded.entries, self._ledger, before=sent)
        if not any(e.offset == sent for e in self._folded.entries):
            raise LedgerError(
                "LC7703",
                f"the record at offset {sent} of partition {self._folded.partition} of the control topic cannot be "
                f"read back. Nothing more is removed; check the topic with `{STATUS}`, then run the command again",
            )
        return attempts & self._reports.keys()


class TableLanes:
    """The streams of a landing, by the marks in the names of their files for one table.

    :ivar table: as loaded for one of them
    """

    def __init__(self, session: LandingSession, streams: Sequence[Stream]) -> None:
        self._session, self.table = session, streams[0][1]
        self._uuid = self.table.ledger.uuid
        self._own = landing_mark(self._uuid, self._session.landing.name)
        marks = [self.mark(own.lane) for own, _, _ in streams]
        by_mark: dict[str, LaneFiles | None] = dict.fromkeys(self.marks_in(self.table.table.metadata))
        # The session's own stream may lack an entry, and is not closed.
        by_mark[self.mark(self._session.lane)] = None
        files = [LaneFiles(*stream) for stream in streams]
        by_mark |= {m: one for m, one in zip(marks, files, strict=True) if marks.count(m) == 1}
        self._by_mark = by_mark

    def mark(self, lane: str) -> str:
        return file_mark(self._uuid, self._session.landing.name, lane)

    def is_own(self, mark: str) -> bool:
        """Return True if it belongs to any stream of the landing."""
        return mark.startswith(self._own)

    def disposition_of(self, mark: str, attempt: UUID) -> Why | Kept:
        if mark not in self._by_mark:
            return Why.CLOSED
        lane = self._by_mark[mark]
        return Kept.OTHERS if lane is None else lane.disposition_of(attempt)

    def record_void(self, unreported: Mapping[str, set[UUID]]) -> set[UUID]:
        """Record void attempts, by mark; return those that were reported before, which are not void."""
        late: set[UUID] = set()
        for mark, attempts in unreported.items():
            lane = self._by_mark[mark]
            late |= set() if lane is None else lane.record_void(attempts)
        return late

    def marks_in(self, metadata: TableMetadata) -> list[str]:
        """Return the marks of streams that are in the ledger."""
        landing = self._session.landing
        state = read_ledger(metadata, landing.branch)
        if state.condition is not Condition.PRESENT:
            raise LedgerError(
                "LC7706",
                f"{self.table.name}: {state.reason}. Nothing more is swept; run the landing first, then sweep again",
            )
        return [self.mark(s.lane) for s in state.sections if s.landing == landing.name]


def _ready(session: LandingSession, name: str) -> list[PreparedTable]:
    """Return a table that may be swept; none if it has no entry of this stream."""
    table = session.tables.load(name)
    state = read_ledger(table.metadata, session.landing.branch)
    require_ledger(state, name)
    if state.condition is not Condition.PRESENT:
        reason = state.reason or "the landing has landed nothing in it yet"
        raise LedgerError("LC7709", f"{name}: {reason}. Nothing is swept; run the landing first")
    if state.section(session.landing.name, session.lane) is None:
        return []
    ready = prepared_table(session, name, table, state)
    there, named = session.control.describe(), ready.ledger.section.control
    if (there.cluster_id, there.topic_id) != (named.cluster_id, named.topic_id):
        raise LedgerError(
            "LC7710",
            f"{name}: its ledger names control topic {named.topic} (id {named.topic_id}), but {session.control.name} "
            f"is another one (id {there.topic_id}), so pending slices are unknown. Nothing is swept; run the landing "
            "first",
        )
    return [ready]
