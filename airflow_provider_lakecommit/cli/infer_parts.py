# SPDX-License-Identifier: Apache-2.0
"""How `lakecommit infer-schema` handles a sample if the spec has `unwrap` or `route`: rows in envelopes, tables.

Contract: :func:`parts_of` assigns the sampled JSON records to the tables of a route, as a landing would, by the field
of the row or of the envelope; records without a table are listed, and schema names, which are not sampled, do not
distinguish records. :func:`row_values` are the rows of such a part: those in ``before`` and ``after``, if the values
are envelopes. :func:`told_by_envelope` are the columns that any envelope fills; :func:`row_columns` does both for the
columns of a schema. :func:`told_of_wrapping` informs users who do not know yet that they have envelopes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_lakecommit.core import Route
from airflow_provider_lakecommit.formats import InferredColumn, Node, SampledValues, is_wrapper
from airflow_provider_lakecommit.landing import ENVELOPE_ROOTS, PAYLOAD, Landing

Sample = Sequence[tuple[str, bytes | None]]
_IMAGES = ("before", "after")
_ENVELOPE = frozenset({"op", "after", "source"})
"""Fields that identify a change envelope."""


def parts_of(landing: Landing, taken: Sample) -> tuple[dict[str, list[tuple[str, bytes | None]]], list[str]]:
    """Return the sampled records of each table of the landing, and the positions of records without a table."""
    parts: dict[str, list[tuple[str, bytes | None]]] = {table: [] for table in landing.data_tables}
    none: list[str] = []
    for place, value in taken:
        table = landing.table
        if (route := landing.routing) is not None and not route.by_schema and value is not None:
            text = _text(value, route, unwraps=landing.transform.unwrap is not None)
            table = route.tables.get(text, route.other_table or "") if text is not None else route.other_table or ""
        if table:
            parts[table].append((place, value))
        else:
            none.append(place)
    return parts, none


def _text(value: bytes, route: Route, *, unwraps: bool) -> str | None:
    """Return the text that routes a record; ``None`` also if it is no JSON."""
    try:
        found: Any = json.loads(value)
    except (ValueError, RecursionError):
        return None
    path = route.field.split(".")
    if unwraps and isinstance(found, Mapping):
        found = inner if isinstance(inner := found.get(PAYLOAD), Mapping) and path[0] != PAYLOAD else found
        if path[0] not in ENVELOPE_ROOTS:
            found = found.get("before" if found.get("op") == "d" else "after")
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def row_values(landing: Landing, found: SampledValues) -> SampledValues:
    """Return the rows of the sample, with the refused ones."""
    if landing.transform.unwrap is None:
        return found
    envelopes = [found.root, *(n for n in [found.root.fields.get(PAYLOAD)] if n is not None)]
    images = [n for envelope in envelopes for name in _IMAGES if (n := envelope.fields.get(name)) is not None]
    rows = Node.union(images)
    rows.settle(rows.seen)
    return SampledValues(root=rows, values=found.values, tombstones=found.tombstones, refused=found.refused)


def told_by_envelope(landing: Landing, columns: Sequence[InferredColumn]) -> list[InferredColumn]:
    """Return the columns with the kind of change, whether the row is deleted, and the time of the change."""
    if landing.transform.unwrap is None or not columns:
        return list(columns)
    there = {c.name for c in columns}
    told = (("_op", "string", True), ("_is_deleted", "boolean", True), ("_source_time", "timestamptz", False))
    added = (InferredColumn(name=name, type=kind, required=always) for name, kind, always in told)
    return [*columns, *(c for c in added if c.name not in there)]


def row_columns(landing: Landing | None, columns: Sequence[InferredColumn]) -> list[InferredColumn]:
    """Return the columns of the rows, if the landing has envelopes of them."""
    if landing is None or landing.transform.unwrap is None:
        return list(columns)
    image = next(
        (c for name in reversed(_IMAGES) for c in columns if c.name == name and isinstance(c.type, dict)), None
    )
    if image is None:
        return []
    fields = {f["name"]: f for f in image.type["struct"]}
    notes: dict[str, list[str]] = {name: [] for name in fields}
    for note in (note.removeprefix(f"{image.name}.") for note in image.notes):
        # Columns that are left out only have a note.
        notes.setdefault(re.split("[.:]", note, maxsplit=1)[0], []).append(note)
    rows = [
        InferredColumn(
            name=name,
            type=fields.get(name, {}).get("type"),
            required=fields.get(name, {}).get("required", False),
            notes=tuple(said),
        )
        for name, said in notes.items()
    ]
    return told_by_envelope(landing, rows)


def told_of_wrapping(landing: Landing | None, found: SampledValues, names: Collection[str]) -> Iterator[str]:
    """Yield hints about records that are not the rows themselves, if the landing has no setting for it.

    :param names: of the columns that were found
    """
    if landing is not None and landing.transform.unwrap is not None:
        return
    inner = found.root.fields.get(PAYLOAD) if is_wrapper(names) else None
    if set(names) >= _ENVELOPE or (inner is not None and inner.fields.keys() >= _ENVELOPE):
        yield "the records are change envelopes: add `transform: {unwrap: debezium}` to this spec and run infer-schema"
        yield "with it, for the columns of the rows in them; without it, deleted rows may have no key"
    elif inner is not None:
        yield "the records contain their schema: set value.converter.schemas.enable=false of the converter"
