# SPDX-License-Identifier: Apache-2.0
"""Publishing one table: announce what a crash left unannounced, append what is settled in chunks, announce it.

Contract: the decision is :mod:`~airflow_provider_lakecommit.core.settle`'s, the compare-and-swap is
:mod:`~airflow_provider_lakecommit.committer.append`'s; here they are put together. After each chunk the ledger and the
log are looked at again. A table that got no rows for a long time is brought forward by an append without files, so that
the control log need not be kept for it.

Failure story: a slice that is refused for good is voided with its reason, if the source still has its range: what was
written under another partition spec is else published under that one, and what cannot be published is *held*, which is
raised with its losses when all else is done. One that has to wait is left. Anything else is raised: what was published
before stays published and announced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.committer.checks import StagedSlice
from airflow_provider_lakecommit.committer.ledger import (
    expiry_age_ms,
    landing_snapshots,
    should_carry,
    unannounced,
)
from airflow_provider_lakecommit.committer.ledger_updates import carry_forward
from airflow_provider_lakecommit.committer.summary import Account, SnapshotRecord
from airflow_provider_lakecommit.core.log import CycleClosed, Directives
from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.rules import UNKNOWN
from airflow_provider_lakecommit.core.settle import chunks, settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState
from airflow_provider_lakecommit.cycle.prepare import PreparedTable, prepared_table
from airflow_provider_lakecommit.cycle.refusals import Refusals
from airflow_provider_lakecommit.cycle.reported import hidden_record, report_problem
from airflow_provider_lakecommit.cycle.results import CycleTicket, PublishedSnapshot
from airflow_provider_lakecommit.cycle.session import FoldedLog, LandingSession
from airflow_provider_lakecommit.cycle.truncation import truncated
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.iceberg.data_files import to_pyiceberg
from airflow_provider_lakecommit.wire.envelope import DAMAGE
from airflow_provider_lakecommit.wire.events import DataWritten, decode
from airflow_provider_lakecommit.wire.records import table_reference

__all__ = ["TablePublisher", "published_before", "snapshot_of"]

CARRY_CYCLES = 100
"""Cycles after which a table without rows is brought forward."""
CARRY_AGE = timedelta(days=7)
"""At the latest; and when a quarter of the time is over for which the control topic keeps what the table lacks."""
CARRY_PART = 4
MOVE_AFTER = 10_000
"""Offsets of the control log, by whatever landings of its partition, after which a ledger's position is moved."""
LOOK_AT_EMPTY = 1_000_000
"""Offsets of pending slices without a row that a commit looks at, where nobody signs."""
CHECK_AGE = timedelta(hours=12)
"""Files of slices older than this are checked to exist before they are appended. Orphan clean-up spares files of the
last day; a slice's report is younger than its first file, and clocks differ, so half of that.
"""


