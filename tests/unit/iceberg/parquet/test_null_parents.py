# SPDX-License-Identifier: Apache-2.0
"""Rows with required fields within structs that are null are written, and read back as they were."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_lakecommit.iceberg.parquet.null_parents import with_whole_fields

SCALARS: list[tuple[pa.DataType, Any]] = [
    (pa.int32(), 7),
    (pa.string(), "seven"),
    (pa.bool_(), True),
    (pa.decimal128(9, 2), Decimal("7.00")),
    (pa.binary(4), b"sevn"),
    (pa.float64(), 0.7),
    (pa.uuid(), UUID(int=7).bytes),
]
Value = Callable[[], Any]


def any_type(draw: random.Random, depth: int) -> tuple[pa.DataType, Value]:
    """A type, and what makes values of it."""
    if depth == 0 or draw.random() < 0.25:
        scalar, value = draw.choice(SCALARS)
        return scalar, lambda: value
    if draw.random() < 0.6:
        fields = [(f"f{n}", *any_type(draw, depth - 1), draw.random() < 0.5) for n in range(draw.randint(1, 3))]
        kind = pa.struct([pa.field(name, inner, optional) for name, inner, _, optional in fields])
        return kind, lambda: {name: maybe(draw, make, optional) for name, _, make, optional in fields}
    inner, make = any_type(draw, depth - 1)
    optional = draw.random() < 0.5
    if draw.random() < 0.6:
        kind = pa.list_(pa.field("element", inner, optional))
        return kind, lambda: [maybe(draw, make, optional) for _ in range(draw.randint(0, 3))]
    kind = pa.map_(pa.string(), pa.field("value", inner, optional))
    return kind, lambda: [(str(n), maybe(draw, make, optional)) for n in range(draw.randint(0, 3))]


def maybe(draw: random.Random, make: Value, optional: bool) -> Any:
    return None if optional and draw.random() < 0.4 else make()


def built(values: list[Any], kind: pa.DataType) -> pa.Array:
    """As decoders do, which put nulls below a null; Arrow's own way from Python puts zeros there."""
    mask = pa.array([value is None for value in values], pa.bool_())
    if pa.types.is_struct(kind):
        fields = [kind.field(n) for n in range(kind.num_fields)]
        parts = [built([None if v is None else v[f.name] for v in values], f.type) for f in fields]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if not pa.types.is_nested(kind):
        return pa.array(values, kind)
    ends = [0]
    for value in values:
        ends.append(ends[-1] + len(value or ()))
    inner, offsets = [each for value in values for each in value or ()], pa.array(ends, pa.int32())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(offsets, built(inner, kind.value_type), type=kind, mask=mask)
    keys, items = pa.array([key for key, _ in inner], pa.string()), built([item for _, item in inner], kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)


def written(table: pa.Table) -> list[dict[str, Any]]:
    file = io.BytesIO()
    pq.write_table(table, file)
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


@pytest.mark.heavy(but=("0", "6"))
@pytest.mark.parametrize("seed", range(8))
def test_rows_are_written_as_they_are(seed: int) -> None:
    draw = random.Random(seed)
    refused = 0
    for _ in range(60):
        kind, make = any_type(draw, 3)
        optional = draw.random() < 0.7
        values = [maybe(draw, make, optional) for _ in range(draw.randint(1, 10))]
        schema = pa.schema([pa.field("c", kind, optional)])
        whole = pa.Table.from_arrays([built(values, kind)], schema=schema)
        for table in (whole, whole.slice(len(values) // 2), pa.concat_tables([whole, whole.slice(1)])):
            made = with_whole_fields(table)
            made.validate(full=True)
            assert made.schema.equals(schema, check_metadata=True)
            assert written(made) == table.to_pylist()
            try:
                written(table)
            except pa.ArrowInvalid:
                refused += 1
    assert refused


def test_a_table_without_such_structs_is_the_same() -> None:
    table = pa.table({"a": [1, None], "b": [{"x": 1}, None], "c": [["a"], None]})
    assert with_whole_fields(table) is table
