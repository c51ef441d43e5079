# SPDX-License-Identifier: Apache-2.0
"""Decide, table by table, which reports count while the control log is folded.

A complete report is accepted for a table if its epoch is current and its ranges are disjoint from the ledger and from
slices accepted before. It is redundant otherwise, with a reason. It is also redundant if another table of the landing
has these ranges by other rules.

A report must match what its plan set out to do (:func:`not_planned`): it is of the plan's window and of one of its
slices, whole or as granted (the id names the remaining ranges), and only writes to that slice's tables, under the
planned epoch, schema and partition spec. A plan without slices records a user's decision: its report may only skip
blocked ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from airflow_provider_lakecommit.core.blocks import Blocks
from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Plan, Slice, SliceReport, Span
from airflow_provider_lakecommit.core.offsets import NOTHING, Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.rules import UNKNOWN, evaluated_otherwise
from airflow_provider_lakecommit.core.state import AcceptedSlice, TableLedger


class Acceptance:
    """Mutable while folding. ``taken``: what each table has landed or accepted; ``rules``: the rules of its accepted
    slices.
    """

    def __init__(self, ledgers: Sequence[TableLedger], blocks: Blocks) -> None:
        self.ledgers = {t.table: t for t in ledgers}
        self.blocks = blocks
        self.taken: dict[str, dict[SourcePartition, RangeSet]] = {
            t.table: dict((t.section.covered | t.others).parts) for t in ledgers
        }
        self.rules: dict[str, set[str]] = {t.table: set() for t in ledgers}
        self.accepted: dict[str, list[AcceptedSlice]] = {t.table: [] for t in ledgers}
        self.redundant: list[tuple[AcceptedSlice, str]] = []
        self.landed = self.done()

    def done(self) -> Coverage:
        """Return what every table has landed or accepted."""
        first, *others = [Coverage(dict(t)) for t in self.taken.values()] or [Coverage()]
        for other in others:
            first = first & other
        return first

    def evaluate(self, s: AcceptedSlice) -> None:
        """Accept a report, or record why not, for each of its tables."""
        for table in [t.table for t in s.report.tables if t.table in self.ledgers]:
            if reason := self.objection(s, table):
                self.redundant.append((s, reason))
                continue
            self.accepted[table].append(s)
            self.rules[table].add(s.report.rules)
            taken = self.taken[table]
            for p, ranges in s.coverage.parts.items():
                taken[p] = taken.get(p, NOTHING) | ranges
            self.blocks.forget_failures(s.coverage)
            self.lift_blocks()

    def turn_down(self, s: AcceptedSlice, reason: str) -> None:
        self.redundant += [(s, reason) for t in self.ledgers if s.report.table(t)]

    def objection(self, s: AcceptedSlice, table: str) -> str | None:
        """Return why a report is not accepted for a table, or ``None``."""
        of, ledger = s.report.table(table), self.ledgers[table]
        if of is None:
            return "it is not about this table"
        if of.events != len(s.files[table]):
            return f"{len(s.files[table])} of its {of.events} file lists are in the control log"
        if of.uuid != ledger.uuid:
            return "it was written for a table of this name that is gone"
        if of.epoch != ledger.section.epoch:
            return "its epoch is void"
        taken = self.taken[table]
        if any(taken.get(p, NOTHING).overlaps(r) for p, r in s.coverage.items()):
            return "its ranges are in the ledger or accepted already"
        others = ((t, self.evaluated_by_other_rules(s, t)) for t in self.ledgers if t != table)
        return next((f"{t} has {ranges} by other rules" for t, ranges in others if ranges), None)

    def evaluated_by_other_rules(self, s: AcceptedSlice, table: str) -> Coverage:
        """Return the ranges of a slice that a table has by rules known to differ."""
        rules = s.report.rules
        found = evaluated_otherwise(self.ledgers[table].evaluated, s.coverage, rules)
        if rules != UNKNOWN and self.rules[table] - {rules, UNKNOWN}:
            for a in self.accepted[table]:
                if a.report.rules not in (rules, UNKNOWN):
                    found = found | (a.coverage & s.coverage)
        return found

    def lift_blocks(self) -> None:
        if self.blocks.blocked:
            self.blocks.lift(self.done())

    def void(self, attempt: UUID) -> None:
        for table, slices in self.accepted.items():
            for voided in [s for s in slices if s.report.attempt == attempt]:
                self.give_up(voided, table, "it was voided")

    def give_up(self, s: AcceptedSlice, table: str, reason: str) -> None:
        self.accepted[table].remove(s)
        for p, ranges in s.coverage.parts.items():
            self.taken[table][p] = self.taken[table][p] - ranges
        self.redundant.append((s, reason))


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
