# SPDX-License-Identifier: Apache-2.0
"""A log that lost its end and grew again: which of what was read of it may not be of it any more.

Contract: pure. Whoever reads a partition remembers a :class:`~airflow_provider_lakecommit.core.model.ReadPosition`:
the leader epoch under which the last record before an offset was written. Kafka raises the epoch with every new
leader, and a log can lose records only with one (unclean election, a broker that restarts without its newest segments,
a copy that is put back). So a position whose epoch is still the leader's holds, and of the others the broker is asked
where its records of that epoch end (KIP-320): before the position means that from there on the log has other records.

Failure story: a broker that tells no epochs, or a ledger of an earlier release, leaves nothing to be asked; a log that
is shorter than the ledger is found by the plan all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.state import LandingState

Place = tuple[SourcePartition, ReadPosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncation:
    """A position that does not hold: the log has other records from ``end`` on. ``None``: it knows no leader epoch that
    is as old, so that nobody can tell from where.
    """

    partition: SourcePartition
    position: ReadPosition
    end: int | None

    def concerns(self, p: SourcePartition, at: ReadPosition) -> bool:
        """Return True if another position of that partition does not hold either."""
        older = at.leader_epoch <= self.position.leader_epoch
        return p == self.partition and older and (self.end is None or at.offset > self.end)


def known_positions(landing_state: LandingState) -> list[Place]:
    """Of what the tables have, by whatever lane, and of what waits to be published."""
    ledgers = landing_state.ledgers.values()
    places = [place for ledger in ledgers for place in (*ledger.section.positions.items(), *ledger.elsewhere)]
    reports = (a.report for accepted in landing_state.accepted.values() for a in accepted)
    return places + [(s.span.partition, s.position) for r in reports for s in r.spans if s.position is not None]


def in_doubt(places: Iterable[Place], watermarks: Mapping[SourcePartition, Watermark]) -> list[Place]:
    """The positions that another leader has to confirm; of each epoch the furthest, which confirms those before it."""
    epochs = {p: mark.leader_epoch for p, mark in watermarks.items()}
    return _furthest((p, at) for p, at in places if epochs.get(p) not in (None, at.leader_epoch))


def outdated(places: Collection[Place]) -> list[Place]:
    """Positions of partitions that were read under later epochs too: of each epoch but the last one the furthest. The
    log may have been another one between the two readings.
    """
    latest: dict[SourcePartition, int] = {}
    for p, at in places:
        latest[p] = max(at.leader_epoch, latest.get(p, 0))
    return _furthest((p, at) for p, at in places if at.leader_epoch < latest[p])


def _furthest(places: Iterable[Place]) -> list[Place]:
    out: dict[tuple[SourcePartition, int], int] = {}
    for p, at in places:
        out[p, at.leader_epoch] = max(at.offset, out.get((p, at.leader_epoch), 0))
    return [(p, ReadPosition(offset=o, leader_epoch=epoch)) for (p, epoch), o in sorted(out.items())]


def positions_up_to(
    known: Mapping[SourcePartition, ReadPosition], ends: Mapping[SourcePartition, int]
) -> dict[SourcePartition, ReadPosition]:
    """Positions no further than these offsets, which a person says are landed: before a smaller offset there is no
    record of a later epoch, so that the log confirms it or not all the same.
    """
    found = {p: replace(at, offset=min(at.offset, ends.get(p, 0))) for p, at in known.items()}
    return {p: at for p, at in found.items() if at.offset}


def newest_positions(places: Iterable[Place]) -> dict[SourcePartition, ReadPosition]:
    """How far each partition was read."""
    out: dict[SourcePartition, ReadPosition] = {}
    for p, at in places:
        if p not in out or out[p].offset < at.offset:
            out[p] = at
    return out


def first_offsets_of(found: Iterable[Truncation]) -> dict[SourcePartition, int]:
    """From where each of these logs has other records; from its start, where nobody can tell."""
    out: dict[SourcePartition, int] = {}
    for d in found:
        end = 0 if d.end is None else d.end
        out[d.partition] = min(end, out.get(d.partition, end))
    return out


def goes_on_at(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[SourcePartition, int]:
    """From where these logs are to be read, so that no record is passed over: what a table lacks of the part that is as
    it was, comes first.
    """
    ends = {p: [end] for p, end in diverged.items()}
    for table, ledger in landing_state.ledgers.items():
        passed = Coverage.union(a.coverage for a in landing_state.accepted[table] if not a.matters(table))
        for p, found in ends.items():
            found.append((ledger.has(p) | passed[p]).reach(ledger.section.starts.get(p, 0)))
    return {p: min(found) for p, found in sorted(ends.items())}


def reported_rows(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[str, Coverage]:
    """What is reported for each table, and not in it, that the logs no longer have."""
    out: dict[str, Coverage] = {}
    for table, accepted in landing_state.accepted.items():
        reported = Coverage.union(a.coverage for a in accepted if a.matters(table))
        gone = {p: RangeSet.of((end, max(end, reported[p].reach(end)))) for p, end in diverged.items()}
        out[table] = reported & Coverage(gone)
    return {table: coverage for table, coverage in out.items() if coverage}


def lost_rows(landing_state: LandingState, diverged: Mapping[SourcePartition, int]) -> dict[str, Coverage]:
    """What each table has that the logs no longer have."""
    out: dict[str, Coverage] = {}
    for table, ledger in landing_state.ledgers.items():
        gone = {p: RangeSet.of((end, max(end, ledger.end(p)))) for p, end in diverged.items()}
        out[table] = ledger.section.covered & Coverage(gone)
    return {table: coverage for table, coverage in out.items() if coverage}
