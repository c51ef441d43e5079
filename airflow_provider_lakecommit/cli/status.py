# SPDX-License-Identifier: Apache-2.0
"""`lakecommit status`: lag, waiting slices, open cycles, required decisions. Writes nothing.

The exit code is 0 only if all is well (:mod:`~airflow_provider_lakecommit.status.status_rules`); otherwise the first
line has the reason.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from datetime import datetime

from airflow_provider_lakecommit.cli.runs.process import is_dead
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import BACKFILL, DOCTOR, LAND, UNBLOCK, CycleState, resumed_by
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.status import (
    PartitionStatus,
    Status,
    StatusLimits,
    StatusVerdict,
    TableStatus,
    read_status,
    status_verdict,
    to_dict,
)

CODES = {
    StatusVerdict.WELL: Exit.DONE,
    StatusVerdict.BLOCKED: Exit.BLOCKED,
    StatusVerdict.STALLED: Exit.STALLED,
    StatusVerdict.BEHIND: Exit.BEHIND,
}


def status(spec: LandingSpec, options: Namespace, output: Output) -> int:
    """Show the state of the landing; return its exit code."""
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = read_status(session, options.every)
    standing, why = status_verdict(found, StatusLimits(lag=options.max_lag, age=options.max_age))
    head = f"{found.landing} is {standing.upper()}: {why}" if why else f"{found.landing}: all is well"
    output.answer({**to_dict(found), "standing": standing.value, "why": why or None}, [head, *_text(found)])
    return CODES[standing]


def _text(found: Status) -> Iterable[str]:
    through = (
        f"all up to {found.valid_through.isoformat()} is in the tables"
        if found.valid_through
        else "the tables have no valid-through time yet"
    )
    yield f"{found.landing}: {found.lag} offsets behind; {through}"
    yield from (f"  topic {topic} does not exist" for topic in found.missing_topics)
    if found.suspended:
        yield f"  SUSPENDED by {found.suspended}; to continue, {resumed_by(found.suspended)}"
    yield from (f"  {lane}: `{BACKFILL} --list`" for lane in found.lanes)
    for table in found.tables:
        yield from _table(table)
    if found.partitions:
        yield from _columns(
            ("partition", "start", "landed", "stable", "lag", "note"), [_partition(p) for p in found.partitions]
        )
    yield from (f"  WARNING: {warning}" for warning in (*found.warnings, *found.crowded))
    if found.shortest is not None and not found.warnings:
        yield f"  {found.shortest.partition}: {found.shortest}"
    yield from (_cycle(c, found.at) for c in found.cycles)
    yield from (f"  blocked {b}; decide with `{UNBLOCK}` (or --raise N, --skip)" for b in found.blocked)
    if found.redundant:
        yield f"  {found.redundant} reports in the control topic were redundant: replicas, or abandoned attempts"
    if not found.signed:
        yield f"  WARNING: control records are not signed; see `{DOCTOR}`"
    if found.quarantined_count:
        yield f"  WARNING: {found.quarantined_count} records of the control topic are ignored, the newest are"
    yield from (f"    {q}" for q in found.quarantined)


def _table(t: TableStatus) -> Iterable[str]:
    reason = f" ({t.reason})" if t.reason else ""
    at = f", ledger in snapshot {t.snapshot_id}" if t.snapshot_id is not None else ""
    others = f", {t.foreign_since} snapshots of others since" if t.foreign_since else ""
    yield f"  {t.table}: {t.condition}{reason}{at}{others}"
    if t.unpublished:
        yield f"    WARNING: {t.unpublished} rows wait on their branch: main lacks them until their checks pass"
    if t.debt is not None:
        advice = f"; {t.debt.remedy}" if t.debt.share >= 1 else ""
        yield f"    {'WARNING: ' if advice else ''}{t.debt}{advice}"
    if t.pending_slices:
        yield f"    pending: {t.pending_slices} slices, {t.pending_files} files, {t.pending_bytes} bytes"
    yield from (f"    {w}" for w in t.waiting)


def _partition(p: PartitionStatus) -> tuple[str, ...]:
    note = f"an open transaction blocks {p.open_transactions} offsets" if p.open_transactions else ""
    if p.removed:
        note = f"{p.removed} unlanded offsets were removed from the source"
    landed = "-" if p.landed is None else str(p.landed)
    return str(p.partition), str(p.start), landed, str(p.stable), str(p.lag), note


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(len(row[n]) for row in (header, *rows)) for n in range(len(header))]
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)), row[-1]]
        yield f"  {'  '.join(cells).rstrip()}"


def _cycle(state: CycleState, now: datetime) -> str:
    live = state.live(now)
    claim = (
        f"claims {state.claim} until {state.ends(now).isoformat()}"
        if live
        else "its claim has ended, and the next run publishes its reported slices"
    )
    if live and is_dead(state.cycle):
        claim = f"its process has ended, the next `{LAND}` on this host ends its claim"
    failed = f"; {len(state.failed)} commit attempts failed: {list(state.failed.values())[-1]}" if state.failed else ""
    return f"  open cycle {state.cycle.commit_id} of {state.cycle.dag} run {state.cycle.run}: {claim}{failed}"
