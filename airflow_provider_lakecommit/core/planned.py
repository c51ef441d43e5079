# SPDX-License-Identifier: Apache-2.0
"""Does a report speak of what a plan set out to do?

Contract: pure. A report is of a plan if it is about the plan's window and about one of its slices, whole or as much of
it as was granted (another claim may have taken ranges of it; the id tells which are left), and writes to no table that
the slice is not for, under the epoch, schema and partition spec that the plan names. Everything else on the control
topic was not asked for. What a person gave up has no slices in its plan: such a report may only say that blocked ranges
are skipped, all of them.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core.model import Plan, SliceReport, slice_id
from airflow_provider_lakecommit.core.offsets import Coverage

__all__ = ["not_planned"]


def not_planned(report: SliceReport, plan: Plan, blocked: Coverage) -> str | None:
    """Why a report is not of this plan, or ``None``.

    :param blocked: what waits for a person when the report comes
    """
    if not plan.slices:
        return _not_given_up(report, blocked)
    if report.window_id != plan.window_id:
        return f"it is of window {report.window_id}, its cycle planned window {plan.window_id}"
    coverage, spans = report.coverage, tuple(s.span for s in report.spans)
    of = next((s for s in plan.slices if not coverage - s.coverage), None)
    if of is None or slice_id(plan.window_id, spans, of.tables) != report.slice_id:
        return "its cycle planned no such slice"
    targets = {t.table: (t.uuid, t.epoch, t.schema_id, t.spec_id) for t in plan.targets if t.table in of.tables}
    if wrong := [t.table for t in report.tables if targets.get(t.table) != (t.uuid, t.epoch, t.schema_id, t.spec_id)]:
        return f"its cycle planned it otherwise for {', '.join(wrong)}"
    return None


def _not_given_up(report: SliceReport, blocked: Coverage) -> str | None:
    skipped = all(s.counts.skipped == s.counts.total == len(s.span) for s in report.spans)
    if skipped and not report.coverage - blocked:
        return None
    return "its cycle planned nothing, and no blocked range is given up by it"
