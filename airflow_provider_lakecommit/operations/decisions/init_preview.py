# SPDX-License-Identifier: Apache-2.0
"""Preview `lakecommit reset offsets` for each table of a landing, in offsets, before anything is written.

Contract: reads tables, log and source, and writes nothing; the effect is decided in
:mod:`~airflow_provider_lakecommit.operations.decisions.section_init`. A table that was dropped, recreated, or rolled
back to before the landing's first snapshot has no record of what the landing had published in it: that is found in the
control log, and in the newest ledger in the metadata (:func:`published_before`).

Failure story: ranges that retention removed from the control topic are unknown. Reported, unpublished slices count as
reported: they may still be published if the table is restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    Restart,
    SliceReported,
    SourcePartition,
    TablePublished,
    first_offsets_of,
    in_doubt,
    passed_by_all,
    removed,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    LedgerUpkeep,
    all_entries,
    all_sections,
    endangered,
    joining_offsets,
    known_section,
    known_state,
    ledger_state,
    ledger_states,
    remembered,
    unknown_text,
    unsigned_ranges,
)
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, check_no_other, check_turn
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.operations.decisions.section_init import InitPreview, SectionInit, ends_of
from airflow_provider_lakecommit.operations.decisions.starts import (
    PLAIN,
    Start,
    Way,
    check_lane,
    check_no_open_lane,
    check_recreated,
    offsets_of,
)


def init_preview(session: LandingSession, start: Start, way: Way = PLAIN) -> InitPreview:
    """Return the effect of the decision; writes nothing.

    :raises LakecommitError: as :func:`~airflow_provider_lakecommit.operations.decisions.ledger_init.ledger_init`
    """
    settings = section_inits(session, start, way)
    unknown = unknown_text(session, {name: ledger_state(session, name) for name in settings})
    return InitPreview(tables=tuple(s.preview() for s in settings.values()), unknown=unknown, start=start)


def section_inits(session: LandingSession, start: Start, way: Way = PLAIN) -> dict[str, SectionInit]:
    """Return the new ledger entries by table, in the order of the landing."""
    session.control.ensure()
    states = ledger_states(session)
    source = _source(session, states)
    stated = offsets_of(session, source.partitions, start, way)
    for name, known in states.items():
        if known is not None:
            check_no_other(name, session.landing.name, known.known_sections, source.partitions)
    check_lane(session, states, way.fill)
    state = known_state(session, states)
    passed = passed_by_all(state) if state and _in_order(session, states) else {}
    sections = all_sections(states.values())
    settings: dict[str, SectionInit] = {}
    data: Restart | None = None
    for name, ledger in states.items():
        newest = None if ledger is None else known_section(session, ledger)
        # The dead-letter table goes with the data table, which may have been rolled back alone.
        if ledger is not None and name == session.landing.table:
            check_turn(ledger, session.landing.name, name, source.partitions)
            if newest is not None:
                check_recreated(session, newest, source.partitions, stated)
        cut = ledger is not None and ledger.condition is Condition.CUT
        # Of a ledger that was cut the rows are in the table as they were.
        old = newest if cut else None if ledger is None else ledger.section(session.landing.name, session.lane)
        if old is not None:
            LedgerUpkeep(session=session, name=name).check_cluster(old, source.cluster_id)
        in_order = ledger is None or ledger.condition is Condition.PRESENT
        if stated.offsets.keys() >= source.partitions.keys():
            firsts: Mapping[SourcePartition, int] = {}
        else:
            firsts = _firsts(session, name, ledger, old, source) if data is None else ends_of(data, source.partitions)
        published, reported = published_before(session, name, newest) if old is None else (Coverage(), Coverage())
        # Pending work that another control topic has cannot be published.
        own_log = old is None or old.control.topic == session.control.name
        of_sink = session.tables.load(name).metadata if newest is not None and newest.sink is not None else None
        settings[name] = SectionInit(
            name=name,
            source=source,
            stated=stated,
            old=old,
            passed=passed.get(name, Coverage()),
            firsts=firsts,
            diverged=_diverged(session, source, ledger),
            pending=state.accepted.get(name, ()) if state else (),
            publishable=ledger is not None and ledger.newest and own_log,
            remembered=newest,
            rolled_back=ledger is not None and ledger.condition in (Condition.ROLLED_BACK, Condition.PICKED),
            endangered={} if ledger is None or in_order else endangered(session, name, ledger),
            published_before=published,
            reported_before=reported,
            unsigned=removed(unsigned_ranges(session, name, newest), source.partitions) if newest else Coverage(),
            lane=way.fill,
            others=Coverage() if ledger is None else ledger.covered(exclude=(session.landing.name, session.lane)),
            closed=Coverage() if ledger is None else ledger.closed(session.landing.name),
            sections=sections,
            begun=_begun(session, {n: s for n, s in states.items() if n != name}),
            last_sequence=getattr(of_sink, "last_sequence_number", 0) or 0,
            keyed=name == session.landing.table and bool(session.landing.upsert.key),
        )
        found = settings[name].restart(old)
        check_no_open_lane(session.landing.name, name, ledger, found.back)
        data = data or found
    drained = any(s.rescued.published for s in settings.values())
    return {name: replace(s, drained=drained) for name, s in settings.items()}


def _source(session: LandingSession, states: Mapping[str, LedgerState | None]) -> SourceState:
    """Return the source; it is empty for a landing that has landed its topics, all of which were deleted."""
    try:
        return session.source.watermarks()
    except SourceError:
        found = session.source.watermarks(missing_ok=True)
        known = {p.topic for s in states.values() if s and (own := known_section(session, s)) for p in own.starts}
        if found.partitions or not found.missing_topics or not known.issuperset(found.missing_topics):
            raise
        return found


def _begun(session: LandingSession, states: Mapping[str, LedgerState | None]) -> dict[SourcePartition, int]:
    """Return the greatest first offset of each partition in these tables."""
    sections = (s.section(session.landing.name, session.lane) for s in states.values() if s is not None)
    out: dict[SourcePartition, int] = {}
    for p, start in (item for s in sections if s for item in s.starts.items()):
        out[p] = max(start, out.get(p, start))
    return out


def _diverged(session: LandingSession, source: SourceState, state: LedgerState | None) -> dict[SourcePartition, int]:
    """Return from where the logs hold other records than those that a table has of them. One that was rolled back alone
    has none of the records that a log has lost since, though other tables do.
    """
    section = None if state is None else state.section(session.landing.name, session.lane)
    if section is None or section.cluster_id != source.cluster_id:
        return {}
    return first_offsets_of(session.source.diverged(in_doubt(section.positions.items(), source.partitions)))


def _in_order(session: LandingSession, states: Mapping[str, LedgerState | None]) -> bool:
    """Add ranges without rows, which only the log has: the ledger of a table without rows is rarely refreshed. Nothing
    of this is known if a table has no valid ledger.
    """
    return all(
        s and s.condition is Condition.PRESENT and s.section(session.landing.name, session.lane)
        for s in states.values()
    )


def _firsts(
    session: LandingSession, name: str, state: LedgerState | None, old: LedgerSection | None, source: SourceState
) -> dict[SourcePartition, int]:
    """Return where partitions begin that the data table's ledger lacks, as in a plan: a new topic, and a landing that
    never ran, where the landing says; a recreated topic with its first record. The end of the rows of a lost ledger is
    unknown.
    """
    lost = state is not None and state.condition in (Condition.LOST, Condition.CUT)
    if old is None and (lost or remembered(session, name)):
        return {}
    topics = set() if old is None else {p.topic for p in old.starts}
    joined = joining_offsets(session, {p: m for p, m in source.partitions.items() if p.topic not in topics})
    return {p: joined.get(p, mark.start) for p, mark in source.partitions.items()}


def published_before(session: LandingSession, name: str, remembered: LedgerSection | None) -> tuple[Coverage, Coverage]:
    """Return what this stream had published in a table, and what was reported and never came into it.

    :param remembered: the newest ledger of the lane that the table's metadata know, if there is one
    """
    reported: list[Coverage] = []
    published: list[Coverage] = []
    for _, entries in all_entries(session):
        for e in entries:
            if isinstance(e, TablePublished) and e.table == name:
                published.append(e.coverage)
            elif isinstance(e, SliceReported) and (of := e.report.table(name)) is not None and of.rows:
                reported.append(e.report.coverage)
    known = Coverage() if remembered is None else remembered.covered
    had, there = Coverage.union(reported), Coverage.union(published) | known
    return (had & there) | known, had - there
