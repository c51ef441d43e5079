# SPDX-License-Identifier: Apache-2.0
"""Which rows are of the ranges: by the rows themselves, and by what statistics say of a whole file."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.routing import Role
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.replace.ranges import FileShare, RecordColumns, RowRanges
from tests.fakes.lake import data_file
from tests.support.effort import examples

COLUMNS = RecordColumns(topic=1, partition=2, offset=3)
LONG = "a-topic-of-a-long-name"


def wanted(*ranges: tuple[str, int, int, int]) -> RowRanges:
    return RowRanges(COLUMNS, Coverage.of((SourcePartition(t, p, "id"), OffsetRange(a, b)) for t, p, a, b in ranges))


def stats(topic: tuple[str, str] | None, partition: tuple[int, int], offset: tuple[int, int], nulls: int = 0) -> Any:
    lower = {2: struct.pack("<i", partition[0]), 3: struct.pack("<q", offset[0])}
    upper = {2: struct.pack("<i", partition[1]), 3: struct.pack("<q", offset[1])}
    if topic:
        lower[1], upper[1] = topic[0].encode(), topic[1].encode()
    return data_file("f", 10, lower_bounds=lower, upper_bounds=upper, null_value_counts=dict.fromkeys((1, 2, 3), nulls))


ORDERS = ("orders", "orders")


@pytest.mark.parametrize(
    ("file", "share"),
    [
        (stats(ORDERS, (0, 0), (5, 9)), FileShare.ALL),
        (stats(ORDERS, (0, 0), (5, 10)), FileShare.UNKNOWN),
        (stats(ORDERS, (0, 0), (10, 19)), FileShare.NONE),
        (stats(ORDERS, (0, 0), (4, 22)), FileShare.UNKNOWN),
        (stats(ORDERS, (0, 1), (5, 9)), FileShare.UNKNOWN),
        (stats(ORDERS, (1, 1), (5, 9)), FileShare.NONE),
        (stats(("billing", "billing"), (0, 0), (5, 9)), FileShare.NONE),
        (stats(("billing", "payments"), (0, 0), (5, 9)), FileShare.UNKNOWN),
        (stats(None, (0, 0), (5, 9)), FileShare.UNKNOWN),
        (stats(ORDERS, (0, 0), (5, 9), nulls=1), FileShare.UNKNOWN),
        (stats(ORDERS, (0, 0), (5, 9), nulls=10), FileShare.NONE),
        (data_file("f", 10), FileShare.UNKNOWN),
        (data_file("f", 10, lower_bounds=None, upper_bounds=None, null_value_counts=None), FileShare.UNKNOWN),
    ],
)
def test_what_statistics_say(file: Any, share: FileShare) -> None:
    assert wanted(("orders", 0, 5, 10), ("orders", 0, 20, 22)).of_file(file) is share


def test_a_name_that_was_cut_has_to_be_read() -> None:
    file = stats((LONG[:16], LONG[:15] + chr(ord(LONG[15]) + 1)), (0, 0), (5, 9))
    assert wanted((LONG, 0, 5, 10)).of_file(file) is FileShare.UNKNOWN


ROW = st.tuples(
    st.sampled_from(["orders", "returns", None]),
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(0, 12)),
)
RANGE = st.tuples(st.sampled_from(["orders", "returns"]), st.integers(0, 2), st.integers(0, 12), st.integers(0, 12))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(ROW, max_size=30), st.lists(RANGE, max_size=5))
def test_rows_are_told_apart_as_one_by_one(rows: list[Any], ranges: list[Any]) -> None:
    named = [(t, p, min(a, b), max(a, b)) for t, p, a, b in ranges]
    found = wanted(*named).of_rows(
        pa.array([t for t, _, _ in rows], pa.string()),
        pa.array([p for _, p, _ in rows], pa.int32()),
        pa.array([o for _, _, o in rows], pa.int64()),
    )
    due = [any(t == r[0] and p == r[1] and o is not None and r[2] <= o < r[3] for r in named) for t, p, o in rows]
    assert found.tolist() == due


def test_a_column_of_a_dictionary_is_read() -> None:
    topic = pa.array(["orders", None, "orders"]).dictionary_encode()
    found = wanted(("orders", 0, 0, 5)).of_rows(topic, pa.array([0, 0, 1], pa.int32()), pa.array([1, 1, 1], pa.int64()))
    assert found.tolist() == [True, False, False]


def test_dead_letters_say_it_in_columns_of_their_own() -> None:
    assert RecordColumns.of("t", DEAD_LETTER_SCHEMA, Role.DEAD_LETTERS).ids == (1, 2, 3)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([], "kafka_topic must be string: it has none"),
        ([NestedField(1, "kafka_topic", LongType())], "its own is long"),
        (
            [NestedField(1, "kafka_topic", StringType()), NestedField(2, "kafka_partition", IntegerType())],
            "kafka_offset must be long",
        ),
    ],
)
def test_a_table_without_the_columns_is_refused_with_the_remedy(fields: list[NestedField], said: str) -> None:
    with pytest.raises(TableError, match=rf"{said}.*metadata_columns: true"):
        RecordColumns.of("shop.orders", Schema(*fields), Role.ROWS)
