# SPDX-License-Identifier: Apache-2.0
"""CSV: exactly one row of each value, or the rows that it holds, as Python's own reader reads them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decode_csv import CsvDecoder
from airflow_provider_lakecommit.formats.decoder import Decoded
from tests.support.effort import examples

TEXTS = Schema(*(NestedField(n, name, StringType()) for n, name in enumerate("abc", 1)))
ORDERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "amount", DecimalType(10, 2)),
    NestedField(4, "other", UUIDType()),
)


def decoder(schema: Schema, columns: Sequence[str], **options: Any) -> CsvDecoder:
    own = {key: options.pop(key) for key in ("delimiter", "quote", "null_text", "rows") if key in options}
    return CsvDecoder(schema, FormatOptions(format="csv", csv={"columns": [*columns], **own}, **options))


def orders(*values: bytes, **options: Any) -> Decoded:
    return decoder(ORDERS, ("id", "name", "amount"), **options).decode(values)


def by_python(value: str, delimiter: str, quote: str | None) -> list[list[str]] | None:
    """The rows that Python's reader finds; ``None`` for what is no CSV to it."""
    quoting: Any = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    reader = csv.reader(
        io.StringIO(value, newline=""), delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True
    )
    try:
        return list(reader)
    except csv.Error:
        return None


def well_formed(value: str, delimiter: str, quote: str | None) -> bool:
    """What Python's reader takes and RFC 4180 does not: a quote in a field without quotes, a carriage return alone."""
    state = "start"
    at = 0
    while at < len(value):
        c = value[at]
        if state == "quoted":
            if c == quote:
                state = "closed"
        elif state == "closed" and c == quote:
            state = "quoted"
        elif c == delimiter or c == "\n" or value[at : at + 2] == "\r\n":
            at += value[at : at + 2] == "\r\n"
            state = "start"
        elif state == "closed" or c == "\r" or (c == quote and state == "field"):
            return False
        else:
            state = "quoted" if c == quote else "field"
        at += 1
    return state != "quoted"


HOSTILE = st.text(alphabet='a,";\n\r\t1é \x00\ufeff', max_size=12)


@settings(max_examples=examples(900), deadline=None)
@given(
    values=st.lists(HOSTILE, max_size=12),
    many=st.booleans(),
    quote=st.sampled_from(['"', None]),
    by=st.sampled_from(",;\t"),
)
def test_rows_are_those_of_pythons_reader_whatever_the_values_are(
    values: list[str], many: bool, quote: str | None, by: str
) -> None:
    decoded = decoder(TEXTS, "abc", rows="many" if many else "one", quote=quote, delimiter=by).decode(
        [v.encode() for v in values]
    )
    expected: list[tuple[int, list[str]]] = []
    filtered, bad = [], []
    for i, value in enumerate(values):
        rows = by_python(value, by, quote) if well_formed(value, by, quote) else None
        if rows == [] and many:
            filtered.append(i)
        elif rows is None or any(len(r) != 3 for r in rows) or not (many or len(rows) == 1):
            bad.append(i)
        else:
            expected += [(i, row) for row in rows]
    records = range(len(values)) if decoded.records is None else decoded.records
    found = [[text or "" for text in row.values()] for row in decoded.table.to_pylist()]
    assert list(zip(records, found, strict=True)) == expected
    assert ([r.index for r in decoded.rejects], list(decoded.filtered)) == (bad, filtered)
    assert {r.kind for r in decoded.rejects} <= {"not_csv"}


def test_an_open_quote_never_takes_the_next_record() -> None:
    # Together these three have three rows of two fields: none of them is one of the values.
    schema = Schema(*TEXTS.fields[:2])
    decoded = decoder(schema, "ab").decode([b'x,"a', b'b"', b"p,q\nr,s", b"y,z"])
    assert [r.index for r in decoded.rejects] == [0, 1, 2]
    assert decoded.table.to_pylist() == [{"a": "y", "b": "z"}]


