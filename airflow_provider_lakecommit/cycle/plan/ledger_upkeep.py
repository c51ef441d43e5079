# SPDX-License-Identifier: Apache-2.0
"""Settle a table's ledger before planning or publishing: its entries and their epochs.

Contract: :class:`LedgerUpkeep` brings the ledger of one table up to date, each change by one compare-and-swap decided
on the entry it finds: a rollback, a lost control topic and a voiding spec change start a new
epoch; an added topic gets its starts; a new stream gets its entry.

No epoch ends while a reported slice is pending whose range the source no longer has. A spec change and a cut log wait
until it is published; a missing tag is restored if nothing newer than the ledger is known; after a rollback only an
operator can decide, so it is an error that lists the losses. The same holds for pending slices of the table's other
landings, whose epochs a rollback ends too, and for a former control topic of the landing.

Failure story: concurrent changes are made once. A kill between two changes leaves the first, and the next caller makes
the second. A spec change that would evaluate a landed range again waits (:class:`SpecWaits`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from airflow_provider_lakecommit.control import ControlLog, read_entries
from airflow_provider_lakecommit.core import (
    BACKFILL,
    LAND,
    LIVE,
    RESET_MIGRATE,
    RESET_OFFSETS,
    ControlPosition,
    Coverage,
    LedgerSection,
    RangeSet,
    SourcePartition,
    TableLedger,
    TablePublished,
    irreplaceable,
    losses,
    losses_text,
    removed,
)
from airflow_provider_lakecommit.cycle.plan.known import joining_offsets
from airflow_provider_lakecommit.cycle.plan.lane_sections import position_at_end
from airflow_provider_lakecommit.cycle.plan.reports import endangered, pending_of, unsigned_ranges, unsigned_text
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import (
    Condition,
    LedgerState,
    SnapshotKind,
    change_section,
    check_tags,
    join_table,
    read_ledger,
    renew_epochs,
    restore_tag,
)
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.landing import Landing


class SpecWaits(Exception):
    """A spec change cannot void yet: ``table`` lacks ranges that the data table has, ``behind`` it."""

    def __init__(self, table: str, behind: Coverage) -> None:
        super().__init__(f"{table} has not yet received {behind}, which is already landed")
        self.table = table
        self.behind = behind


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerUpkeep:
    """The changes of one table's ledger that a plan or a commit needs first.

    :param source: set while planning
    :param data: the data table's entry, while another table is planned for
    """

    session: LandingSession
    name: str
    source: SourceState | None = None
    data: LedgerSection | None = None

    @property
    def _landing(self) -> Landing:
        return self.session.landing

    def check_cluster(self, section: LedgerSection, cluster_id: str) -> None:
        """:raises SourceError: the brokers belong to another cluster than the ledger"""
        if section.cluster_id != cluster_id:
            raise SourceError(
                "LC6012",
                f"{self.name} holds offsets of Kafka cluster {section.cluster_id}, but landing {self._landing.name} "
                f"now reads cluster {cluster_id}: point it back. If its topics were copied, `{RESET_MIGRATE} SPEC "
                "--old HOST:PORT` compares the records to find where to continue; or state it with `--from same` or "
                "`--from TOPIC:0=OFFSET,…`",
            )

    def renewed(self, state: LedgerState) -> LedgerState:
        """Make the changes that need a compare-and-swap before anything else."""
        if state.condition is Condition.ROLLED_BACK:
            state = self.after_rollback(state)
        state = self._with_the_log(state)
        if self.source is not None:
            state = self._with_the_spec(state)
            return self._with_the_topics(state, self.source)
        if self._has_another_key(self._own(state)):
            raise LedgerError(
                "LC6020",
                f"`upsert.key` of landing {self._landing.name} has changed since its slices for {self.name} were "
                "planned: nothing is published, and the next plan reads their records again",
            )
        return state

    def joined(self, table: Table, state: LedgerState, section: LedgerSection) -> LedgerState:
        """Return the ledger with the first entry of this stream; after a rollback, with new epochs of all others."""
        if state.condition is Condition.ROLLED_BACK:
            self.after_rollback(state)
        self._log(f"landing {self._landing.name} joins at {_starts_text(section.starts)}")
        uuid = table.metadata.table_uuid
        return join_table(self.session.tables, self.name, section, branch=self._landing.branch, table_uuid=uuid)

    def after_rollback(self, state: LedgerState) -> LedgerState:
        """Return the ledger of a table that was rolled back, under new epochs.

        :raises LedgerError: they would void reported slices that the source no longer has
        """
        tables, stream, branch = self.session.tables, (self._landing.name, self.session.lane), self._landing.branch
        own, others = self._kept(state, rows=True), endangered(self.session, self.name, state)
        if kept := "; ".join(filter(None, (own, *others.values()))):
            if state.newest and self._newest_by_the_log(state):
                self._log(f"{state.reason}, and there is no newer snapshot; restored the tag and kept {kept}")
                return restore_tag(tables, self.name, *stream, branch=branch, snapshot_id=state.snapshot_id)
            to_tag = "" if state.tag_id is None else f" on snapshot {state.tag_id}"
            raise LedgerError(
                "LC6001",
                f"{self.name}: {state.reason}; a new epoch would void reported slices that the source no longer has: "
                f"{kept}. Nothing is changed: put the branch back{to_tag} to publish them, or give them up with "
                f"`{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
            )
        check_tags(tables, self.name, state)
        self._log(f"{state.reason}; pending slices were voided and are read again (new epoch)", warns=True)
        if gone := _of_backfills(self._landing.name, state):
            self._log(f"{gone}, which backfills had landed, is only read again by `{BACKFILL} SPEC`", warns=True)
        return renew_epochs(tables, self.name, *stream, branch=branch)

    def _with_the_log(self, state: LedgerState) -> LedgerState:
        """Check the control topic: another one than the ledger's knows nothing of pending slices; one that was cut
        knows the rest, of which unreadable ranges are published first.
        """
        control, old = self.session.control, self._own(state).control
        log = control.read(old.partition, BEYOND)
        # A landing's topics are all in one cluster, and another cluster reports nothing on pending slices.
        self.check_cluster(self._own(state), log.cluster_id)
        if (why := _log_lost(old, log)) is None:
            return state
        if old.topic != control.name and (kept := self._kept(state)):
            raise LedgerError(
                "LC6002",
                f"{self.name}: landing {self._landing.name} has its records in control topic {old.topic}, but now uses "
                f"{control.name}; this would lose reported slices that the source no longer has: {kept}. "
                f"Nothing is changed: name control topic {old.topic} again until `{LAND} SPEC` has published them, "
                f"or give them up with `{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
            )
        if _is_cut(old, log) and (kept := self._kept(state)):
            self._log(f"{why}; the new epoch waits until {kept} is published: the source no longer has it")
            return state
        self._log(f"{why}; pending slices were voided and are read again (new epoch)", warns=True)
        new = position_at_end(self.session, log)
        return self._change(
            SnapshotKind.EPOCH,
            lambda s: replace(s, epoch=self.session.new_id(), control=new) if s.control == old else None,
        )

    def _with_the_spec(self, state: LedgerState) -> LedgerState:
        """Void pending slices after a spec change, if the landing wants it or has another key, no table lags behind the
        data table, and all can be read again.
        """
        section, data, current = self._own(state), self.data, self._landing.spec_version
        # Slices keep the last change of each key that they were read by. Once there are rows, `reset key` changes the
        # key.
        other_key = self._has_another_key(section) if data is None else not data.covered
        if section.spec_version == current or not (other_key or self._landing.window.on_spec_change == "void"):
            return state
        if kept := self._kept(state):
            self._log(f"the spec changed; {kept} is published with its old spec: the source no longer has it")
            return state
        if data is not None and data.spec_version != current:
            # Slices waiting for the data table wait for all: under two specs a record could end in both tables, or
            # none.
            return state
        self._log(f"the spec changed from {section.spec_version} to {current}; voided the pending slices")
        for other in self._landing.tables[1:] if data is None else (self.name,):
            self._check_level(other, section if data is None else data)
        key = (*self._landing.upsert.key,) if self._is_data_table else section.upsert_key

        def voiding(now: LedgerSection) -> LedgerSection | None:
            new = replace(now, epoch=self.session.new_id(), spec_version=current, upsert_key=key)
            return new if now.spec_version != current else None

        return self._change(SnapshotKind.EPOCH, voiding)

    def _with_the_topics(self, state: LedgerState, source: SourceState) -> LedgerState:
        """Add topics that are new in the landing, from where the landing starts, or where the data table began them."""
        known, begins = {p.topic for p in self._own(state).starts}, self.data.starts if self.data else {}
        new = {p: mark for p, mark in source.partitions.items() if p.topic not in known}
        there = {(p.topic, p.topic_id) for p in begins}
        begun = {p: begins.get(p, 0) for p in new if (p.topic, p.topic_id) in there}
        added = begun | joining_offsets(self.session, {p: mark for p, mark in new.items() if p not in begun})
        if not added:
            return state
        self._log(f"added a topic from {_starts_text(added)}")
        return self._change(SnapshotKind.ORIGIN, lambda s: _with_starts(s, added))

    def _kept(self, state: LedgerState, *, rows: bool = False) -> str:
        """Return what is pending for the table and cannot be read again. Unverified reports count too: a process with
        their key may publish them.

        :param rows: only what has rows for this table, not what it has passed
        :raises SourceUnavailableError: something is pending, and the source does not report its offsets
        """
        section = state.section(self._landing.name, self.session.lane)
        if section is None:
            return ""
        pending = pending_of(self.session, self.name, state.table_uuid, section)
        doubted = unsigned_ranges(self.session, self.name, section)
        if not (pending or doubted):
            return ""
        marks = (self.source or self.session.source.watermarks(missing_ok=True)).partitions
        kept = irreplaceable(pending, marks, self.name if rows else None)
        unsigned = unsigned_text(self.session, lost, section) if (lost := removed(doubted, marks)) else ""
        return "; ".join(filter(None, (losses_text(losses(kept, marks)) if kept else "", unsigned)))

    def _check_level(self, name: str, data: LedgerSection) -> None:
        """Check that a spec change voids nothing of a landed range: evaluated under another spec, a record could end in
        both tables, or in none. So a table that lags behind the data table must catch up first.

        :raises SpecWaits: there are slices for it that the data table already has
        """
        table = self.session.tables.find(name)
        state = read_ledger(table.metadata, self._landing.branch) if table else None
        section = state.section(self._landing.name, self.session.lane) if state else None
        if state is None or section is None:
            return
        ledger = TableLedger(table=name, uuid=state.table_uuid, section=section, others=Coverage())
        accepted = self.session.read_state([ledger]).state.accepted[name]
        if behind := Coverage.union(a.coverage & data.covered for a in accepted):
            raise SpecWaits(name, behind)

    def _newest_by_the_log(self, state: LedgerState) -> bool:
        """Return True if everything published by the log is in this table and ledger, by its former landings."""
        log = self.session.control.describe()
        for section in state.sections:
            if (section.control.cluster_id, section.control.topic_id) != (log.cluster_id, log.topic_id):
                return False
            records = self.session.control.read(section.control.partition, None).records
            for e in read_entries(records, section.landing, section.lane):
                if isinstance(e, TablePublished) and e.table == self.name and e.coverage - section.covered:
                    return False
        return True

    @property
    def _is_data_table(self) -> bool:
        return self.name == self._landing.table

    def _has_another_key(self, section: LedgerSection) -> bool:
        return self._is_data_table and section.upsert_key != (*self._landing.upsert.key,)

    def _own(self, state: LedgerState) -> LedgerSection:
        return state.own(self._landing.name, self.session.lane)

    def _change(self, kind: SnapshotKind, change: Callable[[LedgerSection], LedgerSection | None]) -> LedgerState:
        tables, stream = self.session.tables, (self._landing.name, self.session.lane)
        return change_section(tables, self.name, *stream, kind, change, branch=self._landing.branch)

    def _log(self, text: str, *, warns: bool = False) -> None:
        self.session.log(f"{'WARNING: ' if warns else ''}{self.name}: {text}")


def _of_backfills(landing: str, state: LedgerState) -> Coverage:
    """Return what a rollback took away before the first offsets of the live stream."""
    live = state.section(landing, LIVE)
    before = Coverage({p: RangeSet.of((0, at)) for p, at in live.starts.items()} if live else {})
    had, has = (
        Coverage.union(s.covered for s in some if s.landing == landing) for some in (state.undone, state.sections)
    )
    return (had - has) & before


def _log_lost(control: ControlPosition, log: ControlLog) -> str | None:
    """Return why the control topic is not the one that a ledger needs, or ``None``."""
    if (control.cluster_id, control.topic_id) != (log.cluster_id, log.topic_id):
        return f"control topic {control.topic} was recreated or is in another cluster"
    if control.read_from > log.end:
        return f"control topic {control.topic} ends at {log.end}, before the position {control.read_from} of the ledger"
    if control.low is not None and log.begin > control.low:
        return f"retention cut control topic {control.topic} at {log.begin}; records needed from {control.low}"
    return None


def _is_cut(control: ControlPosition, log: ControlLog) -> bool:
    """Return True if the rest of the log belongs to the ledger."""
    return (control.cluster_id, control.topic_id) == (log.cluster_id, log.topic_id) and control.read_from <= log.end


def _starts_text(starts: Mapping[SourcePartition, int]) -> str:
    return ", ".join(f"{p}@{o}" for p, o in sorted(starts.items()))


def _with_starts(section: LedgerSection, added: Mapping[SourcePartition, int]) -> LedgerSection | None:
    known = {p.topic for p in section.starts}
    new = {p: o for p, o in added.items() if p.topic not in known}
    return replace(section, starts={**section.starts, **new}) if new else None
