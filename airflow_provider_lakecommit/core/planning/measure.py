# SPDX-License-Identifier: Apache-2.0
"""Measure windows by the reports of their slices, and store the measurements in snapshot summaries.

A slice counts as working for the seconds of its cost before its report. Measurements decide how much is read at once,
never what; skewed clocks only change window sizes within the bounds of
:mod:`~airflow_provider_lakecommit.core.planning.window_target`. Reports without a cost, missing plans and unreadable
texts leave a window unmeasured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState

MEASURED = "measured"
"""Summary key, without prefix: the measurements of an append's windows, as JSON by commit id."""
KEPT = 5
"""Newest windows that are evaluated."""
DEAR = 150
"""Percent of the mean from which the cost of a partition's records is stored."""
MOST_DEAR = 32
_Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCost:
    """What the reported slices of one window took.

    :param records: source offsets of all slices
    :param task_ms: time of all slices together; ``busy_ms`` is the time with at least one at work
    :param idle_ms: the rest from the plan to the last report, without time in which only other windows worked
    :param files: of the data table, with ``bytes``
    :param full: the plan left something, so the window was as large as allowed
    :param dear: per partition, its cost per record in percent of the mean, where that is high
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
    """Return the measured windows of these cycles.

    :param table: the data table, whose files count
    """
    taken = [a for some in landing_state.accepted.values() for a in some]
    taken += [a for a, _ in landing_state.redundant]
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
    within = ((max(a, begin), min(b, end)) for a, b in map(_at_work, others) if b > begin and a < end)
    not_ours = _length([*map(_at_work, own), *within]) - busy
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


def _length(intervals: Iterable[_Interval]) -> float:
    total, reach = 0.0, float("-inf")
    for a, b in sorted(intervals):
        total += max(0.0, b - max(a, reach))
        reach = max(reach, b)
    return total


def _dear(own: Sequence[AcceptedSlice]) -> dict[str, int]:
    """Return the dearest partitions, judged by slices of a single partition."""
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
    return json.dumps({str(k): astuple(c) for k, c in costs.items()}, separators=(",", ":"))


def newest(texts: Iterable[str | None]) -> tuple[WindowCost, ...]:
    """Return the newest measurement of each cycle.

    :param texts: of landing snapshots, newest first; ``None`` without measurements
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
    """Return the measurement, if it is one; later releases may append values."""
    if not isinstance(values, list) or len(values) < 9:
        return None
    *numbers, full, dear = values[:9]
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in numbers)
    if not whole or not all(numbers[:4]) or not isinstance(full, bool) or not isinstance(dear, dict):
        return None
    names = ("records", "slices", "task_ms", "busy_ms", "idle_ms", "files", "bytes")
    known = {str(p): n for p, n in list(dear.items())[:MOST_DEAR] if isinstance(n, int) and DEAR <= n < 1 << 20}
    return WindowCost(**dict(zip(names, numbers, strict=True)), full=full, dear=known)
