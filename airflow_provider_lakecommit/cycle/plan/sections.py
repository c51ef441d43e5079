# SPDX-License-Identifier: Apache-2.0
"""Ledger entries of a stream: found in a ledger, or new, with their first offsets and log position.

Contract: nothing is written. A new entry has a new epoch. A topic that the landing has never landed begins at ``start``
of the landing. With ``latest``, a topic that the landing's set has landed before, in another table, begins where the
set began it, or where the source begins now: so moving a topic to another table omits no record.

Failure story: the set's other landings are found in the newest records of the control topic, and their offsets in their
tables' ledgers. A landing with a missing table or only older records is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from airflow_provider_lakecommit.committer import read_ledger
from airflow_provider_lakecommit.control import ControlLog
from airflow_provider_lakecommit.core import (
    AdoptedSink,
    ControlPosition,
    Coverage,
    LedgerSection,
    RangeSet,
    ReadPosition,
    SourcePartition,
    Watermark,
    evaluated_in,
    set_of,
)
from airflow_provider_lakecommit.cycle.plan.known import left_by_former
from airflow_provider_lakecommit.cycle.plan.reports import own_partition
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.kafka import SourceState


def new_section(
    session: LandingSession,
    source: SourceState,
    starts: Mapping[SourcePartition, int],
    covered: Coverage,
    control: ControlPosition,
    *,
    before: LedgerSection | None = None,
    positions: Mapping[SourcePartition, ReadPosition] = MappingProxyType({}),
    known: Iterable[LedgerSection],
) -> LedgerSection:
    """Return an entry of this stream under a new epoch and a new generation.

    :param before: the entry that it replaces: its estimates, sink, rules of evaluated ranges, suspension, and readings
        of rows in the table are kept
    :param positions: its positions that still hold
    :param known: all entries of the landing's tables, whose readings are different ones
    """
    return LedgerSection(
        landing=session.landing.name,
        lane=session.lane,
        cluster_id=source.cluster_id,
        epoch=session.new_id(),
        spec_version=session.landing.spec_version,
        starts=dict(starts),
        covered=covered,
        control=control,
        record_bytes=before.record_bytes if before else 0,
        evaluated=evaluated_in(before.evaluated, covered) if before else {},
        positions=dict(positions),
        suspended=before.suspended if before else "",
        sink=_sink_of(before, covered),
        replayed=before.closed_with(covered) if before else Coverage(),
        generation=next_generation(session, before, *known),
        provenance=before.provenance if before else (),
        upsert_key=before.upsert_key if before else (*session.landing.upsert.key,),
    )


def first_section(
    session: LandingSession, source: SourceState, data: LedgerSection | None, known: Iterable[LedgerSection]
) -> LedgerSection:
    """Return the first entry of a stream: at ``start`` for the data table, at the data table's end for a later one.

    :param known: all entries of the table
    """
    if data is None:
        starts, control = joining_offsets(session, source.partitions), initial_position(session)
    else:
        behind = left_by_former(session, data)
        starts = {p: _first(behind[p], data.end(p)) for p in data.starts.keys() | source.partitions.keys()}
        control = data.control
    positions = positions_at(starts, source.partitions)
    return new_section(session, source, starts, Coverage(), control, positions=positions, known=known)


def _first(ranges: RangeSet, end: int) -> int:
    return min(end, ranges.ranges[0].start) if ranges else end


def _sink_of(before: LedgerSection | None, covered: Coverage) -> AdoptedSink | None:
    """Return the sink of an entry; its ranges that are read again become the landing's."""
    sink = None if before is None else before.sink
    return None if sink is None else replace(sink, landed=sink.landed & covered)


def positions_at(
    offsets: Mapping[SourcePartition, int], marks: Mapping[SourcePartition, Watermark]
) -> dict[SourcePartition, ReadPosition]:
    """Return the positions of a reading that begins at these offsets and accepts the log before them as it is now: so a
    log that loses its end before the first read is noticed.
    """
    epochs = {p: mark.leader_epoch for p, mark in marks.items()}
    return {
        p: ReadPosition(offset=offset, leader_epoch=epoch)
        for p, offset in offsets.items()
        if offset and (epoch := epochs.get(p)) is not None
    }


def next_generation(session: LandingSession, *before: LedgerSection | None) -> int:
    """Return the generation of a reading that begins now: seconds since 1970, so that it is unique even without a
    ledger of earlier readings; greater than known ones, whatever the clock says.
    """
    known = (g for s in before if s is not None for g in (s.generation, *(e.generation for e in s.provenance)))
    return max(int(session.now().timestamp()), *(g + 1 for g in known), 0)


def first_offsets(partitions: Mapping[SourcePartition, Watermark], start: str) -> dict[SourcePartition, int]:
    """Return the offset of ``earliest`` or ``latest`` in each partition."""
    return {p: w.start if start == "earliest" else w.stable for p, w in partitions.items()}


def initial_position(session: LandingSession) -> ControlPosition:
    """Return the end of the landing's control partition: a new ledger ignores earlier records."""
    return position_at_end(session, session.control.read(own_partition(session), BEYOND))


def position_at_end(session: LandingSession, log: ControlLog) -> ControlPosition:
    """Return a log's end as a ledger position that needs nothing before it."""
    return ControlPosition(
        cluster_id=log.cluster_id,
        topic=session.control.name,
        topic_id=log.topic_id,
        partition=log.partition,
        read_from=log.end,
        low=None,
    )


def joining_offsets(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark]
) -> dict[SourcePartition, int]:
    """Return the first offset of each of these partitions.

    :raises CatalogError: the catalog is unavailable
    :raises ControlTopicError: the control topic cannot be read
    """
    landing = session.landing
    firsts = first_offsets(partitions, landing.window.start)
    name = set_of(landing.name, landing.table)
    if landing.window.start == "earliest" or not partitions or not name:
        return firsts
    begun = _begun_by(session, f"{name}.")
    return {p: min(at, max(begun.get(p, at), partitions[p].start)) for p, at in firsts.items()}


def _begun_by(session: LandingSession, prefix: str) -> dict[SourcePartition, int]:
    """Return where the other landings of a set began each partition."""
    out: dict[SourcePartition, int] = {}
    for name in session.control.recent(prefix):
        if name != session.landing.name and "." in name.removeprefix(prefix):
            for p, start in _starts_of(session, name, name.removeprefix(prefix)):
                out[p] = min(start, out.get(p, start))
    return out


def _starts_of(session: LandingSession, landing: str, table: str) -> Iterator[tuple[SourcePartition, int]]:
    found = session.tables.find(table)
    if found is None:
        return
    try:
        state = read_ledger(found.metadata, session.landing.branch)
    except TableError as e:
        session.log(f"WARNING: the first offsets of landing {landing} are unknown: {e}")
        return
    for section in state.known_sections:
        if section.landing == landing:
            yield from section.starts.items()
