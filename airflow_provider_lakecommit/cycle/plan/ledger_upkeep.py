# SPDX-License-Identifier: Apache-2.0
"""Settle a table's ledger before planning or publishing: its entries and their epochs.

Contract: :func:`renewed` and :func:`joined` bring the ledger of one table up to date, each change by one
compare-and-swap decided on the entry it finds: a rollback, a lost control topic and a voiding spec change start a new
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
from dataclasses import replace

from pyiceberg.table import Table

from airflow_provider_lakecommit.committer import (
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
from airflow_provider_lakecommit.cycle.plan.reports import endangered, pending_of, unsigned_ranges, unsigned_text
from airflow_provider_lakecommit.cycle.plan.sections import joining_offsets, position_at_end
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.kafka import SourceState


class SpecWaits(Exception):
    """A spec change cannot void yet: ``table`` lacks ranges that the data table has, ``behind`` it."""

    def __init__(self, table: str, behind: Coverage) -> None:
        super().__init__(f"{table} has not yet received {behind}, which is already landed")
        self.table = table
        self.behind = behind


def check_cluster(session: LandingSession, name: str, section: LedgerSection, cluster_id: str) -> None:
    """:raises SourceError: the brokers belong to another cluster than the ledger"""
    if section.cluster_id != cluster_id:
        raise SourceError(
            "LC6012",
            f"{name} holds offsets of Kafka cluster {section.cluster_id}, but landing {session.landing.name} now reads "
            f"cluster {cluster_id}: point it back. If its topics were copied, `{RESET_MIGRATE} SPEC --old HOST:PORT` "
            "compares the records to find where to continue; or state it with `--from same` or `--from "
            "TOPIC:0=OFFSET,…`",
        )


def renewed(
    session: LandingSession, name: str, state: LedgerState, source: SourceState | None, data: LedgerSection | None
) -> LedgerState:
    """Make the changes that need a compare-and-swap before anything else.

    :param source: set while planning
    :param data: the data table's entry, while another table is planned for
    """
    if state.condition is Condition.ROLLED_BACK:
        state = after_rollback(session, name, state, source)
    state = _with_the_log(session, name, state, source)
    if source is not None:
        state = _with_the_spec(session, name, state, data, source)
        return _with_the_topics(session, name, state, data, source)
    if _has_another_key(session, name, state.own(session.landing.name, session.lane)):
        raise LedgerError(
            "LC6020",
            f"`upsert.key` of landing {session.landing.name} has changed since its slices for {name} were planned: "
            "nothing is published, and the next plan reads their records again",
        )
    return state


def joined(session: LandingSession, name: str, table: Table, state: LedgerState, section: LedgerSection) -> LedgerState:
    """Return the ledger with the first entry of this stream; after a rollback, with new epochs of all others."""
    if state.condition is Condition.ROLLED_BACK:
        after_rollback(session, name, state)
    session.log(f"{name}: landing {session.landing.name} joins at {_starts_text(section.starts)}")
    return join_table(
        session.tables, name, section, branch=session.landing.branch, table_uuid=table.metadata.table_uuid
    )


def after_rollback(
    session: LandingSession, name: str, state: LedgerState, source: SourceState | None = None
) -> LedgerState:
    """Return the ledger of a table that was rolled back, under new epochs.

    :raises LedgerError: they would void reported slices that the source no longer has
    """
    branch = session.landing.branch
    own, others = _kept(session, name, state, source, rows=True), endangered(session, name, state)
    if kept := "; ".join(filter(None, (own, *others.values()))):
        if state.newest and _newest_by_the_log(session, name, state):
            session.log(f"{name}: {state.reason}, and there is no newer snapshot; restored the tag and kept {kept}")
            return restore_tag(
                session.tables, name, session.landing.name, session.lane, branch=branch, snapshot_id=state.snapshot_id
            )
        to_tag = "" if state.tag_id is None else f" on snapshot {state.tag_id}"
        raise LedgerError(
            "LC6001",
            f"{name}: {state.reason}; a new epoch would void reported slices that the source no longer has: {kept}. "
            f"Nothing is changed: put the branch back{to_tag} to publish them, or give them up with "
            f"`{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
        )
    check_tags(session.tables, name, state)
    session.log(f"WARNING: {name}: {state.reason}; pending slices were voided and are read again (new epoch)")
    if gone := _of_backfills(session.landing.name, state):
        session.log(f"WARNING: {name}: {gone}, which backfills had landed, is only read again by `{BACKFILL} SPEC`")
    return renew_epochs(session.tables, name, session.landing.name, session.lane, branch=branch)


def _of_backfills(landing: str, state: LedgerState) -> Coverage:
    """Return what a rollback took away before the first offsets of the live stream."""
    live = state.section(landing, LIVE)
    before = Coverage({p: RangeSet.of((0, at)) for p, at in live.starts.items()} if live else {})
    had, has = (
        Coverage.union(s.covered for s in some if s.landing == landing) for some in (state.undone, state.sections)
    )
    return (had - has) & before


def _with_the_log(session: LandingSession, name: str, state: LedgerState, source: SourceState | None) -> LedgerState:
    """Check the control topic: another one than the ledger's knows nothing of pending slices; one that was cut knows
    the rest, of which unreadable ranges are published first.
    """
    section = state.own(session.landing.name, session.lane)
    old, log = section.control, session.control.read(section.control.partition, BEYOND)
    # A landing's topics are all in one cluster, and another cluster reports nothing on pending slices.
    check_cluster(session, name, section, log.cluster_id)
    if (why := _log_lost(old, log)) is None:
        return state
    if old.topic != session.control.name and (kept := _kept(session, name, state, source)):
        raise LedgerError(
            "LC6002",
            f"{name}: landing {session.landing.name} has its records in control topic {old.topic}, but now uses "
            f"{session.control.name}; this would lose reported slices that the source no longer has: {kept}. "
            f"Nothing is changed: name control topic {old.topic} again until `{LAND} SPEC` has published them, "
            f"or give them up with `{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
        )
    if _is_cut(old, log) and (kept := _kept(session, name, state, source)):
        session.log(f"{name}: {why}; the new epoch waits until {kept} is published: the source no longer has it")
        return state
    session.log(f"WARNING: {name}: {why}; pending slices were voided and are read again (new epoch)")
    new = position_at_end(session, log)
    return _change(
        session,
        name,
        SnapshotKind.EPOCH,
        lambda s: replace(s, epoch=session.new_id(), control=new) if s.control == old else None,
    )


def _with_the_spec(
    session: LandingSession, name: str, state: LedgerState, data: LedgerSection | None, source: SourceState
) -> LedgerState:
    """Void pending slices after a spec change, if the landing wants it or has another key, no table lags behind the
    data table, and all can be read again.
    """
    section, current = state.own(session.landing.name, session.lane), session.landing.spec_version
    # Slices keep the last change of each key that they were read by. Once there are rows, `reset key` changes the key.
    other_key = _has_another_key(session, name, section) if data is None else not data.covered
    if section.spec_version == current or not (other_key or session.landing.window.on_spec_change == "void"):
        return state
    if kept := _kept(session, name, state, source):
        session.log(f"{name}: the spec changed; {kept} is published with its old spec: the source no longer has it")
        return state
    if data is not None and data.spec_version != current:
        # Slices waiting for the data table wait for all: under two specs a record could end in both tables, or none.
        return state
    session.log(f"{name}: the spec changed from {section.spec_version} to {current}; voided the pending slices")
    if data is None:
        for other in session.landing.tables[1:]:
            _check_level(session, other, section)
    else:
        _check_level(session, name, data)
    key = (*session.landing.upsert.key,) if name == session.landing.table else section.upsert_key

    def voiding(now: LedgerSection) -> LedgerSection | None:
        new = replace(now, epoch=session.new_id(), spec_version=current, upsert_key=key)
        return new if now.spec_version != current else None

    return _change(session, name, SnapshotKind.EPOCH, voiding)


def _has_another_key(session: LandingSession, name: str, section: LedgerSection) -> bool:
    return name == session.landing.table and section.upsert_key != (*session.landing.upsert.key,)


def _with_the_topics(
    session: LandingSession, name: str, state: LedgerState, data: LedgerSection | None, source: SourceState
) -> LedgerState:
    """Add topics that are new in the landing, from where the landing starts, or where the data table began them."""
    known = {p.topic for p in state.own(session.landing.name, session.lane).starts}
    new = {p: mark for p, mark in source.partitions.items() if p.topic not in known}
    there = {(p.topic, p.topic_id) for p in data.starts} if data else set()
    begun = {p: data.starts.get(p, 0) for p in new if data and (p.topic, p.topic_id) in there}
    added = begun | joining_offsets(session, {p: mark for p, mark in new.items() if p not in begun})
    if not added:
        return state
    session.log(f"{name}: added a topic from {_starts_text(added)}")
    return _change(session, name, SnapshotKind.ORIGIN, lambda s: _with_starts(s, added))


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


def _kept(
    session: LandingSession, name: str, state: LedgerState, source: SourceState | None, *, rows: bool = False
) -> str:
    """Return what is pending for a table and cannot be read again. Unverified reports count too: a process with their
    key may publish them.

    :param rows: only what has rows for this table, not what it has passed
    :raises SourceUnavailableError: something is pending, and the source does not report its offsets
    """
    section = state.section(session.landing.name, session.lane)
    pending = () if section is None else pending_of(session, name, state.table_uuid, section)
    doubted = Coverage() if section is None else unsigned_ranges(session, name, section)
    if section is None or not (pending or doubted):
        return ""
    marks = (source or session.source.watermarks(missing_ok=True)).partitions
    kept = irreplaceable(pending, marks, name if rows else None)
    unsigned = unsigned_text(session, lost, section) if (lost := removed(doubted, marks)) else ""
    return "; ".join(filter(None, (losses_text(losses(kept, marks)) if kept else "", unsigned)))


def _check_level(session: LandingSession, name: str, data: LedgerSection) -> None:
    """Check that a spec change voids nothing of a landed range: evaluated under another spec, a record could end in
    both tables, or in none. So a table that lags behind the data table must catch up first.

    :raises SpecWaits: there are slices for it that the data table already has
    """
    table = session.tables.find(name)
    state = read_ledger(table.metadata, session.landing.branch) if table else None
    section = state.section(session.landing.name, session.lane) if state else None
    if state is None or section is None:
        return
    ledger = TableLedger(table=name, uuid=state.table_uuid, section=section, others=Coverage())
    behind = Coverage()
    for accepted in session.read_state([ledger]).state.accepted[name]:
        behind |= accepted.coverage & data.covered
    if behind:
        raise SpecWaits(name, behind)


def _starts_text(starts: Mapping[SourcePartition, int]) -> str:
    return ", ".join(f"{p}@{o}" for p, o in sorted(starts.items()))


def _with_starts(section: LedgerSection, added: Mapping[SourcePartition, int]) -> LedgerSection | None:
    known = {p.topic for p in section.starts}
    new = {p: o for p, o in added.items() if p.topic not in known}
    return replace(section, starts={**section.starts, **new}) if new else None


def _change(
    session: LandingSession, name: str, kind: SnapshotKind, change: Callable[[LedgerSection], LedgerSection | None]
) -> LedgerState:
    return change_section(
        session.tables, name, session.landing.name, session.lane, kind, change, branch=session.landing.branch
    )


def _newest_by_the_log(session: LandingSession, name: str, state: LedgerState) -> bool:
    """Return True if everything published by the log is in this table and ledger, by its former landings."""
    log = session.control.describe()
    for section in state.sections:
        if (section.control.cluster_id, section.control.topic_id) != (log.cluster_id, log.topic_id):
            return False
        records = session.control.read(section.control.partition, None).records
        for e in read_entries(records, section.landing, section.lane):
            if isinstance(e, TablePublished) and e.table == name and e.coverage - section.covered:
                return False
    return True
