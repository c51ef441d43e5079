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

from airflow_provider_lakecommit.core.destinations import Role
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.provenance import Provenance, Share
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA, mark_columns
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from airflow_provider_lakecommit.operations.backfill.ranges import FileShare, RowRanges
from tests.fakes.lake import data_file
from tests.support.effort import examples

COLUMNS = (1, 2, 4, 3)
READING = 7
"""The generation of the reading whose ranges are wanted."""
LONG = "a-topic-of-a-long-name"


def ranges_of(*ranges: tuple[str, int, int, int]) -> RowRanges:
    coverage = Coverage.of((SourcePartition(t, p, "id"), OffsetRange(a, b)) for t, p, a, b in ranges)
    return RowRanges(COLUMNS, [(READING, coverage)])


def stats(
    topic: tuple[str, str] | None,
    partition: tuple[int, int],
    offset: tuple[int, int],
    nulls: int = 0,
    reading: tuple[int, int] = (READING, READING),
) -> Any:
    lower, upper = (
        {2: struct.pack("<i", partition[n]), 3: struct.pack("<q", offset[n]), 4: struct.pack("<q", reading[n])}
        for n in range(2)
    )
    if topic:
        lower[1], upper[1] = topic[0].encode(), topic[1].encode()
    return data_file("f", 10, lower_bounds=lower, upper_bounds=upper, null_value_counts=dict.fromkeys(COLUMNS, nulls))


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
        (stats(ORDERS, (0, 0), (5, 9), reading=(8, 9)), FileShare.NONE),
        (stats(ORDERS, (0, 0), (5, 9), reading=(6, 7)), FileShare.UNKNOWN),
        (data_file("f", 10), FileShare.UNKNOWN),
        (data_file("f", 10, lower_bounds=None, upper_bounds=None, null_value_counts=None), FileShare.UNKNOWN),
    ],
)
def test_what_statistics_report(file: Any, share: FileShare) -> None:
    assert ranges_of(("orders", 0, 5, 10), ("orders", 0, 20, 22)).of_file(file) is share


def test_a_name_that_was_cut_has_to_be_read() -> None:
    file = stats((LONG[:16], LONG[:15] + chr(ord(LONG[15]) + 1)), (0, 0), (5, 9))
    assert ranges_of((LONG, 0, 5, 10)).of_file(file) is FileShare.UNKNOWN


ROW = st.tuples(
    st.sampled_from(["orders", "returns", None]),
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.integers(0, 12)),
    st.sampled_from([READING, 8, None]),
)
RANGE = st.tuples(st.sampled_from(["orders", "returns"]), st.integers(0, 2), st.integers(0, 12), st.integers(0, 12))


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(ROW, max_size=30), st.lists(RANGE, max_size=5))
def test_rows_are_distinguished_as_one_by_one(rows: list[Any], ranges: list[Any]) -> None:
    named = [(t, p, min(a, b), max(a, b)) for t, p, a, b in ranges]
    found = ranges_of(*named).of_rows(
        pa.array([t for t, _, _, _ in rows], pa.string()),
        pa.array([p for _, p, _, _ in rows], pa.int32()),
        pa.array([g for _, _, _, g in rows], pa.int64()),
        pa.array([o for _, _, o, _ in rows], pa.int64()),
    )
    due = [
        g == READING and any(t == r[0] and p == r[1] and o is not None and r[2] <= o < r[3] for r in named)
        for t, p, o, g in rows
    ]
    assert found.tolist() == due


def test_a_column_of_a_dictionary_is_read() -> None:
    topic = pa.array(["orders", None, "orders"]).dictionary_encode()
    found = ranges_of(("orders", 0, 0, 5)).of_rows(
        topic, pa.array([0, 0, 1], pa.int32()), pa.array([READING] * 3, pa.int64()), pa.array([1, 1, 1], pa.int64())
    )
    assert found.tolist() == [True, False, False]


def marked(names: tuple[str, ...]) -> list[NestedField]:
    kinds = (StringType(), IntegerType(), LongType(), LongType())
    return [NestedField(n, name, kind) for n, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)]


def test_dead_letters_report_it_in_columns_of_their_own() -> None:
    assert mark_columns(DEAD_LETTER_SCHEMA, Role.DEAD_LETTERS) == (1, 2, 12, 3)
    assert mark_columns(Schema(*marked(MARK_COLUMNS)), Role.ROWS) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    "fields", [[], marked(MARK_COLUMNS)[1:], [NestedField(1, "kafka_topic", LongType()), *marked(MARK_COLUMNS)[1:]]]
)
def test_a_table_without_one_of_the_columns_has_no_marks(fields: list[NestedField]) -> None:
    assert mark_columns(Schema(*fields), Role.ROWS) == ()


def test_parts_that_report_it_in_different_columns_are_refused() -> None:
    def share(columns: tuple[int, ...]) -> Share:
        part = Coverage.of([(SourcePartition("orders", 0, "id"), OffsetRange(0, 5))])
        return Share(entry=Provenance.counted(READING, part, 5, columns), part=part)

    with pytest.raises(TableError):
        RowRanges.of_shares("t", [share((1, 2, 3, 4)), share((1, 2, 3, 9))])
