# SPDX-License-Identifier: Apache-2.0
"""Publish one table: announce what a crash left unannounced, append settled slices in chunks, announce them.

Contract: :mod:`~airflow_provider_lakecommit.core.settle` decides,
:mod:`~airflow_provider_lakecommit.iceberg.ledger.append` does the compare-and-swap; this module combines them. After
each chunk the ledger and the log are read again. The ledger of a table without rows is refreshed by an append without
files, so that the control topic need not keep records for it.

Failure story: a permanently refused slice is voided with its reason if the source still has its range. Otherwise, a
slice of another partition spec is published under that spec, and the rest is *unpublishable*, which is raised with its
losses at the end. Slices that must wait are left. Anything else is raised; earlier publications stay published and
announced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.control import table_reference
from airflow_provider_lakecommit.core import (
    MEASURED,
    AcceptedSlice,
    Coverage,
    CycleOpened,
    Directives,
    chunks,
    measure,
    to_text,
    total_of,
)
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle.commit.refresh import is_behind, position_after, refresh
from airflow_provider_lakecommit.cycle.commit.refusals import Refusals, within_ratio
from airflow_provider_lakecommit.cycle.commit.reported import hidden_record, report_problem, staged_slice
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable, prepared_table
from airflow_provider_lakecommit.cycle.plan.resume import published_before, snapshot_of
from airflow_provider_lakecommit.cycle.plan.truncation_check import truncated
from airflow_provider_lakecommit.cycle.results import CycleTicket, PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.iceberg import (
    SPEC,
    AppendRequest,
    PublishOutcome,
    RetryPolicy,
    SnapshotRecord,
    StagedSlice,
    UpsertRule,
    debt_of,
    landing_snapshots,
    publish,
    unannounced,
)

HASTE = RetryPolicy(seconds=5.0)
"""Retry budget for a table that is already failing while others wait: enough to win an occasional commit race."""
EMPTY_OFFSETS = 1_000_000
"""Offsets of pending slices without a row that a commit checks if records are unsigned."""
MOST_CHANGES = 2_000_000
"""Most changes of an upserting publish, whose keys are in memory."""
MOST_SPEC = 4_000
"""Most characters of a spec in a snapshot; a longer one is left out."""


@dataclass(slots=True, kw_only=True)
class TablePublisher:
    """One table's share of a commit. ``whole``: all tables of the landing were readable; ``fast_fail``: leave failures
    to a later commit quickly, as others wait.
    """

    session: LandingSession
    ticket: CycleTicket
    table: PreparedTable
    whole: bool
    refusals: Refusals
    fast_fail: bool = False

    def run(self, folded: FoldedLog, published: list[PublishedSnapshot]) -> FoldedLog:
        """Publish; appends to ``published`` and the refusals along the way.

        :raises SourceError: slices can be neither published nor read again
        :raises LakecommitError: an error of the catalog or the table
        """
        if (own := folded.state.cycles.get(self.ticket.commit_id)) is not None:
            # An earlier attempt announced them: the run still has to report them.
            published.extend(published_before(self.session, self.table, own, announced=folded.state.announced))
        folded = self._announce_forgotten(folded, published)
        self._refuse_truncated(folded)
        self._check_empty(folded)
        while True:
            chunk = self._next_chunk(folded)
            if not chunk:
                break
            staged = self._staged(chunk)
            if not staged:
                continue
            patience = HASTE if self.fast_fail else None
            outcome = publish(self.session.tables, self._request(folded, chunk, staged), retry_policy=patience)
            for refused in outcome.refused:
                if refused.void:
                    accepted = next(a for a in chunk if a.report.attempt == refused.slice.attempt)
                    self.refusals.refuse(accepted, refused.grounds, str(refused))
            if outcome.snapshot_id is not None:
                found = self._published(outcome, outcome.snapshot_id)
                self._announce(folded, found, outcome.token, self.refusals.voided)
                if found.files:
                    published.append(found)
            elif not outcome.already and not any(r.void for r in outcome.refused):
                break
            old = self.table.table
            table = Table(old.name(), outcome.metadata, old.metadata_location, old.io, old.catalog)
            self.table = prepared_table(self.session, self.table.name, table, outcome.state)
            folded = self._read_again(folded)
        refresh(self.session, self.table, folded, self.ticket.commit_id, whole=self.whole)
        self.refusals.check()
        return folded

    # -- what a crash left ----------------------------------------------------------------------------------------

    def _announce_forgotten(self, folded: FoldedLog, published: list[PublishedSnapshot]) -> FoldedLog:
        """Announce snapshots of this stream without a COMMIT_TO_TABLE in the log."""
        if not self._forgotten(folded):
            return folded
        folded = self._read_again(folded)
        for record in self._forgotten(folded):
            self.session.log(
                f"{self.table.name}: snapshot {record.snapshot_id} was published but not announced; announcing it now"
            )
            found = snapshot_of(record, self.table.name, record.commit_id or self.ticket.commit_id)
            self._announce(folded, found, record.token, {})
            if found.files:
                published.append(found)
        return folded

    def _forgotten(self, folded: FoldedLog) -> tuple[SnapshotRecord, ...]:
        landing, metadata = self.session.landing, self.table.table.metadata
        records = landing_snapshots(metadata, landing.branch, landing=landing.name, lane=self.session.lane)
        return unannounced(records, folded.state.announced, folded.begin)

    # -- settled slices -------------------------------------------------------------------------------------------

    def _refuse_truncated(self, folded: FoldedLog) -> None:
        """Refuse slices of a source log that has been replaced since."""
        found = truncated(self.session, folded.state, self.table.name)
        for a in self.refusals.of(folded.state.accepted[self.table.name]):
            if (reason := found.get(a.report.attempt)) is not None:
                self.refusals.refuse(a, None, f"slice of {reason}")

    def _check_empty(self, folded: FoldedLog) -> None:
        """Check slices without a row now: they are published rarely, and errors must not stay hidden until then."""
        if self.session.signed or self.table.name != self.session.landing.table:
            return
        left = EMPTY_OFFSETS
        for a in self.refusals.of(folded.state.accepted[self.table.name]):
            left -= 0 if a.file_count(self.table.name) else sum(len(s.span) for s in a.report.spans)
            if a.file_count(self.table.name) or left < 0:
                continue
            session, report = self.session, a.report
            problem = report_problem(session.landing, self.table.table, self.table.name, report, ())
            if problem := problem or hidden_record(session.source, session.landing, report):
                self._refuse(a, problem)

    def _refuse(self, accepted: AcceptedSlice, problem: str) -> None:
        self.refusals.refuse(accepted, None, f"slice {accepted.report.slice_id} ({accepted.coverage}): {problem}")

    def _next_chunk(self, folded: FoldedLog) -> tuple[AcceptedSlice, ...]:
        accepted = within_ratio(self.session, self.ticket, folded, folded.state.accepted[self.table.name])
        accepted = self.refusals.of(accepted)
        settlement = settle(accepted, self.table.ledger.section, self.table.ledger.others)
        if not settlement.ready:
            return ()
        matters = any(s.matters(self.table.name) for s in settlement.ready)
        if not matters and not is_behind(self.session, self.table, folded, settlement.ready):
            return ()
        most = MOST_CHANGES if self._rule and self._rule.key else None
        chunk = chunks(settlement, self.table.name, self.session.landing.backpressure.commit_files, most)[0]
        return self.refusals.of_one_spec(chunk, self.table.table.metadata.default_spec_id)

    def _staged(self, chunk: Sequence[AcceptedSlice]) -> tuple[StagedSlice, ...]:
        """Return the chunk with its files, or nothing if one slice is refused: then the chunk is chosen again."""
        out: list[StagedSlice] = []
        for accepted in chunk:
            try:
                out.append(staged_slice(self.session, accepted, self.table.name, self.table.table))
            except TableError as e:
                self._refuse(accepted, str(e))
                return ()
        return tuple(out)

    def _request(
        self, folded: FoldedLog, chunk: Sequence[AcceptedSlice], staged: tuple[StagedSlice, ...]
    ) -> AppendRequest:
        landing = self.session.landing
        records = sum(s.counts.records for a in chunk for s in a.report.spans)
        size = sum(a.report.bytes for a in chunk)
        return AppendRequest(
            table=self.table.name,
            table_uuid=self.table.ledger.uuid,
            landing=landing.name,
            lane=self.session.lane,
            branch=landing.branch,
            commit_id=self.ticket.commit_id,
            slices=staged,
            control=position_after(self.table, folded, self.ticket.commit_id, chunk) if self.whole else None,
            control_end=replace(folded.begin, offset=folded.end),
            record_bytes=max(1, size // records) if records and size else None,
            # With "void" the next plan finds the change, and voids the rest of the old spec.
            spec_version=None if landing.window.on_spec_change == "void" else landing.spec_version,
            extra={"files": str(sum(map(_files, staged))), **self._extra(folded, chunk)},
            kept=frozenset(self.refusals.kept),
            decisions=tuple(d for e in folded.entries if isinstance(e, CycleOpened) for d in e.directives.decided),
            upsert=self._rule,
        )

    @property
    def _rule(self) -> UpsertRule | None:
        landing = self.session.landing
        if self.table.name != landing.table:
            return None
        return UpsertRule(key=(*landing.upsert.key,), order=landing.upsert.order_column)

    def _extra(self, folded: FoldedLog, chunk: Sequence[AcceptedSlice]) -> dict[str, str]:
        """Return the spec for readers, and for the data table the duration of the slices' windows, which sizes later
        ones.
        """
        landing = self.session.landing
        spec = json.dumps([landing.spec_version, landing.shaping])
        extra = {SPEC: spec} if len(spec) <= MOST_SPEC else {}
        data = self.table.name == landing.table
        costs = measure(folded.state, landing.table, (a.commit_id for a in chunk)) if data else {}
        return {**extra, MEASURED: to_text(costs)} if costs else extra

    # -- announcements --------------------------------------------------------------------------------------------

    def _published(self, outcome: PublishOutcome, snapshot_id: int) -> PublishedSnapshot:
        done = outcome.published
        return PublishedSnapshot(
            table=self.table.name,
            snapshot_id=snapshot_id,
            commit_id=self.ticket.commit_id,
            coverage=Coverage.union(s.coverage for s in done),
            rows=sum(s.rows for s in done),
            files=sum(map(_files, done)),
            counts=total_of(r.counts for s in done for r in s.spans),
            debt=debt_of(outcome.metadata, self.session.landing.branch, self.session.landing.maintain),
        )

    def _announce(
        self, folded: FoldedLog, found: PublishedSnapshot, token: UUID | None, voided: dict[UUID, str]
    ) -> None:
        if token is None:
            raise LakecommitError("LC6202", f"snapshot {found.snapshot_id} of {self.table.name} has no commit token")
        metadata = self.table.table.metadata
        record = self.session.sender("commit", found.commit_id).published(
            self.session.new_id(),
            self.session.now(),
            table=table_reference(self.session.tables.name, self.table.name, metadata.table_uuid),
            snapshot_id=found.snapshot_id,
            token=token,
            coverage=found.coverage,
            directives=Directives(voided=tuple(voided)),
            debt=None if found.debt is None else found.debt.share,
        )
        self.session.send("commit", self.ticket, folded.partition, [record])

    def _read_again(self, folded: FoldedLog) -> FoldedLog:
        ledgers = [self.table.ledger if t.table == self.table.name else t for t in folded.ledgers]
        return self.session.read_state(ledgers, since=folded)


def _files(one: StagedSlice) -> int:
    """Return how many files it has; one that only deletes rows has tombstone files, and changes the table too."""
    return len(one.files) + len(one.tombstones)
