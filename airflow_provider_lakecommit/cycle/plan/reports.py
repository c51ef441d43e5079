# SPDX-License-Identifier: Apache-2.0
"""Reported slices that are not in their table, before the epoch of a ledger ends or a range is given up: of this
landing and of others in the same table, including former ledgers in the metadata and former control topics.

Contract: reads only. A ledger names the control topic with its landing's records, and that topic is read, whatever
topic the landing has now. Nothing is known if a table never had a ledger of this stream, or if the ledger's topic is
missing or was recreated.

Reports in unverified control records (another landing has another signing key, or a key was introduced, changed or
removed too early) are not pending work: nobody here publishes them. Their ranges are read again, which loses nothing
while the source has them. Otherwise their rows may be in storage, and a process with the key could publish them: they
are endangered too, and the remedy is to accept these records, not to give up their offsets.

Failure story: if another landing's control topic is not readable, its pending slices are unknown, which is logged. If
its source is not readable, all its reported slices count as impossible to read again. Any writer of the topic can forge
unverified records: the operator's ``--give-up-reported`` overrides them, and a plan refused for lost offsets is refused
without them, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.control import entry_of, read_decided, read_entries
from airflow_provider_lakecommit.core import (
    AcceptedSlice,
    ControlPosition,
    Coverage,
    LandingState,
    LedgerSection,
    Missing,
    SliceReported,
    SourcePartition,
    TableLedger,
    Watermark,
    find_missing,
    irreplaceable,
    losses,
    losses_text,
    removed,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.exceptions import ControlTopicError, SourceError
from airflow_provider_lakecommit.iceberg import LedgerState, read_ledger
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.signing import OTHER_KEY, UNSIGNED_BELOW


@contextmanager
def log_of(session: LandingSession, position: ControlPosition) -> Iterator[ControlPort | None]:
    """Yield the control topic that a ledger names; ``None`` if it is missing or was recreated.

    :raises ControlTopicError: it cannot be read
    """
    own = position.topic == session.control.name
    control = session.control if own else session.control.other(position.topic)
    try:
        info = control.describe() if own or control.exists() else None
        same = info is not None and (info.cluster_id, info.topic_id) == (position.cluster_id, position.topic_id)
        yield control if same else None
    finally:
        if not own:
            control.close()


def all_sections(states: Iterable[LedgerState | None]) -> tuple[LedgerSection, ...]:
    """Return all entries of ledgers, also those that a rollback took away."""
    return tuple(s for state in states if state is not None for s in (*state.known_sections, *state.undone))


def known_section(session: LandingSession, state: LedgerState) -> LedgerSection | None:
    """Return this stream's entry, from the ledger or the newest one in the metadata."""
    key = (session.landing.name, session.lane)
    return next((s for s in state.known_sections if (s.landing, s.lane) == key), None)


def known_state(session: LandingSession, states: Mapping[str, LedgerState | None]) -> LandingState | None:
    """Return the log folded over the known ledgers; ``None`` if there are none, or the log is another one."""
    ledgers = [ledger for name, s in states.items() if s is not None and (ledger := _ledger(session, name, s))]
    logs = {(t.section.control.cluster_id, t.section.control.topic_id, t.section.control.partition) for t in ledgers}
    if len(logs) != 1:
        return None
    first = ledgers[0].section.control
    with log_of(session, first) as control:
        if control is None:
            return None
        if control is session.control:
            return session.read_state(ledgers).state
        log = read_decided(control, first.partition, min(t.section.control.read_from for t in ledgers))
    entries = read_entries(log.records, session.landing.name, session.lane)
    return fold(entries, ledgers, session.landing.window.completion_timeout)


def own_partition(session: LandingSession) -> int:
    """Return the control partition of this landing: the one in its ledger, while the topic is the same, so that all
    tables share it; without a ledger, the one of the hash.
    """
    info = session.control.describe()
    for name in session.landing.tables:
        table = session.tables.find(name)
        section = None if table is None else known_section(session, read_ledger(table.metadata, session.landing.branch))
        if section and (section.control.cluster_id, section.control.topic_id) == (info.cluster_id, info.topic_id):
            return section.control.partition
    return session.control.partition_for(session.landing.group_id)


def pending_of(session: LandingSession, name: str, uuid: UUID, section: LedgerSection) -> tuple[AcceptedSlice, ...]:
    """Return what an entry's landing has reported for a table and not published, by the entry's control topic.

    :raises ControlTopicError: that topic cannot be read
    """
    with log_of(session, section.control) as control:
        if control is None:
            return ()
        log = read_decided(control, section.control.partition, section.control.read_from)
    ledger = TableLedger(table=name, uuid=uuid, section=section, others=Coverage())
    entries = read_entries(log.records, section.landing, section.lane)
    return fold(entries, [ledger], session.landing.window.completion_timeout).accepted[name]


