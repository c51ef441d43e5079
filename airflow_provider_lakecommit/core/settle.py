# SPDX-License-Identifier: Apache-2.0
"""Settlement: the only place that decides what is published in a table.

Publishable is the greatest set of accepted slices in which each is connected, for each partition, to the end of the
ledger through the set itself or through other lanes' ranges. A ledger therefore never gets a hole, a failed older slice
is repeated alone, and newer ones wait. Slices come out in an order in which every chunk keeps the ledger contiguous. A
lane that replaces rows publishes no appends: all of it takes the place of the old rows at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState, TableLedger

NOTHING_COVERED = Coverage()
CLOCKS_APART = timedelta(minutes=5)
"""How far ahead a valid-through time may be before the clock counts as wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """``ready`` slices in ledger order, in steps: slices of one step need each other. The others are ``waiting``, each
    with the reason.
    """

    steps: tuple[tuple[AcceptedSlice, ...], ...]
    waiting: tuple[tuple[AcceptedSlice, str], ...]

    @property
    def ready(self) -> tuple[AcceptedSlice, ...]:
        return tuple(s for step in self.steps for s in step)


def settle(accepted: Sequence[AcceptedSlice], section: LedgerSection, others: Coverage = NOTHING_COVERED) -> Settlement:
    """Choose what can be published now.

    :param accepted: of one table, in log order, disjoint from the ledger and each other
    :param section: the ledger of that table
    :param others: what other lanes have in it
    """
    if section.replaces:
        until = "is staged until all of its lane is, which replaces what is there at once"
        return Settlement(steps=(), waiting=tuple((s, f"{s.coverage} {until}") for s in accepted))
    have = section.covered | others
    unpublishable = holes([s.coverage for s in accepted], have, section.starts)
    waiting = tuple(
        (accepted[n], f"{accepted[n].coverage} is staged behind offset {behind} of {p}")
        for n, (p, behind) in unpublishable.items()
    )
    chosen = [s for n, s in enumerate(accepted) if n not in unpublishable]
    return Settlement(steps=_steps(chosen, have, section.starts), waiting=waiting)


def holes(
    coverages: Sequence[Coverage], have: Coverage, starts: Mapping[SourcePartition, int]
) -> dict[int, tuple[SourcePartition, int]]:
    """Return by index the coverages that are not connected to the table, each with the first missing offset.

    The rest is the greatest connected set.

    :param have: what the table has; partitions missing in ``starts`` start at 0
    """
    chosen = dict(enumerate(coverages))
    unpublishable: dict[int, tuple[SourcePartition, int]] = {}
    while True:
        through = Coverage.union(chosen.values())
        reach = {p: (have[p] | through[p]).reach(have[p].reach(starts.get(p, 0))) for p in through.parts}
        gaps = {n: gap for n, c in chosen.items() if (gap := _gap(c, reach))}
        if not gaps:
            return unpublishable
        unpublishable.update(gaps)
        chosen = {n: c for n, c in chosen.items() if n not in gaps}


def _gap(coverage: Coverage, reach: Mapping[SourcePartition, int]) -> tuple[SourcePartition, int] | None:
    return next(((p, reach[p]) for p, r in coverage.items() if r.end > reach[p]), None)


def _steps(
    chosen: list[AcceptedSlice], have: Coverage, starts: Mapping[SourcePartition, int]
) -> tuple[tuple[AcceptedSlice, ...], ...]:
    """Order slices so that each step starts where the steps before it end."""
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
    """Return how far a table is complete, counting accepted slices without a row for it."""
    through = _passed(ledger.table, accepted)
    return {p: (ledger.has(p) | through[p]).reach(ledger.end(p)) for p in partitions}


def passed_by_all(landing_state: LandingState) -> dict[str, Coverage]:
    """Return what each table has passed, not yet in its ledger, and no other table lacks.

    That stays true whatever becomes of pending slices.
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
    """Return when the ends of the newest cycle that is completely in all tables were read.

    The newest of the log, so that a clock that was once ahead is forgotten. Cycles without ends, and those that left
    out partitions until a user decides, do not count.

    :param cycles: in log order
    """
    requested = [c.plan for c in cycles if c.plan.ends and not c.plan.stopped]
    full = [plan.requested_at for plan in requested if all(ends.get(p, 0) >= end for p, end in plan.ends.items())]
    return full[-1] if full else None
