# SPDX-License-Identifier: Apache-2.0
"""What a window took, as the reports of its slices tell it, and its text in the summary of the snapshot that has it.

Contract: pure. :func:`measure` reads a folded log; :func:`newest` reads texts of snapshots, the newest first. Numbers
are whole, so that what is read is what was measured. A slice is taken to have been at work for the seconds of its cost
up to its report.

Invariants: a measurement decides how much is read at once, never what; clocks that disagree make windows larger or
smaller, within the bounds of :mod:`~airflow_provider_lakecommit.core.planning.goal`.

Failure story: reports of releases that told no cost, a plan that the log has no more, a text that cannot be read: that
window is not measured, and others are gone by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState

MEASURED = "measured"
"""Summary key, without prefix, of an append: what the windows in it took, as JSON by the commit id of their cycle."""
KEPT = 5
"""Newest windows that are looked at."""
DEAR = 150
"""Percent of the landing's mean from which on the cost of a partition's records is told."""
MOST_DEAR = 32
_Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCost:
    """What became of the slices of one window that are reported.

    :param records: source offsets of all slices
    :param task_ms: time of all slices together, ``busy_ms`` the time in which at least one was at work
    :param idle_ms: the rest from the plan to the last report, without the time in which only other windows were at work
    :param files: of the data table, with ``bytes``
    :param full: the plan left something, so that the window was as large as it might be
    :param dear: per partition, as it is written, what its records cost in percent of the mean, where that is much
    """

    records: int
    slices: int
    task_ms: int
    busy_ms: int
    idle_ms: int
    files: int
    bytes: int
    full: bool
    dear: Mapping[str, int] = field(default_factory=dict)


def measure(landing_state: LandingState, table: str, commit_ids: Iterable[UUID]) -> dict[UUID, WindowCost]:
    """Of each of these cycles what its window took, as far as it is known.

    :param table: the data table, whose files count
    """
    taken = [a for some in landing_state.accepted.values() for a in some]
    taken += [r.slice for r in landing_state.redundant]
    reports = {a.report.attempt: a for a in taken if a.report.cost is not None and a.report.tables}
    out = {}
    for commit_id in dict.fromkeys(commit_ids):
        cycle = landing_state.cycles.get(commit_id)
        own = [a for a in reports.values() if a.commit_id == commit_id]
        others = [a for a in reports.values() if a.commit_id != commit_id]
        if cycle is not None and own:
            out[commit_id] = _measured(cycle, own, others, table)
    return dict(list(out.items())[-KEPT:])


def _measured(
    cycle: CycleState, own: Sequence[AcceptedSlice], others: Sequence[AcceptedSlice], table: str
) -> WindowCost:
    begin, end = cycle.at.timestamp(), max(a.at.timestamp() for a in own)
    busy = _length(map(_at_work, own))
    not_ours = _length([*map(_at_work, own), *_within(map(_at_work, others), begin, end)]) - busy
    return WindowCost(
        records=sum(len(a.coverage) for a in own),
        slices=len(own),
        task_ms=_ms(sum(map(_seconds, own))),
        busy_ms=_ms(busy),
        idle_ms=_ms(max(0.0, end - begin - busy - not_ours)),
        files=sum(a.file_count(table) for a in own),
        bytes=sum(a.report.cost.bytes for a in own if a.report.cost),
        full=cycle.plan.left > 0,
        dear=_dear(own),
    )


def _seconds(a: AcceptedSlice) -> float:
    cost = a.report.cost
    return cost.read_seconds + cost.decode_seconds + cost.write_seconds if cost else 0.0


def _at_work(a: AcceptedSlice) -> _Interval:
    end = a.at.timestamp()
    return end - _seconds(a), end


def _within(intervals: Iterable[_Interval], begin: float, end: float) -> Iterable[_Interval]:
    return ((max(a, begin), min(b, end)) for a, b in intervals if b > begin and a < end)


def _length(intervals: Iterable[_Interval]) -> float:
    """Of the union."""
    total, reach = 0.0, float("-inf")
    for a, b in sorted(intervals):
        total += max(0.0, b - max(a, reach))
        reach = max(reach, b)
    return total


def _dear(own: Sequence[AcceptedSlice]) -> dict[str, int]:
    """By slices that hold one partition alone; the dearest ones."""
    spent: dict[str, list[float]] = {}
    for a in own:
        partitions = {s.span.partition for s in a.report.spans}
        if len(partitions) == 1:
            seconds, records = spent.setdefault(str(partitions.pop()), [0.0, 0.0])
            spent[str(a.report.spans[0].span.partition)] = [seconds + _seconds(a), records + len(a.coverage)]
    mean = sum(map(_seconds, own)) / max(1, sum(len(a.coverage) for a in own))
    costs = {p: round(100 * seconds / records / mean) for p, (seconds, records) in spent.items() if records and mean}
    dearest = sorted(costs.items(), key=lambda item: (-item[1], item[0]))[:MOST_DEAR]
    return {p: percent for p, percent in dearest if percent >= DEAR}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def to_text(costs: Mapping[UUID, WindowCost]) -> str:
    """For the summary of a snapshot."""
    return json.dumps({str(k): astuple(c) for k, c in costs.items()}, separators=(",", ":"))


def newest(texts: Iterable[str | None]) -> tuple[WindowCost, ...]:
    """The newest measurements, of each cycle the newest one.

    :param texts: of landing snapshots, the newest first; ``None`` of one that tells none
    """
    found: dict[str, WindowCost] = {}
    for text in texts:
        for commit_id, values in reversed(_parsed(text).items()):
            if commit_id not in found and (cost := _cost(values)) is not None:
                found[commit_id] = cost
        if len(found) >= KEPT:
            break
    return tuple(found.values())[:KEPT]


def _parsed(text: str | None) -> dict[str, object]:
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _cost(values: object) -> WindowCost | None:
    """What is no measurement is none; a later release may tell more behind these."""
    if not isinstance(values, list) or len(values) < 9:
        return None
    *numbers, full, dear = values[:9]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in numbers)
    if not whole or not all(numbers[:4]) or not isinstance(full, bool) or not isinstance(dear, dict):
        return None
    names = ("records", "slices", "task_ms", "busy_ms", "idle_ms", "files", "bytes")
    known = {str(p): n for p, n in list(dear.items())[:MOST_DEAR] if isinstance(n, int) and DEAR <= n < 1 << 20}
    return WindowCost(**dict(zip(names, numbers, strict=True)), full=full, dear=known)