def endangered(
    session: LandingSession, name: str, state: LedgerState, landings: Collection[tuple[str, str]] | None = None
) -> dict[UUID, str]:
    """Return what other landings' entries have reported for a table and cannot be read again, by epoch: a new epoch
    would lose it.

    :param landings: only these, by name and stream; also this landing, if named
    :raises ControlTopicError: this landing's control topic cannot be read
    :raises SourceUnavailableError: something is pending, and the brokers do not report its offsets
    """
    own = (session.landing.name, session.lane)
    checked = [
        s
        for s in state.known_sections
        if ((s.landing, s.lane) != own if landings is None else (s.landing, s.lane) in landings)
    ]
    found = {s.epoch: _lost(session, name, state.table_uuid, s) for s in checked}
    return {epoch: text for epoch, text in found.items() if text}


def _lost(session: LandingSession, name: str, uuid: UUID, section: LedgerSection) -> str:
    try:
        pending, doubted = pending_of(session, name, uuid, section), unsigned_ranges(session, name, section)
    except ControlTopicError as e:
        if (section.landing, section.lane) == (session.landing.name, session.lane):
            raise
        session.log(f"{name}: could not read the reports of landing {section.landing}: {e}")
        return ""
    topics = {p.topic for coverage in (doubted, *(a.coverage for a in pending)) for p in coverage.parts}
    marks = _marks(session, section, tuple(sorted(topics))) if topics else {}
    lost = irreplaceable(pending, marks, name)
    parts = [f"of landing {section.landing} {losses_text(losses(lost, marks))}"] if lost else []
    if unsigned := removed(doubted, marks):
        parts.append(f"of landing {section.landing}, as {unsigned_text(session, unsigned, section)}")
    return "; ".join(parts)


def _marks(
    session: LandingSession, section: LedgerSection, topics: tuple[str, ...]
) -> Mapping[SourcePartition, Watermark]:
    """Return the offsets of another landing's topics; empty if they cannot be read."""
    with closing(session.source.of(topics)) as source:
        try:
            found = source.watermarks(missing_ok=True)
        except SourceError:
            return {}
    return found.partitions if found.cluster_id == section.cluster_id else {}


def _ledger(session: LandingSession, name: str, state: LedgerState) -> TableLedger | None:
    own = known_section(session, state)
    if own is None:
        return None
    others = (s for s in state.known_sections if s is not own)
    covered = Coverage.of(item for s in others for item in s.covered.items())
    return TableLedger(table=name, uuid=state.table_uuid, section=own, others=covered)


def unsigned_ranges(session: LandingSession, table: str, section: LedgerSection) -> Coverage:
    """Return the ranges that unverified records report for a table, under an entry's epoch, and that it lacks. Topics
    of other entries are ignored.

    :raises ControlTopicError: the entry's control topic cannot be read
    """
    if not session.signed:
        return Coverage()
    with log_of(session, section.control) as control:
        records = control.read(section.control.partition, section.control.read_from).records if control else ()
    unsigned = Coverage()
    for record in records:
        if record.doubt is None:
            continue
        entry = entry_of(replace(record, doubt=None), section.landing, section.lane)
        of = entry.report.table(table) if isinstance(entry, SliceReported) else None
        if isinstance(entry, SliceReported) and of is not None and of.epoch == section.epoch:
            unsigned = unsigned | entry.report.coverage
    return Coverage({p: unsigned[p] for p in section.starts}) - section.covered


def unsigned_text(session: LandingSession, ranges: Coverage, section: LedgerSection) -> str:
    """Return what to do about them."""
    at = section.control
    with log_of(session, at) as control:
        end = control.read(at.partition, BEYOND).end if control else at.read_from
    return (
        f"unverified records of {at.topic} report {ranges}. If they are from the "
        f"time before the signing key, accept them with `{UNSIGNED_BELOW}: {at.topic_id}/{at.partition}:{end}`"
        f"; if they are signed with an earlier key, state it as `{OTHER_KEY}`"
    )


def missing_ranges(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    claims: Coverage,
    diverged: Collection[SourcePartition] = (),
) -> Missing:
    """Return the missing ranges; if they are lost, the error includes unverified reports on them.

    :param diverged: partitions of which nothing is planned
    :raises SourceError: the source has removed what the data table lacks
    """
    try:
        return find_missing(landing_state, source.partitions, claims, diverged)
    except SourceError as e:
        for name, ledger in landing_state.ledgers.items():
            unsigned = unsigned_ranges(session, name, ledger.section)
            if unsigned := removed(unsigned, source.partitions):
                raise SourceError(
                    "LC6019", f"{e}. Before that: {unsigned_text(session, unsigned, ledger.section)}"
                ) from e
        raise
