# SPDX-License-Identifier: Apache-2.0
"""Rows of a file in the current columns of its table: nulls of every level stay nulls."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_field
from airflow_provider_lakecommit.iceberg.parquet.rewrite import _projected


def items(*more: NestedField, number: IcebergType | None = None) -> StructType:
    return StructType(NestedField(3, "n", number or IntegerType()), *more)


OLD, NEW = items(), items(NestedField(9, "more", StringType()), number=LongType())
SOME: list[Any] = [{"n": 1}, None, {"n": None}]
THEN: list[Any] = [{"n": 1, "more": None}, None, {"n": None, "more": None}]


@pytest.mark.parametrize(
    ("have", "want", "values", "expected"),
    [
        (OLD, NEW, SOME, THEN),
        (ListType(4, OLD), ListType(4, NEW), [SOME, None, [], [None]], [THEN, None, [], [None]]),
        (
            MapType(5, StringType(), 6, OLD),
            MapType(5, StringType(), 6, NEW),
            [[("a", SOME[0]), ("b", None)], None, []],
            [[("a", THEN[0]), ("b", None)], None, []],
        ),
        (
            ListType(4, ListType(7, OLD)),
            ListType(4, ListType(7, NEW)),
            [[SOME, None, []], None],
            [[THEN, None, []], None],
        ),
        (DecimalType(9, 2), DecimalType(12, 2), [None], [None]),
    ],
)
def test_nulls_stay_nulls(have: IcebergType, want: IcebergType, values: list[Any], expected: list[Any]) -> None:
    kind = arrow_field(NestedField(1, "c", have)).type
    found = _projected(pa.array(values, kind), have, want)
    assert found.to_pylist() == expected
    assert found.cast(arrow_field(NestedField(1, "c", want)).type).to_pylist() == expected
    sliced = _projected(pa.array([None, *values], kind).slice(1), have, want)
    assert sliced.to_pylist() == expected


def test_a_type_that_was_narrowed_is_refused() -> None:
    with pytest.raises(ResolveError):
        _projected(pa.array(["1"]), StringType(), LongType())
