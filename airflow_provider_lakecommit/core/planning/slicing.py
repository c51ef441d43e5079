# SPDX-License-Identifier: Apache-2.0
"""Cut a window's ranges into groups and slices, deterministically.

Full slices hold one range. Small rests are packed by weight, each partition at most once in a slice. Ranges that failed
or were over budget are tried alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.blocks import partitions_of_blocked_slices
from airflow_provider_lakecommit.core.identity import slice_id, window_id
from airflow_provider_lakecommit.core.model import Budget, Slice, Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import RangesByTables, WindowLimits
from airflow_provider_lakecommit.core.state import LandingState

_FULL = 1 << 40
"""Weight of a full slice, so that records of several sizes can be combined."""


def window_of(
    chosen: RangesByTables, landing_state: LandingState, *, landing: str, lane: str, spec_version: str
) -> UUID:
    epochs = {t: ledger.section.epoch for t, ledger in landing_state.ledgers.items()}
    spans = (Span(p, r) for c in chosen.values() for p, r in c.items())
    return window_id(landing, lane, spec_version, epochs, spans)


def cut(chosen: RangesByTables, landing_state: LandingState, limits: WindowLimits, window: UUID) -> tuple[Slice, ...]:
    """Cut the chosen ranges into slices, oldest first, so that dropping the tail drops the newest.

    A partition with a suspected range or a slice that is blocked by another one shares no slice, else others would wait
    with it. Groups are partitions by number or, by load, the heaviest slices first to the group with least.
    """
    chosen_ranges = Coverage.union(chosen.values())
    out: list[tuple[int, Slice]] = []
    waiting = partitions_of_blocked_slices(landing_state)
    raised = Coverage.union(coverage for coverage, _ in landing_state.raised)
    for tables, coverage in sorted(chosen.items()):
        troubled = Coverage({p: s for p, s in coverage.parts.items() if p in waiting or landing_state.suspects[p]})
        alone = (coverage & (landing_state.suspects | raised)) | troubled
        for group, spans in _pack(
            coverage - alone, replace(limits, groups=1) if limits.by_load else limits, _apart(alone, landing_state)
        ):
            out.append(
                (
                    max(_before(s, chosen_ranges) // limits.per_slice(s.partition) for s in spans),
                    Slice(
                        slice_id=slice_id(window, spans, tables),
                        group=group,
                        spans=spans,
                        tables=tables,
                        budget=_budget(spans, landing_state),
                    ),
                )
            )
    if limits.by_load:
        out = _dealt_out(out, limits)
    out.sort(key=lambda item: (item[0], item[1].group, item[1].spans))
    return tuple(s for _, s in out)


def _dealt_out(slices: Iterable[tuple[int, Slice]], limits: WindowLimits) -> list[tuple[int, Slice]]:
    """Assign slices to groups evenly by weight."""
    weighed = [(-sum(len(x.range) / limits.per_slice(x.partition) for x in s.spans), n, s) for n, s in slices]
    load, out = [0.0] * limits.groups, []
    for weight, n, s in sorted(weighed, key=lambda item: (item[0], item[2].spans, item[2].tables)):
        group = min(range(limits.groups), key=lambda g: (load[g], g))
        load[group] -= weight
        out.append((n, replace(s, group=group)))
    return out


def _before(span: Span, coverage: Coverage) -> int:
    start = span.range.start
    return sum(min(r.end, start) - r.start for r in coverage[span.partition] if r.start < start)


def _apart(coverage: Coverage, landing_state: LandingState) -> Iterable[tuple[SourcePartition, OffsetRange]]:
    """Yield the ranges to be tried alone: those of each raised budget apart, and suspects apart from the rest."""
    for own in (*(raised for raised, _ in reversed(landing_state.raised)), coverage):
        both, coverage = coverage & own, coverage - own
        for some in (both & landing_state.suspects, both - landing_state.suspects):
            yield from some.items()


def _pack(
    coverage: Coverage, limits: WindowLimits, alone: Iterable[tuple[SourcePartition, OffsetRange]]
) -> Iterable[tuple[int, tuple[Span, ...]]]:
    # Two ranges of one partition never share a slice: the older would wait for those between.
    rests: dict[int, list[dict[SourcePartition, Span]]] = {}
    weights: dict[int, list[int]] = {}
    for p, r in coverage.items():
        group, size = p.partition % limits.groups, limits.per_slice(p)
        full = len(r) // size
        for k in range(full):
            yield group, (Span(p, OffsetRange(r.start + k * size, r.start + (k + 1) * size)),)
        if rest := OffsetRange(r.start + full * size, r.end):
            bins, filled = rests.setdefault(group, []), weights.setdefault(group, [])
            weight = len(rest) * _FULL // size
            n = next((n for n, b in enumerate(bins) if filled[n] + weight <= _FULL and p not in b), len(bins))
            if n == len(bins):
                bins.append({})
                filled.append(0)
            bins[n][p] = Span(p, rest)
            filled[n] += weight
    for group, bins in rests.items():
        for b in bins:
            yield group, tuple(sorted(b.values()))
    for p, r in alone:
        size = limits.per_slice(p)
        for start in range(r.start, r.end, size):
            yield p.partition % limits.groups, (Span(p, OffsetRange(start, min(r.end, start + size))),)


def _budget(spans: Sequence[Span], landing_state: LandingState) -> Budget | None:
    of = Coverage.of((s.partition, s.range) for s in spans)
    return next((budget for raised, budget in reversed(landing_state.raised) if raised.overlaps(of)), None)
