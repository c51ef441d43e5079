# SPDX-License-Identifier: Apache-2.0
"""`lakecommit status`: lag, waiting slices, open cycles, required decisions; of a set a line for each landing, worst
first. Writes nothing.

The exit code is 0 only if all is well (:mod:`~airflow_provider_lakecommit.status.status_rules`); otherwise the first
line has the reason. Of a set it is that of the worst: 1 if one cannot be read or topics have no landing; 6 if a landing
that the set no longer has is unfinished. A topic without records, whose table does not exist yet, is well.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from airflow_provider_lakecommit.cli.runs.plan import opened_set
from airflow_provider_lakecommit.cli.runs.process import is_dead
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import BACKFILL, DOCTOR, LAND, UNBLOCK, CycleState, resumed_by
from airflow_provider_lakecommit.cycle import (
    Expansion,
    FormerLanding,
    LandingSession,
    for_all,
    format_former,
    former_landings,
    has_no_record,
    without_records,
)
from airflow_provider_lakecommit.landing import LandingSetSpec, LandingSpec
from airflow_provider_lakecommit.status import (
    PartitionStatus,
    Status,
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
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = read_status(session, options.every)
    standing, why = status_verdict(found, options.max_lag, options.max_age)
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


Standing = tuple[StatusVerdict, str, Status | None]
"""The verdict on one landing, the reason, and its status; ``None`` if it has no table yet and needs none."""


def status_set(spec: LandingSetSpec, options: Namespace, output: Output) -> int:
    with opened_set(spec) as connections:
        expansion = connections.expansion

        def step(session: LandingSession) -> Standing:
            landing = session.landing
            made = spec.landing_set.missing_table == "create"
            if made and has_no_record(landing, connections) and session.tables.find(landing.table) is None:
                return StatusVerdict.WELL, without_records(landing), None
            found = read_status(session, options.every)
            return *status_verdict(found, options.max_lag, options.max_age), found

        ended = for_all(connections, expansion.landings, step, output.log)
        former, unreadable = former_landings(spec.landing_set, connections, output.log)
    ended = {**unreadable, **ended}
    order = list(StatusVerdict)
    failed = {name: str(each) for name, each in ended.items() if isinstance(each, BaseException)}
    statuses = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
    statuses = dict(sorted(statuses.items(), key=lambda item: order.index(item[1][0])))
    values = {
        "landing_set": spec.landing_set.name,
        "landings": [
            {**(to_dict(found) if found else {"landing": name}), "standing": verdict, "why": why}
            for name, (verdict, why, found) in statuses.items()
        ],
        "failed": failed,
        "former": [each.to_dict() for each in former],
        **expansion.left_out,
    }
    output.answer(values, _set_text(expansion, statuses, failed, former))
    if failed or expansion.troubles:
        return Exit.REFUSED
    worst = [verdict for verdict, _, _ in statuses.values()][:1]
    worst += [StatusVerdict.BEHIND for each in former if each.is_open]
    return CODES[min(worst, key=order.index, default=StatusVerdict.WELL)]


def _set_text(
    expansion: Expansion, statuses: Mapping[str, Standing], failed: Mapping[str, str], former: Iterable[FormerLanding]
) -> Iterator[str]:
    yield from (f"FAILED {name}: {why}" for name, why in failed.items())
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from map(format_former, former)
    for name, (verdict, why, found) in statuses.items():
        behind = f"; {found.lag} offsets behind" if found and found.lag else ""
        is_so = "all is well" if verdict is StatusVerdict.WELL else verdict.upper()
        yield f"{name}: {is_so}{f': {why}' if why else ''}{behind}"
    counts = Counter(verdict for verdict, _, _ in statuses.values())
    counted = [f"{counts[v]} {v}" for v in StatusVerdict if counts[v]]
    lag = sum(found.lag for _, _, found in statuses.values() if found)
    landings, numbers = len(statuses) + len(failed), ", ".join([*counted, f"{len(failed)} failed"])
    yield f"{landings} landings: {numbers}; {lag} offsets behind"
