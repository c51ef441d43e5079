# SPDX-License-Identifier: Apache-2.0
"""The plan of a cycle as JSON, for the header of a START_COMMIT and for a Spark job.

Slice ids are derived again on reading, so they are not stored. A plan has no secrets. Times are UTC ISO 8601 text with
microseconds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from math import inf
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control.coverage import (
    offsets_from_json,
    offsets_to_json,
    positions_from_json,
    positions_to_json,
    spans_from_json,
    spans_to_json,
)
from airflow_provider_lakecommit.control.packed_text import CORRUPTION, count, text
from airflow_provider_lakecommit.core import Budget, Plan, RefusalState, Slice, TableTarget, slice_id
from airflow_provider_lakecommit.exceptions import WireError

YEARS = range(1970, 9000)
MAX_SLICES = 4000
"""Most slices of a window: with them a plan stays well below the limit of a header; the rest is left to the next
window.
"""


def time_to_json(t: datetime) -> str:
    return t.astimezone(UTC).isoformat(timespec="microseconds")


def time_from_json(value: str) -> datetime:
    """Parse a time; a naive one, or one too near to the ends of the calendar, raises :class:`ValueError`."""
    found = datetime.fromisoformat(value)
    if found.tzinfo is None or found.year not in YEARS:
        raise ValueError(f"{value!r:.80} has no time zone, or is of no year from {YEARS[0]} to {YEARS[-1]}")
    return found.astimezone(UTC)


def budget_to_json(b: Budget | None) -> list[Any] | None:
    return None if b is None else [b.max_records, b.max_ratio]


def budget_from_json(values: Any) -> Budget | None:
    if values is None:
        return None
    ratio = values[1]
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 <= ratio < inf:
        raise ValueError(f"{ratio!r:.80} is no ratio")
    return Budget(max_records=count(values[0]), max_ratio=float(ratio))


def plan_to_json(plan: Plan) -> dict[str, Any]:
    rare: dict[str, Any] = {} if plan.refused is None else {"held": str(plan.refused), "refusal": plan.refused.name}
    rare |= {"vended": dict(plan.vended)} if plan.vended else {}
    rare |= {"positions": positions_to_json(plan.positions)} if plan.positions else {}
    rare |= {"leader_epochs": offsets_to_json(plan.leader_epochs)} if plan.leader_epochs else {}
    rare |= {} if plan.generation is None else {"generation": plan.generation}
    return rare | {
        "landing": plan.landing,
        "lane": plan.lane,
        "spec": plan.spec_version,
        "window": str(plan.window_id),
        "slices": [[s.group, list(s.tables), spans_to_json(s.spans), budget_to_json(s.budget)] for s in plan.slices],
        "targets": [_target_to_json(t) for t in plan.targets],
        "ends": offsets_to_json(plan.ends),
        "asked_at": time_to_json(plan.requested_at),
        "left": plan.left,
        "reason": plan.reason,
    }


def plan_from_json(values: dict[str, Any]) -> Plan:
    try:
        window = UUID(values["window"])
        return Plan(
            landing=text(values["landing"]),
            lane=text(values["lane"]),
            spec_version=text(values["spec"]),
            window_id=window,
            slices=tuple(_slice_from_json(s, window) for s in values["slices"]),
            targets=tuple(_target_from_json(t) for t in values["targets"]),
            ends=offsets_from_json(values["ends"]),
            requested_at=time_from_json(values["asked_at"]),
            left=count(values["left"]),
            reason=None if values["reason"] is None else text(values["reason"]),
            refused=refusal_from_json(values),
            vended={text(t): keys is True for t, keys in values.get("vended", {}).items()},
            positions=positions_from_json(values.get("positions", ([], []))),
            leader_epochs=offsets_from_json(values.get("leader_epochs", [])),
            generation=count(values["generation"]) if "generation" in values else None,
        )
    except CORRUPTION as e:
        raise WireError("LC2361", f"a plan is corrupt: {type(e).__name__} {e}") from e


def refusal_from_json(plan: Mapping[str, Any]) -> RefusalState | None:
    """Return the state that prevented a plan; one of a later release is :attr:`~RefusalState.OTHER`."""
    name = plan.get("refusal")
    return None if name is None else RefusalState.__members__.get(text(name), RefusalState.OTHER)


def plan_digest(plan: Plan) -> str:
    """Return the digest of all of a plan."""
    return hashlib.sha256(json.dumps(plan_to_json(plan), sort_keys=True).encode()).hexdigest()


def _slice_from_json(values: list[Any], window: UUID) -> Slice:
    group, names, ranges, budget = values
    spans, tables = spans_from_json(ranges), tuple(text(t) for t in names)
    return Slice(
        slice_id=slice_id(window, spans, tables),
        group=count(group),
        spans=spans,
        tables=tables,
        budget=budget_from_json(budget),
    )


def _target_to_json(t: TableTarget) -> dict[str, Any]:
    sort_order = {"sort_order": t.sort_order} if t.sort_order else {}
    return sort_order | {
        "table": t.table,
        "uuid": str(t.uuid),
        "location": t.location,
        "schema": t.schema,
        "schema_id": t.schema_id,
        "spec": t.spec,
        "spec_id": t.spec_id,
        "properties": dict(t.properties),
        "format_version": t.format_version,
        "epoch": str(t.epoch),
    }


def _target_from_json(v: dict[str, Any]) -> TableTarget:
    return TableTarget(
        table=text(v["table"]),
        uuid=UUID(v["uuid"]),
        location=text(v["location"]),
        schema=text(v["schema"]),
        schema_id=count(v["schema_id"]),
        spec=text(v["spec"]),
        spec_id=count(v["spec_id"]),
        properties={text(k): text(p) for k, p in v["properties"].items()},
        format_version=count(v["format_version"]),
        epoch=UUID(v["epoch"]),
        sort_order=text(v.get("sort_order", "")),
    )