@dataclass(slots=True, kw_only=True)
class TablePublisher:
    """One table's share of a commit. ``whole`` tells whether all tables of the landing could be read."""

    session: LandingSession
    ticket: CycleTicket
    table: PreparedTable
    whole: bool
    _refusals: Refusals = field(init=False)

    def run(
        self,
        folded: FoldedLog,
        published: list[PublishedSnapshot],
        voided: dict[UUID, str],
        not_taken: dict[UUID, str],
    ) -> FoldedLog:
        """Publish; appends to ``published``, ``voided`` and ``not_taken`` as it goes.

        :param voided: for all tables of the landing
        :param not_taken: by this table
        :raises SourceError: slices can be neither published nor read again
        :raises LakecommitError: what the catalog or the table says
        """
        self._refusals = Refusals(session=self.session, table=self.table.name, voided=voided, not_taken=not_taken)
        published.extend(self._announced_before(folded))
        folded = self._announce_forgotten(folded, published)
        self._void_truncated(folded, voided)
        self._look_at_empty(folded)
        while True:
            chunk = self._next_chunk(folded)
            if not chunk:
                break
            staged = self._staged(chunk)
            if not staged:
                continue
            outcome = publish(self.session.tables, self._request(folded, chunk, staged))
            for refused in outcome.refused:
                if refused.void:
                    accepted = next(a for a in chunk if a.report.attempt == refused.slice.attempt)
                    self._refusals.refuse(accepted, refused.grounds, str(refused))
            if outcome.snapshot_id is not None:
                found = self._published(outcome, outcome.snapshot_id)
                self._announce(folded, found, outcome.token, voided)
                if found.files:
                    published.append(found)
            elif not outcome.already and not any(r.void for r in outcome.refused):
                break
            self._go_on(outcome)
            folded = self._look(folded)
        self._carry(folded)
        self._refusals.check()
        return folded

    # -- what a crash left ----------------------------------------------------------------------------------------

    def _announced_before(self, folded: FoldedLog) -> Iterator[PublishedSnapshot]:
        """Snapshots of this very cycle that an attempt before this one announced: the run still has to tell of them."""
        own = folded.state.cycles.get(self.ticket.commit_id)
        if own is not None:
            yield from published_before(self.session, self.table, own, announced=folded.state.announced)

    def _announce_forgotten(self, folded: FoldedLog, published: list[PublishedSnapshot]) -> FoldedLog:
        """Snapshots of this lane whose COMMIT_TO_TABLE is not in the log."""
        if not self._forgotten(folded):
            return folded
        folded = self._look(folded)
        for record in self._forgotten(folded):
            self.session.log(
                f"{self.table.name}: snapshot {record.snapshot_id} was published and not announced; doing it now"
            )
            found = self._recorded(record)
            self._announce(folded, found, record.token, {})
            if found.files:
                published.append(found)
        return folded

    def _forgotten(self, folded: FoldedLog) -> tuple[SnapshotRecord, ...]:
        return unannounced(self._records(), folded.state.announced, folded.begin)

    def _records(self) -> Iterator[SnapshotRecord]:
        landing = self.session.landing
        return landing_snapshots(
            self.table.table.metadata, landing.branch, landing=landing.name, lane=self.session.lane
        )

    def _recorded(self, record: SnapshotRecord) -> PublishedSnapshot:
        return snapshot_of(record, self.table.name, record.commit_id or self.ticket.commit_id)

    # -- what is settled ------------------------------------------------------------------------------------------

    def _void_truncated(self, folded: FoldedLog, voided: dict[UUID, str]) -> None:
        for attempt, reason in truncated(self.session, folded.state, self.table.name).items():
            if attempt not in voided:
                voided[attempt] = f"slice of {reason}; its range is read again"
                self.session.log(f"{self.table.name}: voided {voided[attempt]}")

    def _look_at_empty(self, folded: FoldedLog) -> None:
        """Slices without a row are published rarely: what is wrong with one is not to be hidden until then."""
        if self.session.signed or self.table.name != self.session.landing.table:
            return
        left = LOOK_AT_EMPTY
        for a in self._refusals.of(folded.state.accepted[self.table.name]):
            left -= 0 if a.file_count(self.table.name) else sum(len(s.span) for s in a.report.spans)
            if a.file_count(self.table.name) or left < 0:
                continue
            session, told = self.session, a.report
            problem = report_problem(session.landing, self.table.table, self.table.name, told, ())
            if problem := problem or hidden_record(session.source, session.landing, told):
                self._refuse(a, problem)

    def _refuse(self, accepted: AcceptedSlice, problem: str) -> None:
        self._refusals.refuse(accepted, None, f"slice {accepted.report.slice_id} ({accepted.coverage}): {problem}")

    def _next_chunk(self, folded: FoldedLog) -> tuple[AcceptedSlice, ...]:
        accepted = self._refusals.of(folded.state.accepted[self.table.name])
        settlement = settle(accepted, self.table.ledger.section)
        if not settlement.ready:
            return ()
        if not any(s.matters(self.table.name) for s in settlement.ready) and not self._stale(folded, settlement.ready):
            return ()
        chunk = chunks(settlement, self.table.name, self.session.landing.commit_files)[0]
        return self._refusals.of_one_spec(chunk, self.table.table.metadata.default_spec_id)

    def _stale(self, folded: FoldedLog, ready: Sequence[AcceptedSlice]) -> bool:
        """Has a table without rows been behind for so long that it is brought forward? Where a spec change voids, it
        never is, nor while the rules change by which records are judged: what is behind then would be judged anew. Nor
        where the log was cut, as a new epoch waits for it.
        """
        low, rules = self.table.ledger.section.control.low, {s.report.rules for s in ready} - {UNKNOWN}
        cut = low is not None and folded.begin.offset > low
        if self.session.landing.on_spec_change == "void" or cut or len(rules) > 1:
            return True
        oldest = min(ready, key=lambda s: s.offset)
        cycles = sum(isinstance(e, CycleClosed) and e.offset > oldest.offset for e in folded.entries)
        if cycles >= CARRY_CYCLES or folded.end - oldest.offset >= MOVE_AFTER:
            return True
        return oldest.age(self.session.now()) >= self._carry_age()

    def _carry_age(self) -> timedelta:
        """Before the log or the owner's maintenance of the table can have removed what the ledger relies on."""
        expiry = expiry_age_ms(self.table.table.metadata)
        kept = (self.session.control.kept_for(), timedelta(milliseconds=expiry) if expiry else None)
        return min([CARRY_AGE, *(k / CARRY_PART for k in kept if k)])

    def _staged(self, chunk: Sequence[AcceptedSlice]) -> tuple[StagedSlice, ...]:
        """The chunk with its files, or nothing if one of it is refused: then the chunk is chosen anew."""
        out: list[StagedSlice] = []
        for accepted in chunk:
            try:
                files = self._files(accepted)
            except TableError as e:
                self._refuse(accepted, str(e))
                return ()
            out.append(StagedSlice.of(accepted.report, self.table.name, files))
        return tuple(out)

    def _files(self, accepted: AcceptedSlice) -> list[DataFile]:
        """The files of a slice for this table, as they can be appended.

        :raises TableError: they cannot be, or one of an old slice is gone
        """
        metadata, report = self.table.table.metadata, accepted.report.table(self.table.name)
        files: list[DataFile] = []
        for value in accepted.files[self.table.name]:
            if report is None:
                raise TableError("its report does not tell of this table")
            spec, schema = metadata.specs().get(report.spec_id), metadata.schema_by_id(report.schema_id)
            if spec is None or schema is None:
                raise TableError(
                    f"partition spec {report.spec_id} or schema {report.schema_id} is not of the table any more"
                )
            files += _announced(value, spec, schema)
        landing, told = self.session.landing, accepted.report
        problem = report_problem(landing, self.table.table, self.table.name, told, files)
        if not problem and self.table.name == landing.table and not self.session.signed:
            problem = hidden_record(self.session.source, landing, told)
        if problem:
            raise TableError(problem)
        if not accepted.young(self.session.now(), CHECK_AGE):
            io = self.table.table.io
            if gone := next((f.file_path for f in files if not io.new_input(f.file_path).exists()), None):
                raise TableError(f"its file {gone} was removed by somebody")
        return files

    def _request(
        self, folded: FoldedLog, chunk: Sequence[AcceptedSlice], staged: tuple[StagedSlice, ...]
    ) -> AppendRequest:
        landing, section = self.session.landing, self.table.ledger.section
        records = sum(c.landed + c.rejected + c.filtered for a in chunk for c in (s.counts for s in a.report.spans))
        size = sum(a.report.bytes for a in chunk)
        return AppendRequest(
            table=self.table.name,
            table_uuid=self.table.ledger.uuid,
            landing=landing.name,
            lane=self.session.lane,
            branch=landing.branch,
            commit_id=self.ticket.commit_id,
            slices=staged,
            control=self._position(folded, chunk, section) if self.whole else None,
            control_end=replace(folded.begin, offset=folded.end),
            record_bytes=max(1, size // records) if records and size else None,
            # With "void" the next plan finds the change, and voids what is left of the old spec.
            spec_version=None if landing.on_spec_change == "void" else landing.spec_version,
            extra={"files": str(sum(len(s.files) for s in staged))},
            kept=frozenset(self._refusals.kept),
        )

    def _position(self, folded: FoldedLog, chunk: Sequence[AcceptedSlice], section: LedgerSection) -> ControlPosition:
        """From where the log is needed once the chunk is in this table."""
        landed = {(self.table.name, a.report.attempt) for a in chunk}
        low = folded.state.low(without=self.ticket.commit_id, landed=landed)
        own = folded.state.cycles.get(self.ticket.commit_id)
        starts = [o for o in (low, own.since if own else folded.end) if o is not None]
        return replace(section.control, read_from=min(starts), low=low)

    # -- what is said ---------------------------------------------------------------------------------------------

    def _published(self, outcome: PublishOutcome, snapshot_id: int) -> PublishedSnapshot:
        done = outcome.published
        return PublishedSnapshot(
            table=self.table.name,
            snapshot_id=snapshot_id,
            commit_id=self.ticket.commit_id,
            coverage=Coverage.of(item for s in done for item in s.coverage.items()),
            rows=sum(s.rows for s in done),
            files=sum(len(s.files) for s in done),
            counts=Account.of(r for s in done for r in s.spans).total,
        )

    def _announce(
        self, folded: FoldedLog, found: PublishedSnapshot, token: UUID | None, voided: dict[UUID, str]
    ) -> None:
        if token is None:
            raise LakecommitError(f"snapshot {found.snapshot_id} of {self.table.name} has no token")
        metadata = self.table.table.metadata
        record = self.session.sender("commit", found.commit_id).published(
            self.session.new_id(),
            self.session.now(),
            table=table_reference(self.session.tables.name, self.table.name, metadata.table_uuid),
            name=self.table.name,
            snapshot_id=found.snapshot_id,
            token=token,
            coverage=found.coverage,
            directives=Directives(voided=tuple(voided)),
        )
        self.session.send("commit", self.ticket, folded.partition, [record])

    def _go_on(self, outcome: PublishOutcome) -> None:
        """With the table as the commit left it."""
        old = self.table.table
        table = Table(old.name(), outcome.metadata, old.metadata_location, old.io, old.catalog)
        self.table = prepared_table(self.session, self.table.name, table, outcome.state)

    def _look(self, folded: FoldedLog) -> FoldedLog:
        ledgers = [self.table.ledger if t.table == self.table.name else t for t in folded.ledgers]
        return self.session.read_state(ledgers, since=folded)

    def _carry(self, folded: FoldedLog) -> None:
        now_ms, position = int(self.session.now().timestamp() * 1000), self._moved(folded)
        if position is not None or should_carry(self.table.state, self.table.table.metadata, now_ms):
            carry_forward(
                self.session.tables,
                self.table.name,
                self.session.landing.name,
                self.session.lane,
                branch=self.session.landing.branch,
                control=position,
                was=self.table.ledger.section.control,
                control_end=replace(folded.begin, offset=folded.end),
            )

    def _moved(self, folded: FoldedLog) -> ControlPosition | None:
        """The next position of a ledger that got no rows while others filled the log: so an idle landing reads, too, no
        more of a partition than what came since.
        """
        section = self.table.ledger.section
        if not self.whole or section.control.partition != folded.partition:
            return None
        position = self._position(folded, (), section)
        return position if position.read_from - section.control.read_from >= MOVE_AFTER else None


def _announced(value: bytes, spec: PartitionSpec, schema: Schema) -> list[DataFile]:
    """The files of one DATA_WRITTEN.

    :raises TableError: it is none, or its files are none of this table
    """
    try:
        payload = decode(value).payload
        if not isinstance(payload, DataWritten):
            raise TableError("its file list is no DATA_WRITTEN")
        return to_pyiceberg(payload.data_files or (), payload.partition_fields, spec=spec, schema=schema)
    except DAMAGE as e:
        raise TableError(f"its file list in the control topic cannot be read: {e}") from e


def published_before(
    session: LandingSession, table: PreparedTable, cycle: CycleState, announced: Collection[UUID] | None = None
) -> tuple[PublishedSnapshot, ...]:
    """A cycle's snapshots with files in a table, oldest first; all, or those among the ``announced`` tokens."""
    ids = {cycle.cycle.commit_id}
    return snapshots_of(session, table.name, table.table.metadata, ids, since=cycle.offset, announced=announced)


def snapshots_of(
    session: LandingSession,
    name: str,
    metadata: TableMetadata,
    cycles: Collection[UUID],
    *,
    since: int,
    announced: Collection[UUID] | None = None,
) -> tuple[PublishedSnapshot, ...]:
    """The snapshots with files that cycles of this lane made in a table, oldest first.

    :param since: offset of the control log at which the first of them began: no older snapshot is looked at
    :param announced: only those of these tokens
    """
    branch, found = session.landing.branch, []
    for record in landing_snapshots(metadata, branch, landing=session.landing.name, lane=session.lane):
        if record.control_end is None or record.control_end.offset < since:
            break
        if record.commit_id is None or record.commit_id not in cycles:
            continue
        if announced is None or record.token in announced:
            found.append(snapshot_of(record, name, record.commit_id))
    return tuple(p for p in reversed(found) if p.files)


def snapshot_of(record: SnapshotRecord, table: str, commit_id: UUID) -> PublishedSnapshot:
    """What a landing snapshot says of itself."""
    return PublishedSnapshot(
        table=table,
        snapshot_id=record.snapshot_id,
        commit_id=commit_id,
        coverage=record.ranges,
        rows=record.rows,
        files=int(record.extra.get("files", 0)),
        counts=record.accounting.total,
    )
