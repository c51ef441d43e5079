# SPDX-License-Identifier: Apache-2.0
"""How `lakecommit infer-schema` treats a sample by the landing's own settings: envelopes, routes, SQL, CSV and raw
bytes.

Rows of envelopes are their ``before`` and ``after``. A route assigns JSON records to tables by a field; schema names
are not sampled, so they distinguish nothing. SQL is run on no rows: its columns may be null. CSV becomes equivalent
JSON: what JSON would write as a number or boolean stays one, all else is text. Invalid rows are left out, since
decoding the sample with the result reports them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from airflow_provider_lakecommit.core import FormatOptions, Route
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import (
    InferredColumn,
    Node,
    SampledValues,
    bad_texts,
    decoder_for,
    inferred_from_sql,
    is_wrapper,
    plain,
)
from airflow_provider_lakecommit.landing import ENVELOPE_ROOTS, PAYLOAD, Landing
from airflow_provider_lakecommit.spark import given_columns

Sample = Sequence[tuple[str, bytes | None]]
_IMAGES = ("before", "after")
_ENVELOPE = frozenset({"op", "after", "source"})
"""Fields that identify a change envelope."""


def parts_of(landing: Landing, taken: Sample) -> tuple[dict[str, list[tuple[str, bytes | None]]], list[str]]:
    """Return the sampled records of each table of the landing, and the positions of records without a table."""
    parts: dict[str, list[tuple[str, bytes | None]]] = {table: [] for table in landing.data_tables}
    none: list[str] = []
    for location, value in taken:
        table = landing.table
        if (route := landing.routing) is not None and not route.by_schema and value is not None:
            text = _text(value, route, unwraps=landing.transform.unwrap is not None)
            table = route.tables.get(text, route.other_table or "") if text is not None else route.other_table or ""
        if table:
            parts[table].append((location, value))
        else:
            none.append(location)
    return parts, none


def _text(value: bytes, route: Route, *, unwraps: bool) -> str | None:
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
    if landing.transform.unwrap is None:
        return found
    envelopes = [found.root, *(n for n in [found.root.fields.get(PAYLOAD)] if n is not None)]
    images = [n for envelope in envelopes for name in _IMAGES if (n := envelope.fields.get(name)) is not None]
    rows = Node.union(images)
    rows.settle(rows.observed)
    return SampledValues(root=rows, values=found.values, tombstones=found.tombstones, refused=found.refused)


def columns_of_envelope(landing: Landing, columns: Sequence[InferredColumn]) -> list[InferredColumn]:
    """Return the columns with the kind of change, whether the row is deleted, and the time of the change."""
    if landing.transform.unwrap is None or not columns:
        return list(columns)
    there = {c.name for c in columns}
    envelope_columns = (
        ("_op", "string", True),
        ("_is_deleted", "boolean", True),
        ("_source_time", "timestamptz", False),
    )
    added = (InferredColumn(name=name, type=kind, required=always) for name, kind, always in envelope_columns)
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
            notes=tuple(note),
        )
        for name, note in notes.items()
    ]
    return columns_of_envelope(landing, rows)


def notes_on_wrapping(landing: Landing | None, found: SampledValues, names: Collection[str]) -> Iterator[str]:
    """Yield hints about records that wrap their rows, if the landing has no setting for it."""
    if landing is not None and landing.transform.unwrap is not None:
        return
    inner = found.root.fields.get(PAYLOAD) if is_wrapper(names) else None
    if set(names) >= _ENVELOPE or (inner is not None and inner.fields.keys() >= _ENVELOPE):
        yield "the records are change envelopes: add `transform: {unwrap: debezium}` to this spec and run infer-schema"
        yield "with it, for the columns of the rows in them; without it, deleted rows may have no key"
    elif inner is not None:
        yield "the records contain their schema: set value.converter.schemas.enable=false of the converter"


def given_by_sql(
    landing: Landing | None, columns: Sequence[InferredColumn]
) -> tuple[Sequence[InferredColumn], Sequence[str]] | None:
    """Return the columns that a landing's SQL makes of these, and why it does not make others; ``None`` without SQL for
    its one table.
    """
    if landing is None or landing.routing is not None or landing.transform_of(landing.table) is None:
        return None
    record = [c.to_dict() for c in columns if c.type is not None]
    if not record:
        return (), ()
    # Rules are for the current columns of the spec.
    requested = landing.changed(
        transform={"record_schema": record}, timestamps={}, format={"encodings": {}}, evolve="none"
    )
    try:
        found = inferred_from_sql(Schema(), given_columns(requested, landing.table, Schema()), widen=False)
    except TableError as e:
        return (), (str(e),)
    given = [
        InferredColumn(name=f.name, type=plain(f.field_type).replace("optional ", ""), required=False)
        for f in found.columns.fields
    ]
    return given, [str(one) for one in found.left_out]


_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false")


def csv_as_json(taken: Sample, options: FormatOptions) -> list[tuple[str, bytes | None]]:
    """Return each CSV row as a JSON object, with the position of its record; tombstones unchanged."""
    texts = Schema(*(NestedField(n, name, StringType()) for n, name in enumerate(options.csv["columns"], 1)))
    decoder = decoder_for(texts, FormatOptions(format="csv", csv=options.csv))
    values = [(location, value) for location, value in taken if value is not None]
    decoded = decoder.decode([value for _, value in values])
    positions = range(decoded.table.num_rows) if decoded.records is None else decoded.records
    rows = zip(positions, decoded.table.to_pylist(), strict=True)
    tombstones: list[tuple[str, bytes | None]] = [(location, None) for location, value in taken if value is None]
    return [*tombstones, *((values[i][0], f"{{{', '.join(map(_field, row.items()))}}}".encode()) for i, row in rows)]


def raw_columns(taken: Sample) -> list[InferredColumn]:
    """Return the column that takes all of these values; empty without values."""
    values = [value for _, value in taken if value is not None]
    if not values:
        return []
    text = not bad_texts(values)
    note = "value: all sampled values are UTF-8; binary also takes others" if text else "value: some are not UTF-8"
    return [InferredColumn(name="value", type="string" if text else "binary", required=True, notes=(note,))]


def _field(item: tuple[str, str | None]) -> str:
    name, text = item
    return f"{json.dumps(name)}: {text if text is not None and _PLAIN.fullmatch(text) else json.dumps(text)}"


_PLAIN_TEXT = re.compile(r"(?!(?:true|false|null|yes|no|on|off|y|n)$)[a-z][a-z0-9_.-]*", re.IGNORECASE)
"""A text that YAML reads as it is."""


def comment(text: str) -> str:
    return f"# {json.dumps(text, ensure_ascii=False)[1:-1]}".replace('\\"', '"')


def scalar(text: str) -> str:
    """Return a text of YAML, in quotes if it needs them."""
    return text if _PLAIN_TEXT.fullmatch(text) else json.dumps(text)


def flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value) if isinstance(value, str) else json.dumps(value)
