# SPDX-License-Identifier: Apache-2.0
"""Resolve a decision on where a ledger continues to offsets of the current source.

Contract: reads the source, and writes nothing. A :class:`Way` has the scope of a decision, and how it treats skipped
ranges.

Failure story: offsets that the source does not have are refused with those that it has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_lakecommit.core import (
    BACKFILL,
    CONNECT_ADOPT,
    Coverage,
    LedgerSection,
    SourcePartition,
    StatedOffsets,
    Watermark,
)
from airflow_provider_lakecommit.cycle import LandingSession, first_offsets, offsets_at
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, sink_turn, turn_is_over
from airflow_provider_lakecommit.kafka import check_no_members
from airflow_provider_lakecommit.operations.backfill.preview import check_upsert

Start = str | datetime | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, the first record at or after a time, or an offset per (topic, partition)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The scope and manner of a decision.

    :param only: the affected partitions; all by default
    :param fill: the backfill that gets the skipped ranges; empty: they are given up
    :param again: it moves back over landed ranges, which are read again
    """

    only: Collection[tuple[str, int]] = ()
    fill: str = ""
    again: bool = False


PLAIN = Way()


def check_lane(session: LandingSession, states: Mapping[str, LedgerState | None], lane: str) -> None:
    """:raises LedgerError: the backfill that a decision would open exists
    :raises SpecError: the table cannot take older records
    """
    if lane:
        check_upsert(session.landing)
    there = {s.lane for state in states.values() if state for s in state.sections if s.landing == session.landing.name}
    if lane and lane in there:
        raise LedgerError("LC7044", f"landing {session.landing.name} already has backfill {lane}: choose another name")


def check_no_open_lane(landing: str, table: str, state: LedgerState | None, again: Coverage) -> None:
    """Refuse to read ranges of an open backfill again, unless the ledger needs this decision: then none can be
    closed.
    """
    for s in state.sections if state and state.condition in (Condition.PRESENT, Condition.ROLLED_BACK) else ():
        if s.landing == landing and s.ends and (both := s.bounds & again):
            raise LedgerError(
                "LC7058",
                f"{table}: {both} would be read again, but is in the range of backfill {s.lane} of landing {landing}, "
                f"which is open and may have landed some of it. Nothing is changed. Close it with `{BACKFILL} SPEC "
                f"--close {s.lane}`, then run this command again",
            )


def check_recreated(
    session: LandingSession, own: LedgerSection, marks: Mapping[SourcePartition, Watermark], stated: StatedOffsets
) -> None:
    """Refuse to read records of a recreated topic that a connector has landed in its turn, or still lands.

    :raises ConnectorError: the connector still runs
    :raises LedgerError: the table may have rows of the connector since it was handed back
    """
    if own.sink is None or not turn_is_over(own, marks):
        return
    # Before the table is read: nothing of a stopped connector comes after that.
    check_no_members(session.kafka, own.sink.connector, own.sink.group)
    turn = sink_turn(session.tables.load(session.landing.table).metadata, session.landing.branch, own.sink)
    reads = [f"{p} {o}" for p, m in sorted(marks.items()) if (o := stated.offsets.get(p, m.start)) < m.high]
    if turn.is_untouched or not reads:
        return
    back = f"roll the branch back to snapshot {turn.before}" if turn.before else "remove its rows with your engine"
    raise LedgerError(
        "LC7059",
        f"{session.landing.table}: its topics were recreated in the turn of connector {own.sink.connector}, whose "
        f"{len(turn.landed)} commits since the hand-back may have records of the present ones: read from "
        f"{', '.join(reads)}, they would be in the table twice. Nothing is changed. `{CONNECT_ADOPT} SPEC --connector "
        f"NAME --connect URL --by offsets` continues after the offsets of its consumer group; set these first if "
        f"they are not where its rows of the present topics end. Or {back}, which removes all that it has landed in "
        "its turn, and run this command again",
    )


def offsets_of(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark], start: Start, way: Way
) -> StatedOffsets:
    """Return a decision as offsets of the current source.

    :raises SourceError: the source has no such partition, or its log ends before an offset
    :raises SourceUnavailableError: the brokers do not answer where a time is
    """
    how = StatedOffsets(offsets={}, again=way.again, fill=bool(way.fill))
    if isinstance(start, str | datetime):
        found = first_offsets(partitions, start) if isinstance(start, str) else _at(session, partitions, start)
        _check_known(way.only, partitions)
        meant = {p: o for p, o in found.items() if not way.only or (p.topic, p.partition) in way.only}
        # Back to the earliest offset of a log that lost its end would be over rows that the table has.
        return replace(how, offsets=meant, back=start != "earliest")
    _check_known(start, partitions)
    known = {(p.topic, p.partition): p for p in partitions}
    # Every plan would be refused until the log is as long, and records up to there would never be read.
    ends = {known[key]: (offset, partitions[known[key]].high) for key, offset in start.items()}
    if beyond := [
        f"{p} ends at {high}, not at {offset} or later" for p, (offset, high) in ends.items() if offset > high
    ]:
        raise SourceError(
            "LC7045", f"{'; '.join(beyond)}: nothing is changed; state offsets that the log has, or `latest`"
        )
    return replace(how, offsets={known[key]: offset for key, offset in start.items()})


def _check_known(named: Iterable[tuple[str, int]], partitions: Iterable[SourcePartition]) -> None:
    known = {(p.topic, p.partition) for p in partitions}
    if unknown := [f"{t}[{n}]" for t, n in named if (t, n) not in known]:
        first = ", ".join(f"{t}[{n}]" for t, n in sorted(known)[:3])
        raise SourceError("LC7046", f"{', '.join(unknown)}: the source has no such partition; its first are {first}")


def _at(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark], moment: datetime
) -> dict[SourcePartition, int]:
    """Return the offsets of a time; if no record is so late, the end."""
    found = offsets_at(session.source, partitions, moment)
    return {p: partitions[p].stable if offset is None else offset for p, offset in found.items()}
