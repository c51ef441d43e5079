# SPDX-License-Identifier: Apache-2.0
"""What is reported and not in its table, before the epoch of a ledger ends: of this landing and of others in the same
table, also by ledgers that only the metadata remember, and by control topics that the landing had before.

Contract: reads only. A ledger names the control topic that its landing's records are in, and that topic is asked,
whatever topic this landing has now. Nothing is known where a table never had a ledger of this lane, or where the topic
that a ledger names is gone or was made anew.

What is reported by records that are not believed here (another landing has another signing key, or a key was changed)
is no pending work: nobody publishes it. But it is in danger all the same: whoever has the key could.

Failure story: of another landing nothing is known where this one may not read its control topic, which is said. Where
the source of another landing may not be looked at, all that it has reported is taken for what cannot be read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from uuid import UUID

from airflow_provider_lakecommit.committer import LedgerState, read_ledger
from airflow_provider_lakecommit.control import read_decided, read_entries
from airflow_provider_lakecommit.core import (
    AcceptedSlice,
    Coverage,
    LandingState,
    LedgerSection,
    SourcePartition,
    TableLedger,
    Watermark,
    gone,
    irreplaceable,
    losses,
    losses_text,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.plan.unbelieved import unbelieved, unbelieved_text
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.named_log import log_of
from airflow_provider_lakecommit.exceptions import ControlTopicError, SourceError

__all__ = ["endangered", "known_section", "known_state", "ledger_state", "own_partition", "pending_of"]


def ledger_state(session: LandingSession, name: str) -> LedgerState | None:
    """The ledger of a table as it is; ``None``: there is no such table.

    :raises CatalogError: the catalog is away
    """
    table = session.tables.find(name)
    return None if table is None else read_ledger(table.metadata, session.landing.branch)


def known_section(session: LandingSession, state: LedgerState) -> LedgerSection | None:
    """The section of this lane: of the ledger, or of the newest one that the metadata remember."""
    key = (session.landing.name, session.lane)
    return next((s for s in state.sections or state.remembered if (s.landing, s.lane) == key), None)


def known_state(session: LandingSession, states: Mapping[str, LedgerState | None]) -> LandingState | None:
    """The log folded over the ledgers that are known; ``None`` where there are none, or the log is another one."""
    ledgers = [ledger for name, s in states.items() if s is not None and (ledger := _ledger(session, name, s))]
    places = {(t.section.control.cluster_id, t.section.control.topic_id, t.section.control.partition) for t in ledgers}
    if len(places) != 1:
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
    """The control partition of this landing: that which a ledger of it names, as long as the topic is the same one, so
    that all tables have one; where there is none, by the hash.
    """
    place = session.control.describe()
    for name in session.landing.tables:
        table = session.tables.find(name)
        section = None if table is None else known_section(session, read_ledger(table.metadata, session.landing.branch))
        if section and (section.control.cluster_id, section.control.topic_id) == (place.cluster_id, place.topic_id):
            return section.control.partition
    return session.control.partition_for(session.landing.group_id)


def pending_of(session: LandingSession, name: str, uuid: UUID, section: LedgerSection) -> tuple[AcceptedSlice, ...]:
    """What is reported for a table by the landing of a section, and not in it, by the log that the section names.

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
    """What the sections of others have reported for a table and nobody can read again, by their epochs: a new epoch
    would lose it.

    :param landings: only these, by name and lane; also this landing's own, if it is named
    :raises ControlTopicError: that of this landing cannot be read
    :raises SourceUnavailableError: something is pending, and the brokers do not tell what they have of it
    """
    own = (session.landing.name, session.lane)
    wanted = [
        s
        for s in state.sections or state.remembered
        if ((s.landing, s.lane) != own if landings is None else (s.landing, s.lane) in landings)
    ]
    found = {s.epoch: _lost(session, name, state.table_uuid, s) for s in wanted}
    return {epoch: text for epoch, text in found.items() if text}


def _lost(session: LandingSession, name: str, uuid: UUID, section: LedgerSection) -> str:
    try:
        pending, doubted = pending_of(session, name, uuid, section), unbelieved(session, name, section)
    except ControlTopicError as e:
        if (section.landing, section.lane) == (session.landing.name, session.lane):
            raise
        session.log(f"{name}: could not read the reports of landing {section.landing}: {e}")
        return ""
    topics = {p.topic for coverage in (doubted, *(a.coverage for a in pending)) for p in coverage.parts}
    marks = _marks(session, section, tuple(sorted(topics))) if topics else {}
    lost = irreplaceable(pending, marks, name)
    said = [f"of landing {section.landing} {losses_text(losses(lost, marks))}"] if lost else []
    if told := gone(doubted, marks):
        said.append(f"of landing {section.landing}, as {unbelieved_text(session, told, section)}")
    return "; ".join(said)


def _marks(
    session: LandingSession, section: LedgerSection, topics: tuple[str, ...]
) -> Mapping[SourcePartition, Watermark]:
    """Of the topics of another landing; none, where they may not be looked at."""
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
    others = (s for s in state.sections or state.remembered if s is not own)
    covered = Coverage.of(item for s in others for item in s.covered.items())
    return TableLedger(table=name, uuid=state.table_uuid, section=own, others=covered)
