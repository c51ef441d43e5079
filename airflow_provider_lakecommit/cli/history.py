# SPDX-License-Identifier: Apache-2.0
"""`lakecommit history`: windows, spec versions, epochs, columns and decisions of a landing; with `--ledger` its
ledgers.

The tables are the source; the control topic, if it can be read, adds the runs of the windows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import Cycle, CycleOpened, Decision, LedgerSection
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import LedgerState, Tables, read_ledger
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.spark import CLI
from airflow_provider_lakecommit.status.landing_history import table_history

_COUNTS = ("landed", "rejected", "filtered", "gaps", "skipped", "superseded", "deleted")


def history(spec: LandingSpec, output: Output) -> int:
    landing, found = spec.landing, []
    with LandingSession.connect(landing, spec.kafka, spec.catalog, log=output.log) as session:
        runs, decisions = _by_the_log(session, output)
        for name in landing.tables:
            table = session.tables.find(name)
            if table is None:
                output.log(f"{name}: the table does not exist")
                continue
            found.append(table_history(name, table.metadata, landing.branch, landing.name, runs, decisions))
    values = {"landing": landing.name, "spec_version": landing.spec_version, "tables": found}
    output.answer(values, (line for entry in found for line in _text(entry)))
    return Exit.DONE


def _by_the_log(session: LandingSession, output: Output) -> tuple[dict[UUID, Cycle], tuple[Decision, ...]]:
    """Return the cycles and the decisions in the newest part of the control topic."""
    try:
        folded = session.read_state(())
    except LakecommitError as e:
        output.log(f"the control topic cannot be read, so the runs of the windows are unknown: {e}")
        return {}, ()
    decisions = tuple(d for e in folded.entries if isinstance(e, CycleOpened) for d in e.directives.decided)
    return {commit_id: c.cycle for commit_id, c in folded.state.cycles.items()}, decisions


def _text(entry: Mapping[str, Any]) -> Iterable[str]:
    yield f"{entry['table']}: {_many(entry['windows'], 'snapshot')} with rows, newest first"
    yield from (f"  {_window(w)}" for w in entry["windows"])
    yield f"  {_many(entry['spec_versions'], 'spec version')}"
    yield from (f"    {_spec(s)}" for s in entry["spec_versions"])
    yield f"  {_many(entry['epochs'], 'epoch')}"
    yield from (f"    {e['at']} {_lane(e)}{e['epoch']}: {e['why']}" for e in entry["epochs"])
    if entry["replaced"]:
        yield f"  {_many(entry['replaced'], 'replacement')}"
        yield from (f"    {_replacement(r)}" for r in entry["replaced"])
    if entry["columns"]:
        yield f"  {_many(entry['columns'], 'change')} of columns"
        yield from (
            f"    {c['at']} schema {c['schema_id']}: {'; '.join(c['changes'])} ({c['reason']})"
            for c in entry["columns"]
        )
    yield f"  {_many(entry['decisions'], 'decision')} of users"
    yield from (f"    {Decision(**d)}" for d in entry["decisions"])
    yield from (f"  WARNING: {problem}" for problem in entry["unreadable"])


def _many(values: list[Any], what: str) -> str:
    return f"{len(values)} {what}{'' if len(values) == 1 else 's'}"


def _lane(entry: Mapping[str, Any]) -> str:
    return "" if entry["lane"] == "live" else f"backfill {entry['lane']} "


def _window(w: Mapping[str, Any]) -> str:
    took = "" if w["seconds"] is None else f" in {w['seconds']:.1f} s"
    run = f"; {_run(w['dag'], w['run'])}" if w["run"] else ""
    counts = ", ".join(f"{w[k]} {k}" for k in _COUNTS if w.get(k))
    made = f"{w['rows']} rows, {w['files']} files, {w['slices']} slices{took}"
    return f"{w['at']} {_lane(w)}{counts or 'nothing'}: {made}{run}"


def _replacement(r: Mapping[str, Any]) -> str:
    ranges = ", ".join(f"{p} [{a}, {b})" for p, some in r["offsets"].items() for a, b in some)
    files = f"{r['dropped_files']} files dropped, {r['rewritten_files']} rewritten ({r['rewritten_bytes']} bytes)"
    return f"{r['at']} {_lane(r)}{r['rows']} rows of {ranges}: {files}"


def _run(dag: str, run: str) -> str:
    """Return the DAG run; of a command-line process just the host."""
    return f"command line on {run.split('|')[1]}" if dag == CLI and run.count("|") > 1 else f"{dag} run {run}"


def _spec(s: Mapping[str, Any]) -> str:
    if s["before"] is None:
        changed = "the first known one"
    elif s["changed"] is None:
        changed = f"was {s['before']}; its fields were not kept"
    else:
        changes = (f"{k}: {_shown(a)} -> {_shown(b)}" for k, (a, b) in s["changed"].items())
        changed = f"was {s['before']}; " + "; ".join(changes)
    return f"{s['at']} {_lane(s)}{s['spec_version']}: {changed}"


def _shown(value: Any) -> str:
    return "default" if value is None else json.dumps(value, ensure_ascii=False)


def ledgers(spec: LandingSpec, output: Output) -> int:
    """Show the ledger of each table, with the entries of all landings and streams."""
    tables = Tables(spec.catalog)
    for name in spec.landing.tables:
        table = tables.find(name)
        state = None if table is None else read_ledger(table.metadata, spec.landing.branch)
        output.answer(_ledger_to_dict(name, state), _ledger_text(name, state))
    return Exit.DONE


def _ledger_to_dict(name: str, state: LedgerState | None) -> dict[str, Any]:
    if state is None:
        return {"table": name, "condition": "missing"}
    return {
        "table": name,
        "uuid": str(state.table_uuid),
        "branch": state.branch,
        "condition": str(state.condition),
        "reason": state.reason,
        "snapshot_id": state.snapshot_id,
        "head_id": state.head_id,
        "tag_id": state.tag_id,
        "foreign_since": state.foreign_since,
        "sections": [_section_to_dict(s) for s in state.sections],
    }


def _section_to_dict(s: LedgerSection) -> dict[str, Any]:
    return {
        "landing": s.landing,
        "lane": s.lane,
        "cluster_id": s.cluster_id,
        "epoch": str(s.epoch),
        "spec_version": s.spec_version,
        "topic_ids": {p.topic: p.topic_id for p in sorted(s.starts)},
        "starts": {str(p): start for p, start in sorted(s.starts.items())},
        "covered": s.covered.to_dict(),
        "control": asdict(s.control),
    }


def _ledger_text(name: str, state: LedgerState | None) -> Iterable[str]:
    if state is None:
        yield f"{name}: the table does not exist"
        return
    reason = f" ({state.reason})" if state.reason else ""
    yield f"{name}: ledger {state.condition}{reason}, in snapshot {state.snapshot_id}, head {state.head_id}"
    for s in state.sections:
        yield f"  landing {s.landing}, stream {s.lane}, spec {s.spec_version}, epoch {s.epoch}"
        for p in sorted({*s.starts, *s.covered.parts}):
            yield f"    {p}: from {s.starts.get(p, 0)}, landed {s.covered[p]}, next {s.end(p)}"
        c = s.control
        yield f"    control {c.topic}[{c.partition}] from offset {c.read_from}, lowest needed {c.low}"
