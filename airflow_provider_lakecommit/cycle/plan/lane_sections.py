# SPDX-License-Identifier: Apache-2.0
"""New ledger entries of a stream, with their positions in the source and the control topic.

Contract: nothing is written. A new entry has a new epoch and a new generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from airflow_provider_lakecommit.control import ControlLog
from airflow_provider_lakecommit.core import (
    AdoptedSink,
    ControlPosition,
    Coverage,
    LedgerSection,
    ReadPosition,
    SourcePartition,
    Watermark,
    evaluated_in,
)
from airflow_provider_lakecommit.cycle.plan.reports import own_partition
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession
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
