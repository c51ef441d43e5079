# SPDX-License-Identifier: Apache-2.0
"""Rows of two sides, compared: every kind of difference, in every kind of value."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecommit.operations.proof.compare import MOST_EXAMPLES, Example, compare, same

MARKS = ("topic", "partition", "offset")
NAN, OTHER_NAN = float("nan"), -float("nan")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("n", pa.int32()), ("t", pa.string())]
)


def rows(*some: tuple[int, int, Any], topic: str = "t", partition: int = 0) -> pa.Table:
    values = [dict(zip(SCHEMA.names, (topic, partition, *row), strict=True)) for row in some]
    return pa.Table.from_pylist(values, SCHEMA)


@pytest.mark.parametrize(
    ("kind", "one", "other", "equal"),
    [
        (pa.int64(), 1, 1, True),
        (pa.int64(), 1, 2, False),
        (pa.int64(), None, None, True),
        (pa.int64(), 0, None, False),
        (pa.string(), "", None, False),
        (pa.string(), "a", "a ", False),
        (pa.binary(), b"\x00", b"", False),
        (pa.bool_(), False, None, False),
        (pa.float64(), NAN, OTHER_NAN, True),
        (pa.float64(), 0.0, -0.0, False),
        (pa.float32(), 1.5, 1.5, True),
        (pa.float64(), NAN, None, False),
        (pa.float64(), None, None, True),
        (pa.decimal128(9, 2), Decimal("1.10"), Decimal("1.11"), False),
        (pa.decimal128(9, 2), Decimal("1.10"), Decimal("1.10"), True),
        (pa.timestamp("us", "UTC"), NOON, NOON.replace(microsecond=1), False),
        (pa.list_(pa.int32()), [1, 2], [2, 1], False),
        (pa.list_(pa.int32()), [], None, False),
        (pa.list_(pa.float64()), [NAN], [NAN], True),
        (pa.list_(pa.float64()), [0.0], [-0.0], False),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", None)], False),
        (pa.struct([("a", pa.int32())]), {"a": None}, None, False),
        (pa.struct([("a", pa.float64())]), {"a": NAN}, {"a": NAN}, True),
        (pa.struct([("a", pa.struct([("b", pa.int32())]))]), {"a": {"b": 1}}, {"a": {"b": 2}}, False),
        (pa.struct([("a", pa.struct([("b", pa.int32())]))]), {"a": None}, {"a": {"b": None}}, False),
        (pa.null(), None, None, True),
    ],
)
def test_a_value_is_the_same_or_not(kind: pa.DataType, one: Any, other: Any, equal: bool) -> None:
    a, b = (pa.array([value, None], kind) for value in (one, other))
    assert same(a, b).tolist() == [equal, True]
    assert same(b, a).tolist() == [equal, True]


@pytest.mark.parametrize(
    ("kind", "far", "value"),
    [
        (pa.timestamp("us"), 2**60, lambda n: n),
        (pa.date32(), 2**31 - 1, lambda n: n),
        (pa.list_(pa.timestamp("us", "UTC")), 2**60, lambda n: [n]),
        (pa.struct([("a", pa.list_(pa.date32()))]), 2**31 - 1, lambda n: {"a": [n]}),
        (pa.map_(pa.string(), pa.struct([("t", pa.timestamp("us"))])), 2**60, lambda n: [("k", {"t": n})]),
    ],
)
def test_a_time_that_python_does_not_have_is_shown_as_its_number(
    kind: pa.DataType, far: int, value: Callable[[int], Any]
) -> None:
    ours, theirs = (rows((1, 5, "a")).append_column("at", pa.array([value(n)], kind)) for n in (far, 1))
    assert not compare(ours, ours, MARKS).counts
    (example,) = compare(ours, theirs, MARKS).examples
    assert (example.kind, example.column) == ("altered", "at")
    assert [re.sub(r"\D", "", text) for text in (example.source, example.table)] == [str(far), "1"]


def test_a_uuid_within_a_struct_is_compared() -> None:
    kind = pa.uuid()

    def of(octet: bytes) -> pa.Array:
        part = kind.wrap_array(pa.array([octet * 16, None], kind.storage_type))
        return pa.StructArray.from_arrays([part], fields=[pa.field("id", kind)])

    assert same(of(b"a"), of(b"a")).tolist() == [True, True]
    assert same(of(b"a"), of(b"b")).tolist() == [False, True]


def test_equal_tables_in_any_order() -> None:
    ours = rows((1, 5, "a"), (2, 5, None), (2, 6, "c"))
    assert not compare(ours, ours.take([2, 0, 1]), MARKS).counts
    assert not compare(SCHEMA.empty_table(), SCHEMA.empty_table(), MARKS).counts


@pytest.mark.parametrize(
    ("theirs", "expected"),
    [
        (rows((2, 5, "b")), {"lost": 1}),
        (rows((1, 5, "a"), (2, 5, "b"), (2, 5, "b"), (2, 5, "b")), {"doubled": 2}),
        (rows((1, 5, "a"), (2, 5, "B")), {"altered": 1}),
        (rows((1, 5, "a"), (2, 5, "b"), (3, 5, "c")), {"foreign": 1}),
        (rows((1, 5, "a"), (2, 6, "B"), (2, 5, "b")), {"doubled": 1}),
        (rows((1, 6, "a"), (3, 5, "b")), {"altered": 1, "lost": 1, "foreign": 1}),
        (rows(), {"lost": 2}),
    ],
)
def test_each_kind_is_counted(theirs: pa.Table, expected: dict[str, int]) -> None:
    assert dict(compare(rows((1, 5, "a"), (2, 5, "b")), theirs, MARKS).counts) == expected


def test_several_rows_of_a_record_are_compared_in_any_order() -> None:
    ours = rows((1, 1, "a"), (1, 2, "b"), (1, 2, "b"), (2, 9, "z"))
    assert not compare(ours, ours.take([3, 2, 1, 0]), MARKS).counts
    found = compare(ours, rows((1, 2, "b"), (1, 1, "x"), (1, 2, "b"), (2, 9, "z")), MARKS)
    assert found.examples == [Example("altered", "t", 0, 1, "t", "'a'", "'x'")]
    assert dict(compare(ours, rows((1, 2, "b"), (1, 1, "a"), (2, 9, "z")), MARKS).counts) == {"lost": 1}


def test_an_example_names_position_column_and_values() -> None:
    found = compare(rows((7, 1, "a" * 500)), rows((7, 1, None)), MARKS)
    (example,) = found.examples
    assert str(example).startswith("altered: t[0] offset 7, column t: the source has 'aaa")
    assert str(example).endswith("…, the table None")
    assert len(str(example)) < 300


def test_partitions_and_topics_of_one_offset_are_different_records() -> None:
    ours = pa.concat_tables([rows((1, 1, "a")), rows((1, 1, "a"), partition=1), rows((1, 1, "a"), topic="u")])
    assert not compare(ours, ours, MARKS).counts
    assert dict(compare(ours, ours.slice(1), MARKS).counts) == {"lost": 1}


def test_a_column_that_the_table_lacks_has_nulls() -> None:
    theirs = rows((1, 1, "a")).drop_columns(["t"])
    assert not compare(rows((1, 1, None)), theirs, MARKS).counts
    assert dict(compare(rows((1, 1, "a")), theirs, MARKS).counts) == {"altered": 1}
    assert not compare(rows((1, 1, "a")), theirs, MARKS, ignored=["t"]).counts


def test_only_common_records() -> None:
    ours, theirs = rows((1, 1, "a"), (2, 2, "b")), rows((2, 2, "x"), (3, 3, "c"))
    assert dict(compare(ours, theirs, MARKS, only_common=True).counts) == {"altered": 1}


def test_there_are_only_so_many_examples() -> None:
    found = compare(rows(*((n, n, "a") for n in range(50))), rows(), MARKS)
    found.add(found)
    assert (found.counts["lost"], len(found.examples)) == (100, MOST_EXAMPLES)
