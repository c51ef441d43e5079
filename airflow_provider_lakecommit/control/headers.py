# SPDX-License-Identifier: Apache-2.0
"""The record header ``lakecommit``: our data beyond the connector's schemas, as JSON, versioned by the envelope.

Readers ignore unknown keys, so a new optional key needs no new version. A record of our group without the header is
not ours and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, fields
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control.coverage import (
    coverage_from_json,
    coverage_to_json,
    spans_from_json,
    spans_to_json,
)
from airflow_provider_lakecommit.control.packed_text import CORRUPTION, count, pack, text, unpack
from airflow_provider_lakecommit.control.plan_json import budget_from_json, budget_to_json
from airflow_provider_lakecommit.core import (
    COORDINATES,
    MOST_TEXT,
    Budget,
    Counts,
    Cycle,
    Decision,
    Directives,
    ReadPosition,
    SliceCost,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
)
from airflow_provider_lakecommit.exceptions import WireError

HEADER = "lakecommit"
HEADER_LIMIT = 256 << 10
NO_EPOCH = -1
"""The leader epoch of a record for which the broker reported none."""
CORRUPT_HEADERS = "lakecommit-damaged-headers"
"""The header that replaces headers which the client cannot decode."""
CORRUPT_BATCH = "lakecommit-damaged-batch"
"""The header of a record that replaces unreadable ones from its offset on; its value is the reason."""

_APPENDED = 5
"""Counts that every landing has; those of an upserting one follow."""


def header(values: Mapping[str, Any], what: str) -> list[tuple[str, bytes]]:
    remedy = "use larger slices (window.slice_records) or smaller windows (window.max_records)"
    return [(HEADER, pack(values, what=what, limit=HEADER_LIMIT, remedy=remedy).encode("ascii"))]


def find(headers: Iterable[tuple[str, bytes]]) -> dict[str, Any] | None:
    """Return our header, or ``None``."""
    packed = next((v or b"" for k, v in headers if k == HEADER), None)
    return None if packed is None else unpack(packed, what="a control record's header", limit=HEADER_LIMIT)


def cycle_to_json(c: Cycle) -> dict[str, Any]:
    out = {"commit_id": str(c.commit_id), "dag": c.dag, "run": c.run, "n": c.number, "slot": c.slot}
    known = {"deployment": c.deployment, "turn": c.turn}
    return {**out, **{name: value for name, value in known.items() if value}}


def cycle_from_json(v: Mapping[str, Any]) -> Cycle:
    return Cycle(
        commit_id=UUID(v["commit_id"]),
        dag=text(v["dag"]),
        run=text(v["run"]),
        number=count(v["n"]),
        slot=count(v["slot"]),
        deployment=text(v.get("deployment", "")),
        turn=count(v.get("turn", 0)),
    )


def directives_to_json(d: Directives) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if d.released:
        out["released"] = [str(u) for u in d.released]
    if d.voided:
        out["voided"] = [str(u) for u in d.voided]
    if d.raised:
        out["raised"] = [[coverage_to_json(coverage), budget_to_json(budget)] for coverage, budget in d.raised]
    if d.decided:
        out["decided"] = [
            {name: value[:MOST_TEXT] for name, value in asdict(each).items() if value} for each in d.decided
        ]
    return out


_DIRECTIVES = frozenset(f.name for f in fields(Directives))
_NONE = Directives()


def directives_from_json(v: Mapping[str, Any]) -> Directives:
    if _DIRECTIVES.isdisjoint(v):
        return _NONE
    return Directives(
        released=tuple(UUID(u) for u in v.get("released", ())),
        voided=tuple(UUID(u) for u in v.get("voided", ())),
        raised=tuple(
            (coverage_from_json(c), budget_from_json(b) or Budget(max_records=0, max_ratio=0))
            for c, b in v.get("raised", ())
        ),
        decided=tuple(_decision(each) for each in v.get("decided", ())),
    )


def _decision(v: Mapping[str, Any]) -> Decision:
    known = {f.name for f in fields(Decision)}
    return Decision(**{name: text(value)[:MOST_TEXT] for name, value in v.items() if name in known})


def report_to_json(r: SliceReport) -> dict[str, Any]:
    rare: dict[str, Any] = {} if r.cost is None else {"cost": _cost_to_json(r.cost)}
    rare |= {"rules": r.rules} if r.rules else {}
    rare |= {"rejects": dict(r.rejects)} if r.rejects else {}
    rare |= {"reject_reason": r.reject_reason} if r.reject_reason else {}
    rare |= {"unknown_at": {name: list(at) for name, at in r.unknown_at.items()}} if r.unknown_at else {}
    rare |= {"whole": str(r.planned_slice)} if r.planned_slice else {}
    rare |= {"voids": str(r.voids)} if r.voids else {}
    rare |= {} if r.generation is None else {"generation": r.generation}
    spans = sorted(r.spans, key=lambda s: s.span)
    if any(s.position for s in spans):
        rare["positions"] = [[at.offset, at.leader_epoch] if (at := s.position) else None for s in spans]
    return rare | {
        "slice": str(r.slice_id),
        "attempt": str(r.attempt),
        "window": str(r.window_id),
        "spec": r.spec_version,
        "spans": spans_to_json(s.span for s in spans),
        "counts": [_counts_to_json(s.counts) for s in spans],
        "tables": [_table_to_json(t) for t in r.tables],
        "bytes": r.bytes,
        "ignored_fields": dict(r.ignored_fields),
        "blocked": r.blocked,
        "failed": r.failed,
    }


def report_from_json(v: Mapping[str, Any]) -> SliceReport:
    try:
        spans: tuple[Span, ...] = spans_from_json(v["spans"])
        value = v.get("positions") or [None] * len(spans)
        positions = [_position(p, s) for p, s in zip(value, spans, strict=True)]
        return SliceReport(
            slice_id=UUID(v["slice"]),
            attempt=UUID(v["attempt"]),
            window_id=UUID(v["window"]),
            spec_version=text(v["spec"]),
            spans=tuple(
                SpanReport(span=s, counts=_counts(c), position=p)
                for s, c, p in zip(spans, v["counts"], positions, strict=True)
            ),
            tables=tuple(_table(t) for t in v["tables"]),
            bytes=count(v["bytes"]),
            ignored_fields={text(k): count(n) for k, n in v["ignored_fields"].items()},
            blocked=_reason(v["blocked"]),
            failed=_reason(v["failed"]),
            cost=None if v.get("cost") is None else _cost(v["cost"]),
            rules=text(v.get("rules", "")),
            rejects={text(k): count(n) for k, n in v.get("rejects", {}).items()},
            reject_reason=text(v.get("reject_reason", "")),
            unknown_at={
                text(k): (text(topic), count(p), count(o)) for k, (topic, p, o) in v.get("unknown_at", {}).items()
            },
            planned_slice=UUID(v["whole"]) if v.get("whole") else None,
            voids=UUID(v["voids"]) if v.get("voids") else None,
            generation=count(v["generation"]) if "generation" in v else None,
        )
    except CORRUPTION as e:
        raise WireError("LC2356", f"a slice report is corrupt: {type(e).__name__} {e}") from e


def _position(value: Any, span: Span) -> ReadPosition | None:
    """Return the position, unless it is not of its span."""
    if value is None:
        return None
    offset, epoch = value
    if epoch == NO_EPOCH:
        return None
    position = ReadPosition(offset=count(offset), leader_epoch=count(epoch))
    return position if span.range.start < position.offset <= span.range.end else None


def _reason(value: Any) -> str | None:
    return None if value is None else text(value)


def _cost_to_json(c: SliceCost) -> list[int]:
    """Return milliseconds of reading, decoding and writing, then bytes."""
    return [*(round(s * 1000) for s in (c.read_seconds, c.decode_seconds, c.write_seconds)), c.bytes]


def _cost(values: list[int]) -> SliceCost:
    read, decode, write, written = map(count, values)
    return SliceCost(read_seconds=read / 1000, decode_seconds=decode / 1000, write_seconds=write / 1000, bytes=written)


def _counts_to_json(c: Counts) -> list[int]:
    values = list(astuple(c))
    return values if any(values[_APPENDED:]) else values[:_APPENDED]


def _counts(values: list[int]) -> Counts:
    if len(values) not in (_APPENDED, len(fields(Counts))):
        raise ValueError(f"{len(values)} counts")
    return Counts(**dict(zip((f.name for f in fields(Counts)), map(count, values), strict=False)))


def _table_to_json(t: TableReport) -> list[Any]:
    return [t.table, str(t.uuid), str(t.epoch), t.schema_id, t.spec_id, t.events, t.files, t.rows, *t.columns]


def _table(v: list[Any]) -> TableReport:
    table, uuid, epoch, *numbers = v
    schema_id, spec_id, events, files, rows, *columns = map(count, numbers)
    if len(columns) not in (0, len(COORDINATES)):
        raise ValueError(f"{len(columns)} columns do not name a record")
    return TableReport(
        table=text(table),
        uuid=UUID(uuid),
        epoch=UUID(epoch),
        schema_id=schema_id,
        spec_id=spec_id,
        events=events,
        files=files,
        rows=rows,
        columns=tuple(columns),
    )
