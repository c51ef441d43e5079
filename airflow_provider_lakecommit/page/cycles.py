# SPDX-License-Identifier: Apache-2.0
"""The newest cycles of one landing or connector, and its partitions' progress, from its control records.

Frozen, so that other threads may read it, and bounded: :data:`MOST_CYCLES` cycles, :data:`MOST_OPEN` of these with
slices. An event of a cycle that is not kept changes the partitions only; the oldest cycle may be incomplete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import starmap
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core import (
    CommitFailed,
    Coverage,
    CycleClosed,
    CycleOpened,
    EndRequested,
    Entry,
    Plan,
    SliceReported,
    Span,
    TablePublished,
)
from airflow_provider_lakecommit.page.connector_tasks import ConnectorTask, tasks_after
from airflow_provider_lakecommit.page.notes import (
    LandingNotes,
    after_commit,
    after_decisions,
    after_rejects,
    after_report,
)
from airflow_provider_lakecommit.page.observed_cycle import FINISHED, NO_GROUP, ObservedCycle, SliceWork, with_report
from airflow_provider_lakecommit.page.partitions import Ends, PagePartition
from airflow_provider_lakecommit.stall import EventKind, ObservedEvent

MOST_CYCLES = 100
MOST_OPEN = 20
MOST_STAGED = 1000
MOST_TABLES = 100
MOST_PARTITIONS = 1000
MOST_DAGS = 10
NO_WORK: Mapping[UUID, SliceWork] = MappingProxyType({})
NO_ENDS: Ends = MappingProxyType({})
NO_TABLE = ""
"""Stands for the data table until a plan names it: plans without slices name none."""


class Totals(NamedTuple):
    """Counts since the start of the reading: reported and published offsets (of a connector: records), and commits."""

    read: int = 0
    committed: int = 0
    commits: int = 0


class LandingCycles(NamedTuple):
    """The state. ``cycles`` are oldest first, ``dags`` those that ran them with their deployment, the last one first.

    ``published`` has the end of each partition per table; progress is that of the first table, the data. ``took`` are
    the seconds of the last commit, from the last report to its COMPLETE. ``debts`` has, by table, the newest compaction
    debt as a share of its limit.
    """

    cycles: tuple[ObservedCycle, ...] = ()
    dags: tuple[tuple[str, str], ...] = ()
    tables: tuple[str, ...] = ()
    spec_version: str = ""
    planned: Ends = NO_ENDS
    reported: Ends = NO_ENDS
    staged: tuple[SliceWork, ...] = ()
    published: Mapping[str, Ends] = MappingProxyType({})
    ends: Ends = NO_ENDS
    totals: Totals = Totals()
    took: float | None = None
    tasks: tuple[ConnectorTask, ...] = ()
    notes: LandingNotes = LandingNotes()
    debts: Mapping[str, float] = MappingProxyType({})

    @property
    def in_table(self) -> Ends:
        return next((self.published[t] for t in (*self.tables, NO_TABLE) if t in self.published), NO_ENDS)

    @property
    def read_upto(self) -> Ends:
        """Return how far the topics were read: without reports, the table's ends."""
        return {**self.in_table, **self.reported}

    def partitions(self, ends: Ends) -> tuple[PagePartition, ...]:
        known = {**self.ends, **{p: ends[p] for p in self.ends if p in ends}}
        published = self.in_table
        return tuple(
            PagePartition(
                topic=p[0],
                partition=p[1],
                planned=self.planned.get(p),
                reported=self.reported.get(p),
                published=published.get(p),
                end=known.get(p),
            )
            for p in sorted({*known, *self.planned})[:MOST_PARTITIONS]
        )


def cycles_after(known: LandingCycles, entry: Entry) -> LandingCycles:
    at = entry.at.timestamp()
    match entry:
        case CycleOpened(directives=directives):
            return _opened(known._replace(notes=after_decisions(known.notes, directives.decided)), entry, at)
        case SliceReported():
            return _reported(known, entry, at)
        case CommitFailed(reason=reason):
            return _changed(known, entry.commit_id, lambda c: c._replace(failed=reason, failures=c.failures + 1))
        case TablePublished():
            return _published(known, entry, at)
        case EndRequested(job=None, reason=reason):
            return _changed(known, entry.commit_id, lambda c: c._replace(end_asked=reason))
        case CycleClosed(directives=directives):
            known = known._replace(notes=after_decisions(known.notes, directives.decided))
            return _closed(known, entry.commit_id, at)
    return known


def connector_cycles_after(known: LandingCycles, event: ObservedEvent) -> LandingCycles:
    commit = UUID(bytes=event.commit)
    match event.kind:
        case EventKind.START:
            one = ObservedCycle(commit_id=str(commit), began=event.at, connector=True)
            again = _index_of(known, commit) is not None
            return known if again else known._replace(cycles=(*known.cycles, one)[-MOST_CYCLES:])
        case EventKind.WRITTEN:
            files, records = event.files or 0, event.records or 0
            known = _counted(known, read=records)
            return _changed(known, commit, lambda c: c._replace(files=c.files + files, recorded=c.recorded + records))
        case EventKind.ANSWERED:
            known = known._replace(tasks=tasks_after(known.tasks, event))
            return _changed(known, commit, lambda c: c._replace(last_report=event.at))
        case EventKind.PUBLISHED if event.table is not None:
            table = (event.table, event.at)
            tables = known.tables if event.table in known.tables else (*known.tables, event.table)[-MOST_TABLES:]
            known = known._replace(tables=tables)
            return _changed(known, commit, lambda c: c._replace(published=(*c.published, table)))
        case EventKind.COMPLETED:
            return _closed(known, commit, event.at)
    return known


