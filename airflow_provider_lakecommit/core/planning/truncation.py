# SPDX-License-Identifier: Apache-2.0
"""Detect logs that lost their end and grew again (KIP-320).

Every reader of a partition records a :class:`~airflow_provider_lakecommit.core.model.ReadPosition`: the leader epoch of
the last record before an offset. A log can lose records only with a new leader, and Kafka raises the epoch with each.
A position with the current epoch holds. For others the broker is asked where its records of that epoch end: before the
position means that the log has other records from there on.

Brokers that report no epochs, and older ledgers, leave nothing to check; the plan still detects a log shorter than the
ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.state import LandingState

PartitionPosition = tuple[SourcePartition, ReadPosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A position that does not hold: the log has other records from ``end`` on; ``None`` if nobody can tell from
    where.
    """

    partition: SourcePartition
    position: ReadPosition
    end: int | None

    def concerns(self, p: SourcePartition, at: ReadPosition) -> bool:
        """Return True if another position of that partition does not hold either."""
        older = at.leader_epoch <= self.position.leader_epoch
        return p == self.partition and older and (self.end is None or at.offset > self.end)


def known_positions(landing_state: LandingState) -> list[PartitionPosition]:
    """Return the positions of landed and of accepted ranges."""
    ledgers = landing_state.ledgers.values()
    positions = [item for ledger in ledgers for item in (*ledger.section.positions.items(), *ledger.elsewhere)]
    reports = (a.report for accepted in landing_state.accepted.values() for a in accepted)
    return positions + [(s.span.partition, s.position) for r in reports for s in r.spans if s.position is not None]


def in_doubt(
    positions: Iterable[PartitionPosition], watermarks: Mapping[SourcePartition, Watermark]
) -> list[PartitionPosition]:
    """Return positions that need confirmation; per epoch the furthest, which confirms those before it."""
    epochs = {p: mark.leader_epoch for p, mark in watermarks.items()}
    return _furthest((p, at) for p, at in positions if epochs.get(p) not in (None, at.leader_epoch))


def outdated(positions: Collection[PartitionPosition]) -> list[PartitionPosition]:
    """Return positions of partitions that were also read under later epochs; per older epoch the furthest.

    The log may have changed between the two readings.
    """
    latest: dict[SourcePartition, int] = {}
    for p, at in positions:
        latest[p] = max(at.leader_epoch, latest.get(p, 0))
    return _furthest((p, at) for p, at in positions if at.leader_epoch < latest[p])


def _furthest(positions: Iterable[PartitionPosition]) -> list[PartitionPosition]:
    out: dict[tuple[SourcePartition, int], int] = {}
    for p, at in positions:
        out[p, at.leader_epoch] = max(at.offset, out.get((p, at.leader_epoch), 0))
    return [(p, ReadPosition(offset=o, leader_epoch=epoch)) for (p, epoch), o in sorted(out.items())]


def positions_up_to(
    known: Mapping[SourcePartition, ReadPosition], ends: Mapping[SourcePartition, int]
) -> dict[SourcePartition, ReadPosition]:
    """Return positions cut to offsets that a user asserts as landed.

    A smaller offset has no record of a later epoch before it, so the log still confirms or refutes it.
    """
    found = {p: replace(at, offset=min(at.offset, ends.get(p, 0))) for p, at in known.items()}
    return {p: at for p, at in found.items() if at.offset}


def newest_positions(positions: Iterable[PartitionPosition]) -> dict[SourcePartition, ReadPosition]:
    out: dict[SourcePartition, ReadPosition] = {}
    for p, at in positions:
        if p not in out or out[p].offset < at.offset:
            out[p] = at
    return out


def first_offsets_of(found: Iterable[Truncation]) -> dict[SourcePartition, int]:
    """Return from where each log has other records; its start if unknown."""
    out: dict[SourcePartition, int] = {}
    for d in found:
        end = 0 if d.end is None else d.end
        out[d.partition] = min(end, out.get(d.partition, end))
    return out


def goes_on_at(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[SourcePartition, int]:
    """Return from where these logs must be read so that no record is skipped: ranges that a table lacks come first."""
    ends = {p: [end] for p, end in diverged.items()}
    for table, ledger in landing_state.ledgers.items():
        passed = Coverage.union(a.coverage for a in landing_state.accepted[table] if not a.matters(table))
        for p, found in ends.items():
            found.append((ledger.has(p) | passed[p]).reach(ledger.section.starts.get(p, 0)))
    return {p: min(found) for p, found in sorted(ends.items())}


def reported_rows(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[str, Coverage]:
    """Return the unpublished reports of each table that the logs no longer have."""
    out: dict[str, Coverage] = {}
    for table, accepted in landing_state.accepted.items():
        reported = Coverage.union(a.coverage for a in accepted if a.matters(table))
        lost = {p: RangeSet.of((end, max(end, reported[p].reach(end)))) for p, end in diverged.items()}
        out[table] = reported & Coverage(lost)
    return {table: coverage for table, coverage in out.items() if coverage}


def lost_rows(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[str, Coverage]:
    """Return the landed ranges of each table that the logs no longer have."""
    out: dict[str, Coverage] = {}
    for table, ledger in landing_state.ledgers.items():
        lost = {p: RangeSet.of((end, max(end, ledger.end(p)))) for p, end in diverged.items()}
        out[table] = ledger.section.covered & Coverage(lost)
    return {table: coverage for table, coverage in out.items() if coverage}
