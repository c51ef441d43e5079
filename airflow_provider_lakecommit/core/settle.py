# SPDX-License-Identifier: Apache-2.0
"""Settlement: the only place that decides what is published in a table.

Contract: committable is the greatest set of accepted slices in which each is connected, for each of its partitions, to
the end of the ledger through the set itself, or through what other lanes have. So a table's ledger never gets a hole,
an older slice that failed is done again alone, and newer ones wait staged. Slices come out in an order in which every
chunk keeps the ledger contiguous. Of a lane that replaces what the table has nothing is published by appends: all of it
takes the place of the old rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState, TableLedger

__all__ = ["Settlement", "Waiting", "chunks", "holes", "passed_by_all", "passed_ends", "settle", "valid_through"]

NOTHING_COVERED = Coverage()
CLOCKS_APART = timedelta(minutes=5)
"""By which a valid-through time may lie ahead before it is that of a wrong clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A staged slice and the first offset that keeps it from being published; ``None``: all of its lane has to be
    staged.
    """

    slice: AcceptedSlice
    partition: SourcePartition
    behind: int | None

    def __str__(self) -> str:
        if self.behind is None:
            return f"{self.slice.coverage} is staged until all of its lane is, which replaces what is there at once"
        return f"{self.slice.coverage} is staged behind offset {self.behind} of {self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """``ready`` in an order that keeps the ledger contiguous, in steps: slices of one step need each other."""

    steps: tuple[tuple[AcceptedSlice, ...], ...]
    waiting: tuple[Waiting, ...]

    @property
    def ready(self) -> tuple[AcceptedSlice, ...]:
        return tuple(s for step in self.steps for s in step)


def settle(accepted: Sequence[AcceptedSlice], section: LedgerSection, others: Coverage = NOTHING_COVERED) -> Settlement:
    """Choose what can be published now.

    :param accepted: of one table, in log order, disjoint from the ledger and from each other
    :param section: the ledger of that table
    :param others: what other lanes have in it
    """
    if section.replaces:
        all_of_it = (Waiting(slice=s, partition=next(iter(s.coverage.parts)), behind=None) for s in accepted)
        return Settlement(steps=(), waiting=tuple(all_of_it))
    have = section.covered | others
    held = holes([s.coverage for s in accepted], have, section.starts)
    waiting = tuple(Waiting(slice=accepted[n], partition=p, behind=behind) for n, (p, behind) in held.items())
    chosen = [s for n, s in enumerate(accepted) if n not in held]
    return Settlement(steps=_steps(chosen, have, section.starts), waiting=waiting)


def holes(
    wanted: Sequence[Coverage], have: Coverage, starts: Mapping[SourcePartition, int]
) -> dict[int, tuple[SourcePartition, int]]:
    """Which of the wanted coverages are not connected to what a table has through the others that are, by their place,
    each with the first missing offset that holds it up. What is left is the greatest connected set.

    :param have: what the table has; a partition that is not in ``starts`` starts at 0
    """
    chosen = dict(enumerate(wanted))
    held: dict[int, tuple[SourcePartition, int]] = {}
    while True:
        through = Coverage.union(chosen.values())
        reach = {p: (have[p] | through[p]).reach(have[p].reach(starts.get(p, 0))) for p in through.parts}
        gaps = {n: gap for n, c in chosen.items() if (gap := _gap(c, reach))}
        if not gaps:
            return held
        held.update(gaps)
        chosen = {n: c for n, c in chosen.items() if n not in gaps}


def _gap(coverage: Coverage, reach: Mapping[SourcePartition, int]) -> tuple[SourcePartition, int] | None:
    return next(((p, reach[p]) for p, r in coverage.items() if r.end > reach[p]), None)


def _steps(
    chosen: list[AcceptedSlice], have: Coverage, starts: Mapping[SourcePartition, int]
) -> tuple[tuple[AcceptedSlice, ...], ...]:
    """Order so that each step starts where the steps before it end; slices that need each other make one step
    together.
    """
    frontier = {p: have[p].reach(starts.get(p, 0)) for s in chosen for p in s.coverage.parts}
    left = sorted(((s, s.coverage.parts) for s in chosen), key=lambda item: _first(item[1]))
    steps: list[tuple[AcceptedSlice, ...]] = []
    while left:
        behind: list[tuple[AcceptedSlice, Mapping[SourcePartition, RangeSet]]] = []
        for s, parts in left:
            if _starts_at(parts, frontier):
                steps.append((s,))
                frontier.update({p: have[p].reach(r.ranges[0].end) for p, r in parts.items()})
            else:
                behind.append((s, parts))
        if len(behind) == len(left):
            steps.append(tuple(s for s, _ in left))
            break
        left = behind
    return tuple(steps)


def _first(parts: Mapping[SourcePartition, RangeSet]) -> int:
    return max((r.ranges[0].start for r in parts.values()), default=0)


def _starts_at(parts: Mapping[SourcePartition, RangeSet], frontier: Mapping[SourcePartition, int]) -> bool:
    return all(len(ranges.ranges) == 1 and ranges.ranges[0].start == frontier[p] for p, ranges in parts.items())


def chunks(
    settlement: Settlement, table: str, max_files: int, max_changes: int | None = None
) -> list[tuple[AcceptedSlice, ...]]:
    """Cut what is ready into ordered chunks of at most ``max_files`` files and ``max_changes`` rows and deletes (a
    single step may have more).
    """
    out: list[list[AcceptedSlice]] = []
    files = changes = 0
    for step in settlement.steps:
        n, m = sum(s.file_count(table) for s in step), sum(s.changes(table) for s in step)
        if not out or files + n > max_files or (max_changes is not None and changes + m > max_changes):
            out.append([])
            files = changes = 0
        out[-1].extend(step)
        files, changes = files + n, changes + m
    return [tuple(c) for c in out]


def passed_ends(
    ledger: TableLedger, accepted: Sequence[AcceptedSlice], partitions: Iterable[SourcePartition]
) -> dict[SourcePartition, int]:
    """How far a table is complete: its ledger, and accepted slices without a row for it, which count as passed."""
    through = _passed(ledger.table, accepted)
    return {p: (ledger.has(p) | through[p]).reach(ledger.end(p)) for p in partitions}


def passed_by_all(landing_state: LandingState) -> dict[str, Coverage]:
    """What each table has passed and not yet in its ledger, as far as no other table lacks it: that stays true whatever
    becomes of pending slices.
    """
    passed = {t: _passed(t, accepted) for t, accepted in landing_state.accepted.items()}
    out = dict(passed)
    for t, ledger in landing_state.ledgers.items():
        complete = ledger.all_covered | passed[t]
        out = {name: c & complete for name, c in out.items()}
    return out


def _passed(table: str, accepted: Iterable[AcceptedSlice]) -> Coverage:
    return Coverage.union(s.coverage for s in accepted if not s.file_count(table))


def valid_through(cycles: Iterable[CycleState], ends: Mapping[SourcePartition, int]) -> datetime | None:
    """Time at which the ends of the newest cycle that is wholly in all tables were asked for: the newest of the log, so
    that a clock which was ahead once is forgotten. A cycle that could not ask (its catalog was away) says nothing, nor
    does one that left out partitions before a user decides how they go on.

    :param cycles: in the order of the log
    """
    asked = [c.plan for c in cycles if c.plan.ends and not c.plan.stopped]
    full = [plan.asked_at for plan in asked if all(ends.get(p, 0) >= end for p, end in plan.ends.items())]
    return full[-1] if full else None