def _opened(known: LandingCycles, entry: CycleOpened, at: float) -> LandingCycles:
    plan, cycle = entry.plan, entry.cycle
    tables = tuple(t.table for t in plan.targets)
    # The same for all its cycles.
    tables = known.tables if tables in ((), known.tables) else tables
    if _index_of(known, entry.commit_id) is not None:
        # Planned again by the same run, for example after a Clear: its newest plan counts.
        return _changed(known, entry.commit_id, lambda c: c._replace(**_planned(plan, tables, c.work)))
    behind = _behind(known, plan)
    one = ObservedCycle(
        commit_id=str(entry.commit_id),
        began=at,
        behind=behind,
        dag=cycle.dag,
        run=cycle.run,
        **_planned(plan, tables, NO_WORK),
    )
    cycles = (*known.cycles, one)[-MOST_CYCLES:]
    if len(cycles) > MOST_OPEN and cycles[-MOST_OPEN - 1].work:
        index = len(cycles) - MOST_OPEN - 1
        cycles = (*cycles[:index], cycles[index]._replace(work=NO_WORK), *cycles[index + 1 :])
    dag = (cycle.deployment, cycle.dag)
    dags = known.dags if known.dags[:1] == (dag,) else (dag, *(d for d in known.dags if d != dag))[:MOST_DAGS]
    planned = _furthest(known.planned, (span for s in plan.slices for span in s.spans))
    ends = {(p.topic, p.partition): end for p, end in plan.ends.items()} or known.ends
    return known._replace(
        cycles=cycles,
        dags=dags,
        tables=tables,
        spec_version=plan.spec_version,
        planned=planned,
        ends=ends,
        published=_with_unplanned(
            known, plan, next(iter(tables), NO_TABLE), {p: e for p, e in ends.items() if p not in planned}
        ),
    )


def _with_unplanned(known: LandingCycles, plan: Plan, data: str, ends: Ends) -> Mapping[str, Ends]:
    """Return the tables' ends: what a complete plan leaves out though nobody has planned it, is before the landing's
    start.
    """
    before = known.published.get(data, known.published.get(NO_TABLE, NO_ENDS))
    unplanned = NO_ENDS if plan.left or plan.refused is not None else ends
    others = {table: upto for table, upto in known.published.items() if table != NO_TABLE}
    return {**others, data: {**unplanned, **before}} if unplanned or before else others


def _behind(known: LandingCycles, plan: Plan) -> bool:
    """Return True if the topics have records that nobody has read, and no other cycle reads any."""
    done = known.read_upto
    left = any(end > done.get((p.topic, p.partition), end) for p, end in plan.ends.items())
    return left and not any(c.ended is None and c.done < c.slices and not c.failed for c in known.cycles)


def _planned(plan: Plan, tables: tuple[str, ...], done: Mapping[UUID, SliceWork]) -> dict[str, Any]:
    """Return the fields of a cycle's plan, keeping reports of an earlier plan of the same cycle."""
    reported = {i: w for i, w in done.items() if w.reports}
    return {
        "tables": tables,
        "planned": sum(len(span.range) for s in plan.slices for span in s.spans),
        "groups": len({s.group for s in plan.slices}),
        "slices": len(plan.slices),
        "left": plan.left,
        "reason": plan.reason or "",
        "refused": plan.refused is not None,
        "work": {s.slice_id: SliceWork(s.slice_id, s.group, s.spans) for s in plan.slices} | reported,
    }


def _reported(known: LandingCycles, entry: SliceReported, at: float) -> LandingCycles:
    report, index = entry.report, _index_of(known, entry.commit_id)
    before = None if index is None else known.cycles[index]
    after = None if before is None else with_report(before, entry, at)
    of = report.planned_slice or report.slice_id
    if report.blocked is None and report.failed is None:
        counted = SliceWork(of, NO_GROUP) if after is None else after.work.get(of, SliceWork(of, NO_GROUP))
        known = _joined(known, counted._replace(spans=tuple(s.span for s in report.spans)))
    if index is None or before is None or after is None:
        return known
    if after.done > before.done or after.undone > before.undone:
        known = known._replace(notes=after_rejects(known.notes, entry, at))
    if after.done > before.done:
        one = after.work[of]
        known = known if one.waits else _without_files(known, [one])
        known = known._replace(notes=after_report(known.notes, entry.report))
        known = _counted(known, read=after.counts.total - before.counts.total)
    return _with_cycle(known, index, after)


