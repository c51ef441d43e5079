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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from airflow_provider_lakecommit.control import ControlRecord, read_entries
from airflow_provider_lakecommit.core import LIVE, AcceptedSlice, Coverage, Entry, LedgerSection, irreplaceable
from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.cycle.plan.reports import known_section, log_of, pending_of
from airflow_provider_lakecommit.cycle.plan.start import Release, start_without_tables
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
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
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, for_all
from airflow_provider_lakecommit.landing import Landing, LandingSet

UNKNOWN = "unknown"
"""Placeholder topic of a landing whose topics only its ledger has."""
WHY = "the set no longer has this landing: its reported slices are published"


def former_landings(
    declared: LandingSet, connections: SetConnections, log: Callable[[str], None]
) -> tuple[tuple[FormerLanding, ...], dict[str, BaseException]]:
    """Return the former landings of a set to mention, and unreadable ones with the reason.

    :raises ControlTopicError: the control topic cannot be read
    """
    topics, candidates = {*connections.expansion.topics}, dict[str, FormerLanding]()
    for name, entries in _absent(connections).items():
        of = table_of_name(declared, name, entries)
        if of is not None and (of[1] or topics & {*topics_of_plan(entries)}):
            candidates[name] = _by_log(declared, name, of, entries)

    def step(session: LandingSession) -> FormerLanding:
        return _read_former(session, declared, candidates[session.landing.name], connections)

    ended = for_all(connections, [c.landing for c in candidates.values()], step, log)
    found = [each for each in ended.values() if isinstance(each, FormerLanding)]
    return (
        tuple(each for each in found if each.topics_missing or each.is_open),
        {name: each for name, each in ended.items() if isinstance(each, BaseException)},
    )


def former_named(declared: LandingSet, connections: SetConnections, name: str) -> Landing | None:
    """Return a former landing by its name, for a command on it; ``None`` if no control record and no ledger knows it.

    :raises LakecommitError: the control topic or its table cannot be read
    """
    entries = _absent(connections).get(name, ())
    of = table_of_name(declared, name, entries)
    if of is None:
        # Its records may be older than the ones read; its ledger has it anyway.
        entries, of = (), table_of_name(declared, name, ())
    if of is None:
        return None
    known = _by_log(declared, name, of, entries)
    with connections.session(known.landing, lambda _: None) as session:
        landing = _read_former(session, declared, known, connections).landing
    return None if landing.topic_names == (UNKNOWN,) else landing


def start_former(session: LandingSession, run: RunIdentity, release: Release = lambda _: False) -> Opened:
    """Open a cycle of a former landing that plans nothing; closing it publishes reported slices.

    :raises LakecommitError: the control topic cannot be read or written
    """
    return start_without_tables(session, run, WHY, release)


def _absent(connections: SetConnections) -> dict[str, tuple[Entry, ...]]:
    """Return the newest entries of each landing in the control topic that the set lacks."""
    now = {each.name for each in connections.expansion.landings}
    recent = sorted(connections.recent().items())
    return {name: read_entries(records, name, LIVE) for name, records in recent if name not in now}


def _by_log(declared: LandingSet, name: str, of: tuple[str, bool], entries: Sequence[Entry]) -> FormerLanding:
    """Return a former landing as far as the log knows it.

    :param of: its table, and whether it has the set's name
    """
    table, own = of
    topics, tables = topics_of_plan(entries) or (UNKNOWN,), tables_of(entries) | {table}
    landing = former_landing(declared, name, table, topics, tables)
    return FormerLanding(
        landing=landing, pending=reported_in(entries, table), whole=was_complete(entries), own=own, dropped=True
    )


def _read_former(
    session: LandingSession, declared: LandingSet, known: FormerLanding, connections: SetConnections
) -> FormerLanding:
    """Return it as its ledger knows it; without a ledger, it is as the log knows it."""
    before = known.landing
    state = ledger_state(session, before.table)
    sections = [] if state is None else [s for s in state.known_sections if s.landing == known.name]
    topics = {p.topic for s in sections for p in s.starts}
    if before.topic_names != (UNKNOWN,) or not topics:
        topics |= {*before.topic_names}
    written = (read_entries(_records(session, s), known.name, s.lane) for s in sections if s.ends or s.lane == LIVE)
    tables = {*before.tables}.union(*map(tables_of, written))
    session.landing = landing = former_landing(declared, known.name, before.table, topics, tables)
    missing = known.own and are_missing(declared, landing.topic_names, connections.expansion.known)
    known = replace(known, landing=landing, topics_missing=missing)
    if state is None:
        return known
    return replace(
        known,
        pending=Coverage.union(a.coverage for a in _pending(session, own=known.own)),
        lanes=tuple(sorted({s.lane for s in sections if s.ends})) if known.own else (),
        dropped=False,
    )


def _records(session: LandingSession, section: LedgerSection) -> Sequence[ControlRecord]:
    with log_of(session, section.control) as control:
        return () if control is None else control.read(section.control.partition, section.control.read_from).records


def _pending(session: LandingSession, *, own: bool) -> Iterator[AcceptedSlice]:
    """Yield reported slices that are not in its table; of another set only those that cannot be read again.

    :param own: it has the set's name
    """
    for table in session.landing.tables:
        state = ledger_state(session, table)
        section = None if state is None else known_section(session, state)
        if state is None or section is None:
            continue
        pending = pending_of(session, table, state.table_uuid, section)
        if own:
            yield from (a for a in pending if a.matters(table))
        elif any(a.matters(table) for a in pending):
            marks = session.source.watermarks(missing_ok=True)
            yield from irreplaceable(pending, marks.partitions, table)
