# SPDX-License-Identifier: Apache-2.0
"""Check whether a report matches a slice that its plan set out to do.

A report must be of the plan's window and of one of its slices, whole or as granted (the id names the remaining
ranges), and may only write to that slice's tables, under the planned epoch, schema and partition spec. A plan without
slices records a user's decision: its report may only skip blocked ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Plan, Slice, SliceReport, Span
from airflow_provider_lakecommit.core.offsets import Coverage


def not_planned(
    report: SliceReport, plan: Plan, slices: Mapping[UUID, Slice], blocked: Iterable[Coverage]
) -> str | None:
    """Return why a report does not match this plan, or ``None``.

    :param slices: those of the plan, by their ids
    :param blocked: ranges that wait, or waited, for a user's decision
    """
    if not plan.slices:
        return _not_given_up(report, Coverage.union(blocked))
    if report.window_id != plan.window_id:
        return f"it is of window {report.window_id}, its cycle planned window {plan.window_id}"
    spans = sorted(s.span for s in report.spans)
    of = slices.get(report.slice_id) or _larger(report, plan, spans)
    if of is None or (of.slice_id == report.slice_id and sorted(of.spans) != spans):
        return "its cycle planned no such slice"
    targets = {t.table: (t.uuid, t.epoch, t.schema_id, t.spec_id) for t in plan.targets if t.table in of.tables}
    if wrong := [t.table for t in report.tables if targets.get(t.table) != (t.uuid, t.epoch, t.schema_id, t.spec_id)]:
        return f"its cycle planned it otherwise for {', '.join(wrong)}"
    return None


def _larger(report: SliceReport, plan: Plan, spans: Sequence[Span]) -> Slice | None:
    """Return the planned slice of which the report is a part."""
    coverage = report.coverage
    within = (s for s in plan.slices if not coverage - s.coverage)
    return next((s for s in within if slice_id(plan.window_id, spans, s.tables) == report.slice_id), None)


def _not_given_up(report: SliceReport, blocked: Coverage) -> str | None:
    skipped = all(s.counts.skipped == s.counts.total == len(s.span) for s in report.spans)
    if skipped and not report.coverage - blocked:
        return None
    return "its cycle planned nothing, and no blocked range is given up by it"
