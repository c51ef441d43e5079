# SPDX-License-Identifier: Apache-2.0
"""`lakecommit ledger show`: what is in the tables, as the tables say.

Contract: only reads. A table that is missing is told as such, of others all sections of all landings and lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_provider_lakecommit.committer.ledger import LedgerState, read_ledger
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["ledger_show"]


def ledger_show(spec: LandingSpec, output: Output) -> int:
    """The ledger of each table, of all landings and lanes in it.

    :raises CatalogError: the catalog is away
    :raises WireError: a ledger is damaged
    """
    tables = Tables(spec.catalog)
    for name in spec.landing.tables:
        table = tables.find(name)
        state = None if table is None else read_ledger(table.metadata, spec.landing.branch)
        if output.as_json:
            output.result(_to_dict(name, state))
        else:
            output.lines(_text(name, state))
    return Exit.DONE


def _to_dict(name: str, state: LedgerState | None) -> dict[str, Any]:
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
        "control": {
            "cluster_id": s.control.cluster_id,
            "topic": s.control.topic,
            "topic_id": s.control.topic_id,
            "partition": s.control.partition,
            "read_from": s.control.read_from,
            "low": s.control.low,
        },
    }


def _text(name: str, state: LedgerState | None) -> Iterable[str]:
    if state is None:
        yield f"{name}: there is no such table"
        return
    reason = f" ({state.reason})" if state.reason else ""
    yield f"{name}: ledger {state.condition}{reason}, in snapshot {state.snapshot_id}, head {state.head_id}"
    for s in state.sections:
        yield f"  landing {s.landing}, lane {s.lane}, spec {s.spec_version}, epoch {s.epoch}"
        for p in sorted({*s.starts, *s.covered.parts}):
            yield f"    {p}: from {s.starts.get(p, 0)}, landed {s.covered[p]}, next {s.end(p)}"
        c = s.control
        yield f"    control {c.topic}[{c.partition}] from offset {c.read_from}, lowest needed {c.low}"
