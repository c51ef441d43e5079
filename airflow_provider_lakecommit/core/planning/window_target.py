# SPDX-License-Identifier: Apache-2.0
"""Size a window by its target: records, slices and groups.

Declared limits are never exceeded. One unusual window changes the next ones little: the median of the newest windows
counts, and a window has at most :data:`STEP` times the records of the newest full one, and at least that part of them.
Small windows of a landing that keeps up are no evidence, because their time is mostly the fixed cost of a task.

Without measurements a trial is planned that is small enough for a slow machine. Explanations name what keeps a target
from being reached.
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
"""Records a second of an unmeasured landing."""
LEAST_RECORDS = 1_000
"""Least records of a window, however short the target is."""
STEP = 2
"""How much larger or smaller than the newest full window the next one may be."""
TASK_SECONDS = 1.5
"""Least duration of a slice worth its own task, which costs about 0.3 s in any case."""
TRIED_SECONDS = 0.6
"""The same for slices that test whether more tasks can run in parallel."""
MANY_RECORDS = 10_000
"""Records of a slice whose file size predicts that of larger slices. Slices get at least twice as many."""
LONG_TASK_SECONDS = 1.0
"""Mean duration of slices from which a window counts as evidence although it took all that was missing."""
UNEVEN = 0.25
"""Tolerance in the number of parallel tasks: tasks do not end at the same time."""


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
    """Return the limits that reach the targets, and lines that explain them.

    :param limits: as declared, with the default ``slice_records``
    :param costs: of the newest windows, newest first
    :param missing: partitions that have something to read, ``records`` in all
    :param window_seconds: target duration of a window from its plan to its last slice
    :param file_bytes: target size of the data table's files
    :param slice_limit: declared limit of a slice's records
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
    """Limit the window's records to those that can be written within the target."""
    if not evidence:
        estimate, why = int(seconds * ASSUMED_RATE), "no window measured yet (trial)"
    else:
        rate, idle = _at_once(evidence) / _per_record(evidence), _idle(evidence, seconds)
        # The change from the newest full window, or from the largest one, is limited.
        before = next((c.records for c in evidence if c.full), max(c.records for c in evidence))
        estimate = min(max(round(rate * (seconds - idle)), before // STEP), before * STEP)
        why = _measured(evidence, rate, idle)
    estimate = max(LEAST_RECORDS, estimate)
    declared = limits.window_records
    limited = (
        f"; window.max_records or window.max_bytes allow {declared}"
        if declared is not None and declared < estimate
        else ""
    )
    lines.append(f"window.target {seconds:g} s: {why}: at most {estimate} records{limited}")
    return replace(limits, max_records=min(estimate, limits.max_records or estimate))


def _measured(evidence: Sequence[WindowCost], rate: float, idle: float) -> str:
    n = len(evidence)
    return (
        f"{n} window{'s' if n > 1 else ''} measured, {rate:.0f} records/s with {_lanes(evidence)} in "
        f"parallel, and {idle:.1f} s overhead"
    )


def _idle(evidence: Sequence[WindowCost], seconds: float) -> float:
    """Return the seconds of a window without any writing: at most half of the target, whatever clocks say."""
    return min(median(c.idle_ms for c in evidence) / 1000, seconds / 2)


def _at_once(evidence: Sequence[WindowCost]) -> float:
    """Return how many tasks may run in parallel; small windows do not show it. Outliers may come from skewed clocks."""
    ratios = sorted(c.task_ms / c.busy_ms for c in evidence)
    return ratios[-2] if len(ratios) > 2 else ratios[-1]


def _lanes(evidence: Sequence[WindowCost]) -> int:
    return max(1, math.ceil(_at_once(evidence) - UNEVEN))


def _tried(evidence: Sequence[WindowCost], records: int) -> int:
    """Return how many slices test whether more tasks can run in parallel: only if no slice ever waited for another."""
    if any(c.slices > math.ceil(c.task_ms / c.busy_ms - UNEVEN) for c in evidence):
        return 1
    return max(1, min(2 * _lanes(evidence), int(records * _per_record(evidence) / TRIED_SECONDS)))


def _per_record(evidence: Sequence[WindowCost]) -> float:
    return median(c.task_ms / c.records for c in evidence) / 1000


def _slices(
    limits: WindowLimits,
    evidence: Sequence[WindowCost],
    records: int,
    missing: Iterable[SourcePartition],
    lines: list[str],
) -> WindowLimits:
    """Use as few tasks as keep all lanes busy to the end, none larger than without a target."""
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
    """Limit a slice to the records that make files of the target size. Few records do not predict the size of many."""
    known = [c for c in costs if c.files and c.bytes and c.records >= MANY_RECORDS * c.slices]
    if not known:
        now = min([limits.slice_records, *bounds.values()])
        lines.append(
            f"window.target_file_size {file_bytes}: none of {MANY_RECORDS} records was measured, slices of {now}"
        )
        return replace(limits, slice_records=now)
    per_file = median(c.bytes / c.files for c in known)
    before, usual = known[0].records / known[0].slices, limits.slice_records
    estimate = median(c.records / c.slices * file_bytes * c.files / c.bytes for c in known)
    bounded = min(max(estimate, min(before, usual) / STEP**2, 2 * MANY_RECORDS), max(before, usual) * STEP**2)
    why, chosen = min({"": int(bounded), **bounds}.items(), key=lambda item: item[1])
    lines.append(
        f"window.target_file_size {file_bytes}: files had {per_file:.0f} bytes, {before:.0f} records a slice: "
        f"now {chosen}" + (f"; {why}" if why else "")
    )
    return replace(limits, slice_records=chosen)


def _groups(
    limits: WindowLimits, evidence: Sequence[WindowCost], records: int, window_seconds: float, lines: list[str]
) -> WindowLimits:
    """Use no more groups than have half of the target's time to work each."""
    seconds = records * _per_record(evidence)
    groups = min(limits.groups, max(1, math.ceil(2 * seconds / window_seconds)))
    lines.append(f"{groups} of {limits.groups} groups: the slices take about {seconds:.1f} s in total")
    return replace(limits, groups=groups)


def lopsided(slices: Sequence[Slice], limits: WindowLimits) -> tuple[str, ...]:
    """Return a warning if one group has more than twice its even share."""
    work: dict[int, int] = {}
    for s in slices:
        work[s.group] = work.get(s.group, 0) + len(s)
    groups, total = min(limits.groups, len(slices)), sum(work.values())
    group = max(work, key=lambda g: (work[g], -g), default=0)
    if groups < 2 or work[group] * groups <= 2 * total:
        return ()
    hint = "`window.group_by: load` distributes slices by their cost"
    return (f"group {group} has {work[group]} of {total} records; {hint}",)