def test_the_null_text_is_null_without_quotes_and_text_within() -> None:
    plain = orders(b"1,,2.50", b'2,"",')
    assert [(r["name"], r["amount"]) for r in plain.table.to_pylist()] == [(None, Decimal("2.50")), ("", None)]
    named = orders(b"1,\\N,2.50", b'2,"\\N",\\N', b"3,,\\N", b"4,x,", null_text="\\N")
    assert [r["name"] for r in named.table.to_pylist()] == [None, "\\N", ""]
    assert [(r.index, r.column) for r in named.rejects] == [(3, "amount")]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (LongType(), "9223372036854775807", 2**63 - 1),
        (LongType(), "-007", -7),
        (IntegerType(), "-2147483648", -(2**31)),
        (
            DecimalType(38, 18),
            "12345678901234567890.123456789012345678",
            Decimal("12345678901234567890.123456789012345678"),
        ),
        (DecimalType(38, 38), "0." + "5" * 38, Decimal("0." + "5" * 38)),
        (DecimalType(10, 2), "1e2", Decimal("100.00")),
        (DoubleType(), "0.1", 0.1),
        (BooleanType(), "true", True),
        (DateType(), "2026-01-31", date(2026, 1, 31)),
        (TimestamptzType(), "2026-01-31T10:00:00.000001Z", datetime(2026, 1, 31, 10, 0, 0, 1, UTC)),
        (StringType(), "  x ", "  x "),
    ],
)
def test_a_text_becomes_exactly_the_value_that_it_writes(kind: IcebergType, text: str, value: Any) -> None:
    decoded = decoder(Schema(NestedField(1, "c", kind)), "c").decode([text.encode()])
    assert (decoded.table["c"].to_pylist(), decoded.rejects) == ([value], ())


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (LongType(), ["0x10", "9223372036854775808", " 5", "5.0", "+5", "1_0", "NaN", '""']),
        (IntegerType(), ["2147483648", "1e2"]),
        (DecimalType(10, 2), ["1.005", "123456789", "nan", "0x1", "1 5"]),
        (DoubleType(), ["nan", "inf", "1e999", "0x1p3", "."]),
        (BooleanType(), ["True", "1", "yes", "t"]),
        (DateType(), ["2026-02-30", "01.02.2026"]),
        (TimestamptzType(), ["2026-01-31T10:00:00"]),
        (UUIDType(), ["{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}"]),
    ],
)
def test_a_text_that_is_no_value_of_its_column_is_rejected_alone(kind: IcebergType, texts: list[str]) -> None:
    schema = Schema(NestedField(1, "c", kind), NestedField(2, "n", StringType()))
    values = [f"{text},x".encode() for text in texts] + [b",y"]
    decoded = decoder(schema, "cn").decode(values)
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [
        (i, "wrong_value", "c") for i in range(len(texts))
    ]
    assert decoded.table.to_pylist() == [{"c": None, "n": "y"}]


def test_bytes_and_times_are_read_by_their_rules() -> None:
    schema = Schema(NestedField(1, "b", BinaryType()), NestedField(2, "t", TimestamptzType()))
    decoded = decoder(schema, "bt", encodings={"b": "hex"}, timestamps={"t": "epoch_millis"}).decode(
        [b"00ff,1000", b"0,1"]
    )
    assert decoded.table.to_pylist() == [{"b": b"\x00\xff", "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]
    assert [r.column for r in decoded.rejects] == ["b"]


def test_what_is_wrong_is_reported() -> None:
    decoded = orders(b"x,a,1", b",a,1", b"1,a", b"1,\xff,1", b'1,"a,1', b"1,a,1\n2,b,2", b"7,a,1\r\n")
    assert [(r.index, r.kind, r.column, r.reason) for r in decoded.rejects] == [
        (0, "wrong_value", "id", "column id is not a whole number"),
        (1, "missing_required", "id", "required column id is missing or null"),
        (2, "not_csv", None, "a row has 2 fields, `csv.columns` names 3"),
        (3, "not_csv", None, "the value is not valid UTF-8"),
        (
            4,
            "not_csv",
            None,
            "a quoted field has no end or is followed by text, or an unquoted field has a quote or a carriage return",
        ),
        (5, "not_csv", None, "the value has more than one row: set `csv.rows: many` if all are rows"),
    ]
    assert decoded.table["id"].to_pylist() == [7]


def test_all_rows_of_a_record_are_refused_with_one_of_them() -> None:
    decoded = orders(b"1,a,1\n2,b,x\n", b"3,c,1\n4,d,2", b"", b"\n", rows="many")
    assert ([r.index for r in decoded.rejects], decoded.records, decoded.filtered) == ([0, 3], [1, 1], [2])
    assert decoded.table["id"].to_pylist() == [3, 4]


def test_fields_that_the_table_lacks_are_counted_or_rejected() -> None:
    values = [b"1,a,9", b"2,b,", b"3,c,8"]
    schema = Schema(*ORDERS.fields[:2])
    counted = decoder(schema, ("id", "name", "more")).decode(values)
    assert (counted.table.num_rows, counted.ignored) == (3, Counter({"more": 2}))
    strict = decoder(schema, ("id", "name", "more"), unknown_fields="dead_letter").decode(values)
    assert [(r.index, r.kind, r.column) for r in strict.rejects] == [
        (0, "unknown_field", "more"),
        (2, "unknown_field", "more"),
    ]


def test_a_table_that_cannot_be_filled_is_reported_before_a_record_is_read() -> None:
    with pytest.raises(TableError, match="LC4005"):
        decoder(ORDERS, ("name",))
    with pytest.raises(TableError, match="LC4006"):
        decoder(TEXTS, "xy")
    with pytest.raises(TableError, match="LC4029"):
        decoder(Schema(NestedField(1, "l", ListType(2, LongType()))), "l")
    with pytest.raises(TableError, match="LC4004"):
        decoder(Schema(NestedField(1, "b", BinaryType())), "b")


def test_a_record_is_no_exactly_one_row_where_it_may_be_several() -> None:
    assert FormatOptions(format="csv", csv={"columns": ["a"]}).one_row_each
    assert not FormatOptions(format="csv", csv={"columns": ["a"], "rows": "many"}).one_row_each
