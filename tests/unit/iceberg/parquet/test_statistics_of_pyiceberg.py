# SPDX-License-Identifier: Apache-2.0
"""Why the statistics are not pyiceberg's (ADR 0015). One that fails here is a reason to check that decision again."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
)

from airflow_provider_lakecommit.iceberg.parquet.statistics import Metrics, Tally


def statistics(schema: Schema, column: pa.Array) -> tuple[dict[str, Any], pq.FileMetaData]:
    """Ours of a file with a row group for each row, and its footer."""
    tally, file = Tally(Metrics(schema, {})), io.BytesIO()
    rows = pa.table([column], schema=schema_to_pyarrow(schema))
    with pq.ParquetWriter(file, rows.schema) as writer:
        for n in range(len(rows)):
            tally.add(rows.slice(n, 1))
            writer.write_table(rows.slice(n, 1))
    footer = pq.read_metadata(io.BytesIO(file.getvalue()))
    return tally.result(footer), footer


def of_pyiceberg(schema: Schema, footer: pq.FileMetaData) -> dict[str, Any]:
    plan, mapping = compute_statistics_plan(schema, {}), parquet_path_to_id_mapping(schema)
    return data_file_statistics_from_parquet_metadata(footer, plan, mapping).to_serialized_dict()


@pytest.mark.parametrize(
    ("kind", "column", "highest"),
    [
        (StringType(), pa.array(["m", "z" * 5000], pa.large_string()), "z" * 16),
        (TimestampNanoType(), pa.array([1_000_000_001, 1_000_000_999], pa.timestamp("ns")), 1_000_000_999),
    ],
    ids=["long value", "nanoseconds"],
)
def test_pyicebergs_bounds_hide_rows(kind: PrimitiveType, column: pa.Array, highest: Any) -> None:
    schema = Schema(NestedField(1, "x", kind, required=False))
    ours, footer = statistics(schema, column)
    assert from_bytes(kind, ours["upper_bounds"][1]) >= highest
    assert from_bytes(kind, of_pyiceberg(schema, footer)["upper_bounds"][1]) < highest


@pytest.mark.parametrize(
    ("kind", "column", "error"),
    [
        (TimestampType(), pa.array([253_402_300_800_000_000], pa.timestamp("us")), OverflowError),
        (StringType(), pa.array(["\ud7ff" * 40], pa.large_string()), UnicodeEncodeError),
    ],
    ids=["year 10000", "surrogate"],
)
def test_pyiceberg_has_no_statistics(kind: PrimitiveType, column: pa.Array, error: type[Exception]) -> None:
    schema = Schema(NestedField(1, "x", kind, required=False))
    ours, footer = statistics(schema, column)
    assert set(ours["upper_bounds"]) == {1}
    with pytest.raises(error):
        of_pyiceberg(schema, footer)


def test_pyiceberg_counts_no_nan_and_bounds_no_column_of_a_struct() -> None:
    inner = StructType(
        NestedField(2, "a", LongType(), required=False), NestedField(3, "b", DoubleType(), required=False)
    )
    schema = Schema(NestedField(1, "s", inner, required=False))
    column = pa.array([{"a": 1, "b": float("nan")}], schema_to_pyarrow(schema).field("s").type)
    ours, footer = statistics(schema, column)
    theirs = of_pyiceberg(schema, footer)
    assert (ours["nan_value_counts"], theirs["nan_value_counts"]) == ({3: 1}, {})
    assert (set(ours["lower_bounds"]), set(theirs["lower_bounds"])) == ({2}, set())
