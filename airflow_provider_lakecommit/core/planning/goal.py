# SPDX-License-Identifier: Apache-2.0
"""A window by its goal: how many records, in slices of which size, in how many groups.

Contract: pure. :func:`sized` is a function of the newest measurements, the limits and the goals, with lines that say
why. Without a goal the limits come back as they are.

Invariants: a limit that was declared (records, bytes, slices, groups) is never passed. One window that took unusually
long or short changes the next ones little: the median of the newest counts, and a window has at most :data:`STEP` times
the records of the newest full one, and no less than its :data:`STEP`-th part. Small windows of a landing that keeps up
are no evidence: their time is what any task costs, whatever it reads.

Failure story: where nothing was measured a trial is planned, small enough for a slow machine; slices are then as large
as without a goal. A goal that cannot be met is named with what stands in its way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

from airflow_provider_lakecommit.core.model import Slice
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.measure import WindowCost
from airflow_provider_lakecommit.core.planning.missing import SLICE_BYTES, WindowLimits

ASSUMED_RATE = 50_000
"""Records a second of a landing of which nothing was measured."""
LEAST_RECORDS = 1_000
"""Of a window, however short the goal is."""
STEP = 2
"""How much larger or smaller than the newest full window the next one may be; slices are told apart the same way."""
TASK_SECONDS = 1.5
"""Least time of a slice that is worth a task of its own: each costs about 0.3 s, whatever it reads."""
TRIED_SECONDS = 0.6
"""The same, where it shows whether more tasks are at work at once than were seen."""
MANY_RECORDS = 10_000
"""Of a slice: the bytes of so many tell what more of them will come to in a file. It is made for twice as many at
least, so that the next one is told too.
"""
LONG_TASK_SECONDS = 1.0
"""Mean time of slices from which on also a window that took all there was tells of what larger ones take."""
UNEVEN = 0.25
"""Of a task that is not at work all the time."""


def sized(
    limits: WindowLimits,
    costs: Sequence[WindowCost],
    *,
    missing: Iterable[SourcePartition],
    records: int,
    window_seconds: float | None = None,
    file_bytes: int | None = None,
    slice_limit: int | None = None,
) -> tuple[WindowLimits, tuple[str, ...]]:
    """The limits that reach the goals, and why they are so.

    :param limits: as declared, ``slice_records`` without a goal
    :param costs: of the newest windows, the newest first
    :param missing: partitions that have something to read, ``records`` in all
    :param window_seconds: how long a window should take from its plan to its last slice
    :param file_bytes: how large a file of the data table should be
    :param slice_limit: most records of a slice, where that was declared
    """
    if window_seconds is None and file_bytes is None:
        return limits, ()
    evidence = [c for c in costs if c.full or c.task_ms >= 1000 * LONG_TASK_SECONDS * c.slices]
    lines: list[str] = []
    if window_seconds is not None:
        limits = _window(limits, evidence, window_seconds, lines)
    records = min(records, limits.window_records or records)
    if file_bytes is not None:
        bounds = _bounds(limits, evidence, records, window_seconds, slice_limit)
        limits = _files(limits, costs, file_bytes, bounds, lines)
    elif evidence and records:
        limits = _slices(limits, evidence, records, missing, lines)
    if evidence and window_seconds is not None and limits.groups > 1:
        limits = _groups(limits, evidence, records, window_seconds, lines)
    return limits, tuple(lines)


def _window(limits: WindowLimits, evidence: Sequence[WindowCost], seconds: float, lines: list[str]) -> WindowLimits:
    """Records of the window: what is written in the time that is left of the goal."""
    if not evidence:
        wanted, why = int(seconds * ASSUMED_RATE), "no window measured yet (trial)"
    else:
        rate, idle = _at_once(evidence) / _per_record(evidence), _idle(evidence, seconds)
        wanted, why = _held(round(rate * (seconds - idle)), evidence), _measured(evidence, rate, idle)
    wanted = max(LEAST_RECORDS, wanted)
    declared = limits.window_records
    held = (
        f"; window.max_records or window.max_bytes allow {declared}"
        if declared is not None and declared < wanted
        else ""
    )
    lines.append(f"window.target {seconds:g} s: {why}: at most {wanted} records{held}")
    return replace(limits, max_records=min(wanted, limits.max_records or wanted))


def _held(wanted: int, evidence: Sequence[WindowCost]) -> int:
    """Not far from the newest window that was full, or from the largest one."""
    before = next((c.records for c in evidence if c.full), max(c.records for c in evidence))
    return min(max(wanted, before // STEP), before * STEP)


def _measured(evidence: Sequence[WindowCost], rate: float, idle: float) -> str:
    n = len(evidence)
    return (
        f"{n} window{'s' if n > 1 else ''} measured, {rate:.0f} records/s with {_lanes(evidence)} in "
        f"parallel, and {idle:.1f} s overhead"
    )


def _idle(evidence: Sequence[WindowCost], seconds: float) -> float:
    """Seconds of a window in which nothing is written; half of the goal at most, whatever clocks say."""
    return min(median(c.idle_ms for c in evidence) / 1000, seconds / 2)


def _at_once(evidence: Sequence[WindowCost]) -> float:
    """Tasks that may be at work at once: a window with few slices does not show it. The highest number could be of
    clocks that disagree, so where there are others it is not taken.
    """
    seen = sorted(c.task_ms / c.busy_ms for c in evidence)
    return seen[-2] if len(seen) > 2 else seen[-1]


def _lanes(evidence: Sequence[WindowCost]) -> int:
    """The same as a whole number."""
    return max(1, math.ceil(_at_once(evidence) - UNEVEN))


def _tried(evidence: Sequence[WindowCost], records: int) -> int:
    """Slices of a window that shows whether more tasks are at work at once: where none ever waited for another."""
    if any(c.slices > math.ceil(c.task_ms / c.busy_ms - UNEVEN) for c in evidence):
        return 1
    return max(1, min(2 * _lanes(evidence), int(records * _per_record(evidence) / TRIED_SECONDS)))


def _per_record(evidence: Sequence[WindowCost]) -> float:
    """Seconds of a task."""
    return median(c.task_ms / c.records for c in evidence) / 1000


def _slices(
    limits: WindowLimits,
    evidence: Sequence[WindowCost],
    records: int,
    missing: Iterable[SourcePartition],
    lines: list[str],
) -> WindowLimits:
    """As few tasks as have all lanes at work to the end, none larger than it is without a goal."""
    lanes, seconds, least = _lanes(evidence), records * _per_record(evidence), -(-records // limits.slice_records)
    worth = max(1, int(seconds / TASK_SECONDS))
    even = lanes * -(-least // lanes)
    if even == lanes and worth >= 2 * lanes:
        even = 2 * lanes
    many = max(least, min(even, worth))
    many = max(many, _tried(evidence, records))
    lines.append(f"{many} slices of about {seconds / many:.1f} s, {lanes} in parallel")
    dear = {p: of for p in missing if (of := median(c.dear.get(str(p), 100) for c in evidence) / 100) > 1}
    lines += [f"{p}: a record costs {of:.1f} times the mean, so its slices have fewer" for p, of in dear.items()]
    return replace(limits, slice_records=-(-records // many), dear=dear)


def _bounds(
    limits: WindowLimits,
    evidence: Sequence[WindowCost],
    records: int,
    window_seconds: float | None,
    slice_limit: int | None,
) -> dict[str, int]:
    """Most records of a slice, by what says so."""
    bounds = {}
    if slice_limit is not None:
        bounds[f"window.slice_records allows {slice_limit}"] = slice_limit
    if window_seconds is not None and evidence:
        task_seconds = max(TRIED_SECONDS, window_seconds - _idle(evidence, window_seconds))
        in_time = max(1, round(min(task_seconds / _per_record(evidence), -(-records // _tried(evidence, records)))))
        bounds[f"window.target allows {in_time}"] = in_time
    if limits.record_bytes:
        in_bytes = max(1, SLICE_BYTES // limits.record_bytes)
        bounds[f"{SLICE_BYTES >> 20} MiB of records are {in_bytes}"] = in_bytes
    return bounds


def _files(
    limits: WindowLimits, costs: Sequence[WindowCost], file_bytes: int, bounds: dict[str, int], lines: list[str]
) -> WindowLimits:
    """Records of a slice: as many as make files of that size, by the bytes of a record and the files of a slice. What
    few records come to in a file says nothing of many.
    """
    known = [c for c in costs if c.files and c.bytes and c.records >= MANY_RECORDS * c.slices]
    if not known:
        now = min([limits.slice_records, *bounds.values()])
        lines.append(
            f"window.target_file_size {file_bytes}: none of {MANY_RECORDS} records was measured, slices of {now}"
        )
        return replace(limits, slice_records=now)
    per_file = median(c.bytes / c.files for c in known)
    before, usual = known[0].records / known[0].slices, limits.slice_records
    wanted = median(c.records / c.slices * file_bytes * c.files / c.bytes for c in known)
    held = min(max(wanted, min(before, usual) / STEP**2, 2 * MANY_RECORDS), max(before, usual) * STEP**2)
    why, chosen = min({"": int(held), **bounds}.items(), key=lambda item: item[1])
    lines.append(
        f"window.target_file_size {file_bytes}: files had {per_file:.0f} bytes, {before:.0f} records a slice: "
        f"now {chosen}" + (f"; {why}" if why else "")
    )
    return replace(limits, slice_records=chosen)


def _groups(
    limits: WindowLimits, evidence: Sequence[WindowCost], records: int, window_seconds: float, lines: list[str]
) -> WindowLimits:
    """No more groups than have half of the goal's time to work each: a small window needs no more tasks than that."""
    seconds = records * _per_record(evidence)
    groups = min(limits.groups, max(1, math.ceil(2 * seconds / window_seconds)))
    lines.append(f"{groups} of {limits.groups} groups: the slices take about {seconds:.1f} s in total")
    return replace(limits, groups=groups)


def lopsided(slices: Sequence[Slice], limits: WindowLimits) -> tuple[str, ...]:
    """A line, where one group has more than twice its even share, as groups by partition may."""
    work: dict[int, int] = {}
    for s in slices:
        work[s.group] = work.get(s.group, 0) + len(s)
    groups, total = min(limits.groups, len(slices)), sum(work.values())
    group = max(work, key=lambda g: (work[g], -g), default=0)
    if groups < 2 or work[group] * groups <= 2 * total:
        return ()
    told = "`window.group_by: load` distributes slices by their cost"
    return (f"group {group} has {work[group]} of {total} records; {told}",)
