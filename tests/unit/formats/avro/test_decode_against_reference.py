# SPDX-License-Identifier: Apache-2.0
"""Generated schemas, values and corruption: rows equal to an expectation in plain Python, and to what
`fastavro` reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.avro import items
from airflow_provider_lakecommit.formats.avro.decode_avro import AvroDecoder
from airflow_provider_lakecommit.formats.avro.infer import avro_columns
from airflow_provider_lakecommit.formats.avro.writer import writer_type
from airflow_provider_lakecommit.formats.infer_values import schema_of
from tests.support.avro_shapes import encoded, expected, read_by_reference, schemas, values_of, word
from tests.support.effort import examples


def table_of(schema: Any) -> Schema:
    found = schema_of(avro_columns(writer_type(json.dumps(schema))))
    assert found is not None
    return found


def decoder_of(schema: Any) -> AvroDecoder:
    return AvroDecoder(table_of(schema), FormatOptions(format="avro", schema=json.dumps(schema)))


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table, nanoseconds as numbers, NaN as a word."""
    numbers = pa.Table.from_arrays([_numbered(_combined(c)) for c in table.columns], names=table.column_names)
    return [comparable(row) for row in numbers.to_pylist()]


def _combined(column: pa.ChunkedArray) -> pa.Array:
    # Not combine_chunks: of no chunks, that knows no uuids.
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _numbered(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return array.cast(pa.int64())
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        parts = [_numbered(array.field(n)) for n in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[f.name for f in kind], mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, _numbered(array.items), mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _numbered(array.values), mask=mask)
    return array


def comparable(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, Mapping):
        return {key: comparable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return value


@st.composite
def written(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    schema = draw(schemas())
    return schema, draw(st.lists(values_of(schema), min_size=1, max_size=6))


STEP = st.sampled_from([0, items.STEP, 10**6])
"""Items that are walked over in the time of a step."""


@given(written(), STEP)
@settings(max_examples=examples(300))
def test_every_value_is_exactly_its_row(given_: tuple[Any, list[Any]], step: int) -> None:
    schema, values = given_
    with patch.object(items, "STEP", step):
        decoded = decoder_of(schema).decode([encoded(schema, value) for value in values])
    assert decoded.rejects == ()
    assert decoded.records is None
    decoded.table.validate(full=True)
    assert rows_of(decoded.table) == [comparable(expected(schema, value)) for value in values]


@st.composite
def corrupted(draw: st.DrawFn) -> tuple[Any, list[Any], list[bytes]]:
    """Good values, and values of which something was cut off, added or exchanged."""
    schema, values = draw(written())
    octets = [encoded(schema, value) for value in values]
    spoilt = []
    for each in octets:
        place = draw(st.integers(0, max(len(each) - 1, 0)))
        match draw(st.sampled_from(["cut", "more", "bit", "byte", "noise"])):
            case "cut":
                spoilt.append(each[:place])
            case "more":
                spoilt.append(each + draw(st.binary(min_size=1, max_size=3)))
            case "bit" if each:
                changed = each[place] ^ (1 << draw(st.integers(0, 7)))
                spoilt.append(each[:place] + bytes([changed]) + each[place + 1 :])
            case "byte" if each:
                spoilt.append(each[:place] + draw(st.binary(max_size=2)) + each[place + 1 :])
            case _:
                spoilt.append(draw(st.binary(max_size=40)))
    return schema, values, spoilt


@given(corrupted(), STEP)
@settings(max_examples=examples(600))
def test_corruption_costs_its_own_record_and_is_never_another_row(
    given_: tuple[Any, list[Any], list[bytes]], step: int
) -> None:
    with patch.object(items, "STEP", step):
        _try_corruption(*given_)


def _try_corruption(schema: Any, values: list[Any], spoilt: list[bytes]) -> None:
    good = [encoded(schema, value) for value in values]
    mixed = [each for pair in zip(good, spoilt, strict=True) for each in pair]
    decoder = decoder_of(schema)
    decoded = decoder.decode(mixed)
    decoded.table.validate(full=True)
    places = list(range(len(mixed))) if decoded.records is None else list(decoded.records)
    assert sorted([*places, *(r.index for r in decoded.rejects)]) == list(range(len(mixed)))
    rows = dict(zip(places, rows_of(decoded.table), strict=True))
    assert [rows[2 * n] for n in range(len(good))] == [comparable(expected(schema, value)) for value in values]
    for n, octets in enumerate(spoilt):
        alone = decoder.decode([octets])
        assert [r.reason for r in alone.rejects] == [r.reason for r in decoded.rejects if r.index == 2 * n + 1]
        assert rows_of(alone.table) == ([rows[2 * n + 1]] if 2 * n + 1 in rows else [])
        if 2 * n + 1 in rows:
            value, length = read_by_reference(schema, octets)
            assert length == len(octets)
            assert same(schema, value, rows[2 * n + 1])
        else:
            _is_rightly_refused(schema, octets)


def same(kind: Any, value: Any, row: Any) -> bool:
    """Is what `fastavro` has read, without logical types and words of unions, what the row has?"""
    if isinstance(kind, list):
        return _same_union(kind, value, row)
    stated = kind if isinstance(kind, Mapping) else {"type": kind}
    if stated.get("logicalType") == "decimal":
        value = int.from_bytes(value, signed=True)
    match stated["type"]:
        case "record":
            return all(same(f["type"], value[f["name"]], row[f["name"]]) for f in stated["fields"])
        case "array":
            return len(value) == len(row) and all(map(partial(same, stated["items"]), value, row))
        case "map":
            pairs = dict(row)
            return pairs.keys() == value.keys() and all(same(stated["values"], v, pairs[k]) for k, v in value.items())
        case "enum":
            return bool(value == row)
    return bool(comparable(expected(stated, value)) == row)


def _same_union(kind: list[Any], value: Any, row: Any) -> bool:
    several = [part for part in kind if part != "null"]
    if value is None or row is None:
        return value is row
    if len(several) == 1:
        return same(several[0], value, row)
    chosen = next(part for part in several if row[word(part)] is not None)
    return same(chosen, value, row[word(chosen)]) and sum(each is not None for each in row.values()) == 1


def _is_rightly_refused(schema: Any, octets: bytes) -> None:
    """`fastavro` refuses it too, or leaves bytes over; or there is a reason that it does not check."""
    with suppress(Exception):
        _, length = read_by_reference(schema, octets)
        if length == len(octets):
            assert any(r.kind in ("wrong_value", "not_avro") for r in decoder_of(schema).decode([octets]).rejects)
