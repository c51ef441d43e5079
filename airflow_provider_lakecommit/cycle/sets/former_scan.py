# SPDX-License-Identifier: Apache-2.0
"""Find former landings of a set in the control topic, with their unpublished slices.

Contract: :func:`former_landings` reads the newest control records of all landings and the ledgers of former landings,
and writes nothing. :func:`start_former` opens a cycle without a window; closing it publishes reported slices, in the
tables that they were written for. Each run opens such a cycle while something is pending, so that its records keep the
landing among the newest. Landings of another set name are only named, and only if they have reported topics of this set
that the source has removed: that other set may still be in use.

Failure story: killed anywhere, the next run finds the same slices pending. A former landing with an unreadable ledger
or log is the failure of that landing only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_provider_lakecommit.control import ControlRecord, read_entries
from airflow_provider_lakecommit.core import LIVE, AcceptedSlice, Coverage, Entry, LedgerSection, irreplaceable
from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.cycle.plan.reports import known_section, log_of, pending_of
from airflow_provider_lakecommit.cycle.plan.start import Release, start_without_tables
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.sets.connections import SetConnections, for_all
from airflow_provider_lakecommit.cycle.sets.former import (
    FormerLanding,
    are_missing,
    former_landing,
    reported_in,
    table_of_name,
    tables_of,
    topics_of_plan,
    was_complete,
)
from airflow_provider_lakecommit.landing import Landing, LandingSet

UNKNOWN = "unknown"
"""Placeholder topic of a landing whose topics only its ledger has."""
WHY = "the set no longer has this landing: its reported slices are published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formers:
    """The former landings to mention, and unreadable ones with the reason."""

    found: tuple[FormerLanding, ...] = ()
    failed: Mapping[str, BaseException] = field(default_factory=dict)

    @property
    def publishing(self) -> tuple[Landing, ...]:
        """Return those with slices to publish."""
        return tuple(each.landing for each in self.found if each.publishes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A landing of the control topic that the set lacks. ``own``: it has the set's name."""

    declared: LandingSet
    name: str
    table: str
    own: bool
    entries: tuple[Entry, ...]

    def landing(self, topics: tuple[str, ...] = (), tables: frozenset[str] = frozenset()) -> Landing:
        """Return it as far as the log and its ledger know it."""
        topics = tuple({*topics, *topics_of_plan(self.entries)}) or (UNKNOWN,)
        tables = tables | tables_of(self.entries) | {self.table}
        return former_landing(self.declared, self.name, self.table, topics, tables)


def former_landings(declared: LandingSet, connections: SetConnections, log: Callable[[str], None]) -> Formers:
    """Find the former landings of a set.

    :raises ControlTopicError: the control topic cannot be read
    """
    topics = {*connections.expansion.topics}
    candidates = {
        c.name: c for c in _candidates(declared, connections) if c.own or topics & {*topics_of_plan(c.entries)}
    }

    def step(session: LandingSession) -> FormerLanding:
        return _read_former(session, candidates[session.landing.name], connections)

    ended = for_all(connections, [c.landing() for c in candidates.values()], step, log)
    found = [each for each in ended.values() if isinstance(each, FormerLanding)]
    return Formers(
        found=tuple(each for each in found if each.topics_missing or each.is_open),
        failed={name: each for name, each in ended.items() if isinstance(each, BaseException)},
    )


def former_named(declared: LandingSet, connections: SetConnections, name: str) -> Landing | None:
    """Return a former landing by its name, for a command on it; ``None`` if no control record and no ledger knows it.

    :raises LakecommitError: the control topic or its table cannot be read
    """
    known = next((c for c in _candidates(declared, connections) if c.name == name), None)
    if known is None and (table := table_of_name(declared, name, ())) is not None:
        # Its records may be older than the ones read; its ledger has it anyway.
        known = _Candidate(declared=declared, name=name, table=table[0], own=True, entries=())
    if known is None:
        return None
    with connections.session(known.landing(), lambda _: None) as session:
        landing = _read_former(session, known, connections).landing
    return None if landing.topic_names == (UNKNOWN,) else landing


def start_former(session: LandingSession, run: RunIdentity, release: Release = lambda _: False) -> Opened:
    """Open a cycle of a former landing that plans nothing; closing it publishes reported slices.

    :raises LakecommitError: the control topic cannot be read or written
    """
    return start_without_tables(session, run, WHY, release)


def _candidates(declared: LandingSet, connections: SetConnections) -> list[_Candidate]:
    now = {each.name for each in connections.expansion.landings}
    found = []
    for name, records in sorted(connections.recent().items()):
        entries = read_entries(records, name, LIVE) if name not in now else ()
        known = table_of_name(declared, name, entries) if name not in now else None
        if known is not None:
            found.append(_Candidate(declared=declared, name=name, table=known[0], own=known[1], entries=entries))
    return found


def _read_former(session: LandingSession, known: _Candidate, connections: SetConnections) -> FormerLanding:
    state = ledger_state(session, known.table)
    sections = [] if state is None else [s for s in state.known_sections if s.landing == known.name]
    topics = tuple({p.topic for s in sections for p in s.starts})
    written = (read_entries(_records(session, s), known.name, s.lane) for s in sections if s.ends or s.lane == LIVE)
    session.landing = landing = known.landing(topics, frozenset().union(*map(tables_of, written)))
    if state is None:
        pending = reported_in(known.entries, known.table)
    else:
        pending = Coverage.union(a.coverage for a in _pending(session, known))
    return FormerLanding(
        landing=landing,
        pending=pending,
        lanes=tuple(sorted({s.lane for s in sections if s.ends})) if known.own else (),
        topics_missing=known.own and are_missing(known.declared, landing.topic_names, connections.expansion.known),
        whole=was_complete(known.entries),
        own=known.own,
        dropped=state is None,
    )


def _records(session: LandingSession, section: LedgerSection) -> Sequence[ControlRecord]:
    with log_of(session, section.control) as control:
        return () if control is None else control.read(section.control.partition, section.control.read_from).records


def _pending(session: LandingSession, known: _Candidate) -> Iterator[AcceptedSlice]:
    """Yield reported slices that are not in its table; of another set only those that cannot be read again."""
    for table in session.landing.tables:
        state = ledger_state(session, table)
        section = None if state is None else known_section(session, state)
        if state is None or section is None:
            continue
        pending = pending_of(session, table, state.table_uuid, section)
        if known.own:
            yield from (a for a in pending if a.matters(table))
        elif any(a.matters(table) for a in pending):
            marks = session.source.watermarks(missing_ok=True)
            yield from irreplaceable(pending, marks.partitions, table)
