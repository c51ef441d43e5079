# SPDX-License-Identifier: Apache-2.0
"""Columns that are filled from a record's key or header instead of its value.

Contract: :func:`parts_of` returns one :class:`RecordPart` for the key and one for each header that the landing names. A
part is decoded like a value with only the part's columns. ``raw`` takes bytes unchanged, ``string`` reads a text as the
column's type, ``json`` reads one JSON value into one column; a key may also be a record of a format of
:data:`~airflow_provider_lakecommit.core.formats.FORMATS`, whose fields fill several columns. A missing key or header,
or one without a value, is null.

Failure story: an unreadable key or header rejects its record, as ``wrong_key`` or ``wrong_header``; with ``invalid:
ignore`` its columns are null, and it is counted among the ignored fields. A null in a required column rejects the
record in both cases.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import (
    Decoded,
    Decoder,
    JsonDecoder,
    RawDecoder,
    Refusal,
    Reject,
    SchemaSource,
    TextDecoder,
    decoder_for,
    with_positions,
)
from airflow_provider_lakecommit.landing import columns_of_key

Headers = Sequence[tuple[str, bytes | None]]
_ONE: Mapping[str, Callable[[Schema, FormatOptions], Decoder]] = {"raw": RawDecoder, "string": TextDecoder}
"""Formats that fill one column with one part."""


class _JsonValue:
    """A decoder of JSON values of any kind, each for one column."""

    def __init__(self, schema: Schema, options: FormatOptions) -> None:
        self._records = JsonDecoder(schema, options)
        (field,) = schema.fields
        self._before = b"{" + json.dumps(field.name).encode() + b":"

    @property
    def schema(self) -> pa.Schema:
        return self._records.schema

    def decode(self, values: Sequence[bytes]) -> Decoded:
        bad = {i: why for i, value in enumerate(values) if (why := _no_json(value)) is not None}
        positions = [i for i in range(len(values)) if i not in bad]
        decoded = self._records.decode([self._before + values[i] + b"}" for i in positions])
        return with_positions(decoded, positions, [Reject.of(i, why) for i, why in bad.items()]) if bad else decoded

    def close(self) -> None:
        self._records.close()


class RecordPart:
    """The key or one header, with the columns that it fills.

    :param fields: fields by their names in the part's decoder
    """

    def __init__(self, fields: Mapping[str, NestedField], decoder: Decoder, declared: Mapping[str, Any]) -> None:
        self._fields, self._decoder = fields, decoder
        self.header: str | None = declared.get("name")
        self._first = declared.get("repeated") == "first"
        self._ignored = declared.get("invalid") == "ignore"
        self._kind = "wrong_key" if self.header is None else "wrong_header"
        self._called = "key" if self.header is None else f"header {self.header}"

    def of(self, key: bytes | None, headers: Headers) -> bytes | None:
        """Return this part of a record. Of a repeated header, the last or the first one."""
        if self.header is None:
            return key
        found = (value for name, value in (headers if self._first else reversed(headers)) if name == self.header)
        return next(found, None)

    def filled(self, parts: Sequence[bytes | None]) -> tuple[dict[str, pa.Array], dict[int, Refusal], Counter[str]]:
        """Return the columns by name, one row per record, the refused records, and the counts of ignored fields."""
        positions = [i for i, part in enumerate(parts) if part is not None]
        decoded = self._decoder.decode([part for part in parts if part is not None])
        of_rows = range(len(positions)) if decoded.records is None else decoded.records
        rows = np.full(len(parts), -1, np.int64)
        # A key with several rows, as in CSV, is rejected.
        rows[[positions[i] for i in of_rows]] = np.arange(len(of_rows))
        take = pa.array(rows, mask=rows < 0)
        columns = {
            column.name: decoded.table.column(name).combine_chunks().take(take) for name, column in self._fields.items()
        }
        refused = {
            positions[r.index]: Refusal(self._kind, r.column, f"{self._called}: {r.reason}") for r in decoded.rejects
        }
        ignored = Counter[str]()
        if self._ignored:
            ignored[f"{self._called} (cannot be read)"] += len(refused)
            refused = {}
        ignored.update({f"{self._called}.{path}": n for path, n in decoded.ignored.items()})
        return columns, self._missing(columns) | refused, ignored

    def close(self) -> None:
        self._decoder.close()

    def _missing(self, columns: Mapping[str, pa.Array]) -> dict[int, Refusal]:
        """Return the records without a value for a required column; of several, for the first one."""
        found: dict[int, Refusal] = {}
        for column in self._fields.values():
            if column.required and (array := columns[column.name]).null_count:
                text = f"required column {column.name} is null: the record's {self._called} has no value for it"
                for i in pc.indices_nonzero(array.is_null()).to_pylist():
                    found.setdefault(i, Refusal("missing_required", column.name, text))
        return found


def parts_of(
    schema: Schema,
    options: FormatOptions,
    key: Mapping[str, Any],
    headers: Mapping[str, Any],
    registry: SchemaSource | None = None,
) -> list[RecordPart]:
    """Return the parts of records that the landing names, each with its columns.

    :param registry: for keys whose format has one
    :raises TableError: the table lacks a column, or it cannot hold the part's type
    """
    parts = [_part({name: name}, headers[name], options) for name in headers]
    found = []
    for columns, declared, own in [*([_of_key(key, options)] if key else []), *parts]:
        fields = {inside: _field(schema, name) for name, inside in columns.items()}
        found.append(RecordPart(fields, _decoder(fields, declared, own, registry), declared))
    return found


def filled_by_parts(key: Mapping[str, Any], headers: Mapping[str, Any]) -> Set[str]:
    """Return the columns of a table that are filled from keys and headers."""
    return {*columns_of_key(key), *headers}


def _of_key(key: Mapping[str, Any], options: FormatOptions) -> tuple[dict[str, str], dict[str, Any], FormatOptions]:
    columns = key.get("columns")
    if columns is None:
        return _part({key["column"]: key["column"]}, {k: v for k, v in key.items() if k != "name"}, options)
    names = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    return _part(names, key, options)


def _part(
    columns: Mapping[str, str], declared: Any, options: FormatOptions
) -> tuple[dict[str, str], dict[str, Any], FormatOptions]:
    stated = {"name": declared} if isinstance(declared, str) else dict(declared)
    schema = stated.get("schema", "")
    own = replace(
        options,
        format=stated.get("format", "string"),
        schema=schema if isinstance(schema, str) else json.dumps(schema),
        message=stated.get("message", ""),
        csv={},
        reader_schema="",
        timestamps=_renamed(options.timestamps, columns),
        encodings=_renamed(options.encodings, columns),
    )
    return dict(columns), stated, own


def _renamed(rules: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    by_top = {path: path.partition(".")[0] for path in rules}
    return {columns[top] + path[len(top) :]: rules[path] for path, top in by_top.items() if top in columns}


def _field(schema: Schema, name: str) -> NestedField:
    found = next((f for f in schema.fields if f.name == name), None)
    if found is None:
        raise TableError(
            "LC5031",
            f"the table has no column {name!r}, which `columns.key` or `columns.headers` fills: add it to the table, "
            "or to `create.schema` of a missing one",
        )
    return found


def _decoder(
    fields: Mapping[str, NestedField],
    declared: Mapping[str, Any],
    options: FormatOptions,
    registry: SchemaSource | None,
) -> Decoder:
    # Required columns are checked later: a missing part may be null here.
    schema = Schema(*(NestedField(f.field_id, name, f.field_type, required=False) for name, f in fields.items()))
    if options.format in _ONE:
        return _ONE[options.format](schema, options)
    if options.format == "json" and "columns" not in declared:
        return _JsonValue(schema, options)
    return decoder_for(schema, options, registry=registry)


def _no_json(value: bytes) -> Refusal | None:
    try:
        json.loads(value.decode())
    except (ValueError, RecursionError):
        return Refusal("not_json", None, "it is not one JSON value")
    return None