def _joined(known: LandingCycles, *more: SliceWork) -> LandingCycles:
    """Return the state after reports and commits: ``reported`` passes the slices that nothing unreported precedes."""
    ends, table, staged = dict(known.reported), known.in_table, list[SliceWork]()
    # A slice that is reported again counts once.
    works = {w.slice_id: w for w in (*known.staged, *more)}
    for work in sorted(works.values(), key=lambda w: w.spans):
        waits = False
        for span in work.spans:
            key = (span.partition.topic, span.partition.partition)
            upto = max(ends.get(key, -1), table.get(key, -1))
            upto = upto if upto >= 0 else _first(known, span)
            if span.range.start <= upto:
                ends[key] = max(upto, span.range.end)
            else:
                waits = True
        if waits:
            staged.append(work)
    ends = {key: max(end, table.get(key, 0)) for key, end in ends.items()}
    return known._replace(reported=ends, staged=tuple(staged[-MOST_STAGED:]))


def _first(known: LandingCycles, span: Span) -> int:
    spans = (s for c in known.cycles for w in c.work.values() for s in w.spans if s.partition == span.partition)
    return min((s.range.start for s in spans), default=span.range.start)


def _published(known: LandingCycles, entry: TablePublished, at: float) -> LandingCycles:
    table, snapshot = entry.table, (entry.table, at)
    ends = {**known.published, table: _furthest(known.published.get(table, {}), starmap(Span, entry.coverage.items()))}
    if entry.debt is not None:
        known = known._replace(debts={**known.debts, table: entry.debt})
    # All of its tables report the same ranges; those of the data count.
    known = _joined(known._replace(published=ends))
    if table == next(iter(known.tables), table):
        known = _counted(known, committed=len(entry.coverage))
    cycles = tuple(_with_snapshot(c, entry) for c in known.cycles)
    read = (w for before, c in zip(known.cycles, cycles, strict=True) if c is not before for w in c.work.values())
    known = _without_files(known._replace(cycles=cycles), [w for w in read if not w.waits])
    notes, rejected = after_commit(known.notes, entry)
    known = known._replace(notes=notes)
    return _changed(
        known,
        entry.commit_id,
        lambda c: c._replace(published=(*c.published, snapshot), dead_letters=c.dead_letters + rejected),
    )


def _with_snapshot(cycle: ObservedCycle, entry: TablePublished) -> ObservedCycle:
    """Return the cycle after a commit, which may have slices of several cycles."""
    done = {
        i: work._replace(waits=tuple(files for files in work.waits if files[0] != entry.table))
        for i, work in cycle.work.items()
        if entry.table in dict(work.waits)
        and not Coverage.of((s.partition, s.range) for s in work.spans) - entry.coverage
    }
    return cycle._replace(work={**cycle.work, **done}) if done else cycle


def _closed(known: LandingCycles, commit: UUID, at: float) -> LandingCycles:
    index = _index_of(known, commit)
    cycle = None if index is None else known.cycles[index]
    if cycle is not None and cycle.published and cycle.ended is None:
        took = at - (cycle.last_report or cycle.began)
        known = _counted(known, commits=1, committed=cycle.recorded)._replace(took=max(0.0, took))
    known = known if cycle is None else _without_files(known, cycle.work.values())
    return _changed(known, commit, lambda c: c._replace(ended=at, work=NO_WORK, files_of=()))


def _without_files(known: LandingCycles, work: Iterable[SliceWork]) -> LandingCycles:
    """Return the state after slices were read: without a file for the data table, they wait for no snapshot of it."""
    table = next(iter(known.tables), "")
    empty = (w for w in work if w.outcome in FINISHED and table not in dict(w.waits))
    ends = dict(known.published.get(table, {}))
    for span in sorted(span for w in empty for span in w.spans):
        key = (span.partition.topic, span.partition.partition)
        upto = min(span.range.end, known.reported.get(key, 0))
        if upto > ends.get(key, span.range.start) >= span.range.start:
            ends[key] = upto
    return known._replace(published={**known.published, table: ends}) if table and ends else known


def _counted(known: LandingCycles, **more: int) -> LandingCycles:
    totals = known.totals
    return known._replace(totals=totals._replace(**{k: getattr(totals, k) + n for k, n in more.items() if n}))


def _furthest(known: Ends, more: Iterable[Span]) -> Ends:
    out = dict(known)
    for span in more:
        key, end = (span.partition.topic, span.partition.partition), span.range.end
        if end > out.get(key, 0):
            out[key] = end
    return out


def _changed(known: LandingCycles, commit_id: UUID, change: Callable[[ObservedCycle], ObservedCycle]) -> LandingCycles:
    index = _index_of(known, commit_id)
    return known if index is None else _with_cycle(known, index, change(known.cycles[index]))


def _with_cycle(known: LandingCycles, index: int, one: ObservedCycle) -> LandingCycles:
    return known._replace(cycles=(*known.cycles[:index], one, *known.cycles[index + 1 :]))


def _index_of(known: LandingCycles, commit_id: UUID) -> int | None:
    """Return the index of a cycle; changing cycles are among the newest."""
    text = str(commit_id)
    return next((i for i in range(len(known.cycles) - 1, -1, -1) if known.cycles[i].commit_id == text), None)
