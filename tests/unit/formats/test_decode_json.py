# SPDX-License-Identifier: Apache-2.0
"""Decisions of the JSON decoder one by one: what is taken, what is refused, how it is reported."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import decode_json, unknown_fields
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.unknown_fields import MOST_CELLS, MOST_MEMBERS, PROBE_CELLS, inferable, varied

PLACE = StructType(NestedField(11, "city", StringType(), required=True), NestedField(12, "zip", IntegerType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "place", PLACE),
    NestedField(3, "marks", ListType(13, IntegerType(), element_required=True)),
    NestedField(4, "visits", ListType(14, PLACE, element_required=False)),
)


def one(kind: IcebergType, text: str, rule: str | None = None) -> Any:
    """What a column ``c`` of this type makes of a JSON text; an error's text when it is refused."""
    decoder = JsonDecoder(Schema(NestedField(1, "c", kind)), FormatOptions(timestamps={"c": rule} if rule else {}))
    decoded = decoder.decode([f'{{"c":{text}}}'.encode()])
    if decoded.rejects:
        assert decoded.rejects[0].column == "c"
        return decoded.rejects[0].reason
    return decoded.table["c"][0].as_py()


@pytest.mark.parametrize(
    "value",
    [
        *(
            b"",
            b" ",
            b"null",
            b"1",
            b"[]",
            b'"x"',
            b"true",
            b'{"id":1',
            b'"id":1}',
            b'{"id":1}{"id":2}',
            b'{"id":1}\n{"id":2}',
        ),
        *(
            b'{"id":1} tail',
            b'{"id":1}null',
            b'{"id":1}null{"id":2}',
            b'{"id":1}}null{"r":{"id":2}',
            b'{"id":1},"id":{}',
        ),
        *(
            b'\xef\xbb\xbf{"id":1}',
            b'{"id":1}\x00',
            b'{"id":\x001}',
            b"{'id':1}",
            b"{id:1}",
            b'{"id":1,}',
            b'{"id":01}',
        ),
        *(b'{"id":1,"note":"\xff"}', b'{"id":1,"note":"\xed\xa0\x80"}', b'{"id":1,"note":"\\ud800"}', b'{"id":1}//'),
        b"\xff\xfe{\x00",
    ],
)
def test_a_value_that_is_no_json_object_is_refused_alone(value: bytes) -> None:
    decoded = JsonDecoder(SCHEMA).decode([b'{"id":1}', value, b'{"id":2}'])

    assert decoded.table["id"].to_pylist() == [1, 2]
    assert decoded.records == [0, 2]
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [(1, "not_json", None)]
    assert decoded.rejects[0].reason


@pytest.mark.parametrize(
    "value", [b' \t\r\n{"id":7} \n', b'{\n  "id": 7\n}', b'{"\\u0069d":7}', b'{"id":7,"place":null}']
)
def test_white_space_and_escapes_are_legal(value: bytes) -> None:
    assert JsonDecoder(SCHEMA).decode([value, value]).table["id"].to_pylist() == [7, 7]


def test_a_brace_before_null_inside_a_text_is_no_second_document() -> None:
    value = b'{"id":1,"place":{"city":"} null"}}'

    assert JsonDecoder(SCHEMA).decode([value]).table["place"].to_pylist() == [{"city": "} null", "zip": None}]


@pytest.mark.parametrize(
    ("value", "column"),
    [
        ({}, "id"),
        ({"id": None}, "id"),
        ({"id": 1, "place": {}}, "place.city"),
        ({"id": 1, "place": {"city": None, "zip": 1}}, "place.city"),
        ({"id": 1, "marks": [1, None]}, "marks.element"),
        ({"id": 1, "visits": [{"city": "a"}, {"zip": 2}]}, "visits.element.city"),
    ],
)
def test_a_missing_required_value_is_refused_at_every_level(value: dict[str, Any], column: str) -> None:
    decoded = JsonDecoder(SCHEMA).decode([json.dumps(value).encode(), b'{"id":2}'])

    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [(0, "missing_required", column)]
    assert decoded.table["id"].to_pylist() == [2]


def test_a_missing_optional_parent_needs_no_required_child() -> None:
    values = [b'{"id":1,"place":null,"visits":[null,{"city":"a"}]}', b'{"id":2,"visits":null}', b'{"id":3,"visits":[]}']

    table = JsonDecoder(SCHEMA).decode(values).table

    table.validate(full=True)
    assert table["place"].to_pylist() == [None, None, None]
    assert table["visits"].to_pylist() == [[None, {"city": "a", "zip": None}], None, []]


def test_decoded_rows_have_the_ids_and_required_flags_of_the_table() -> None:
    place = JsonDecoder(SCHEMA).decode([b'{"id":1}']).table.schema.field("place")

    assert place.metadata == {b"PARQUET:field_id": b"2"}
    assert [(f.name, f.nullable, f.metadata) for f in place.type] == [
        ("city", False, {b"PARQUET:field_id": b"11"}),
        ("zip", True, {b"PARQUET:field_id": b"12"}),
    ]


@pytest.mark.parametrize(
    ("kind", "text", "row"),
    [
        (DecimalType(12, 2), "12.30", Decimal("12.30")),
        (DecimalType(12, 2), '"12.30"', Decimal("12.30")),
        (DecimalType(12, 2), "1e2", Decimal("100.00")),
        (DecimalType(12, 2), "12.300", Decimal("12.30")),
        (
            DecimalType(38, 10),
            "1234567890123456789012345678.1234567890",
            Decimal("1234567890123456789012345678.1234567890"),
        ),
        (LongType(), "9223372036854775807", 2**63 - 1),
        (IntegerType(), "-2147483648", -(2**31)),
        (DoubleType(), "0.1", 0.1),
        (DoubleType(), "7", 7.0),
        (DateType(), '"2024-02-29"', date(2024, 2, 29)),
        (TimestampType(), '"2026-01-02 03:04:05.6"', datetime(2026, 1, 2, 3, 4, 5, 600_000)),
        (TimeType(), '"12:30"', time(12, 30)),
        (TimeType(), '"12:30:15.000001"', time(12, 30, 15, 1)),
        (UUIDType(), '"0000000A-0000-0000-0000-00000000000b"', UUID("0000000a-0000-0000-0000-00000000000b")),
        (UnknownType(), "null", None),
    ],
)
def test_exact_values_are_taken(kind: IcebergType, text: str, row: Any) -> None:
    assert one(kind, text) == row


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (DecimalType(12, 2), "1.005", "1.005 has 3 decimals, and the table has decimal(12, 2)"),
        (DecimalType(9, 2), "10000000", "10000000.00 has 8 digits before the point, and the table has decimal(9, 2)"),
        (DecimalType(38, 10), "12345678901234567890123456789", "no decimal has so many digits"),
        (DecimalType(12, 2), '"12,30"', "'12,30' is not a number: write it with a decimal point"),
        (LongType(), "1.0", "1.0 is not written as a whole number"),
        (LongType(), '"1"', "is a string, not a number"),
        (LongType(), "9223372036854775808", "9223372036854775808 does not fit in 64 bits"),
        (IntegerType(), "2147483648", "does not fit in 32 bits: widen an int to long, or set `evolve: widen`"),
        (FloatType(), "1e39", "too large"),
        (DoubleType(), "1.7976931348623159e308", "too large"),
        (DoubleType(), "NaN", "not a finite number"),
        (DoubleType(), "-Infinity", "not a finite number"),
        (StringType(), "1", "is a number, not a string"),
        (DateType(), '"2026-02-30"', "2026-02-30"),
        (DateType(), '"2026-01-01T00:00:00"', "2026-01-01T00:00:00"),
        (
            TimestampType(),
            '"2026-01-01T00:00:00Z"',
            "has a zone offset, and the table has timestamp: make the column a timestamptz",
        ),
        (TimestamptzType(), '"2026-01-01T00:00:00"', "has no zone offset, and the table has timestamptz: write one"),
        (TimestamptzType(), '"2026-01-01T00:00:00.1234567Z"', "1234567Z"),
        (TimestamptzType(), "1767225600", "is a number, not a string: state its unit in `timestamps`"),
        (TimestampNanoType(), '"2026-01-01T00:00:00.1234567891"', "1234567891"),
        (TimestampNanoType(), '"2300-01-01T00:00:00"', "2300-01-01"),
        (TimestamptzType(), '"2026-06-30T23:59:60Z"', "23:59:60"),
        (TimestampType(), '"0000-01-01T00:00:00"', "years 1 to 9999"),
        (TimestampType(), '"10000-01-01T00:00:00"', "10000"),
        (TimeType(), '"12:60"', "not a time of day"),
        (TimeType(), '"24:00"', "not a time of day"),
        (TimeType(), '"23:59:60"', "not a time of day"),
        (TimeType(), '"12:30Z"', "not a time of day"),
        (TimeType(), '"12:30:15.1234567"', "not a time of day"),
        (UUIDType(), '"{0000000a-0000-0000-0000-00000000000b}"', "not a uuid"),
        (UUIDType(), '"0000000a00000000000000000000000b"', "not a uuid"),
        (UUIDType(), "1", "is a number, not a string"),
        (UnknownType(), "1", "is a number, not null"),
    ],
)
def test_what_would_have_to_be_rounded_or_guessed_is_refused(kind: IcebergType, text: str, reason: str) -> None:
    assert reason in one(kind, text)


NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("iso8601", '"2026-01-02T14:00:00+02:00"'),
        ("epoch_seconds", "1767355200"),
        ("epoch_millis", "1767355200000"),
        ("epoch_micros", "1767355200000000"),
        ("%d.%m.%Y %H:%M", '"02.01.2026 12:00"'),
        ("%Y-%m-%d %H:%M:%S %z", '"2026-01-02 07:00:00 -0500"'),
    ],
)
def test_timestamps_are_read_by_their_rule(rule: str, text: str) -> None:
    assert one(TimestamptzType(), text, rule) == NOON


@pytest.mark.parametrize(
    ("kind", "rule", "text", "row"),
    [
        (TimestamptzType(), "epoch_nanos", "1767355200000000000", NOON),
        (TimestamptzNanoType(), "epoch_seconds", "1767355200", NOON),
        (DateType(), "epoch_days", "-719162", date(1, 1, 1)),
        (DateType(), "epoch_days", "2932896", date(9999, 12, 31)),
        (DateType(), "%d.%m.%Y", '"29.02.2024"', date(2024, 2, 29)),
        (TimeType(), "seconds_of_day", "86399", time(23, 59, 59)),
        (TimeType(), "millis_of_day", "1", time(0, 0, 0, 1000)),
        (TimeType(), "micros_of_day", "86399999999", time(23, 59, 59, 999_999)),
        (TimeType(), "nanos_of_day", "1000", time(0, 0, 0, 1)),
        (TimeType(), "%I.%M %p", '"01.30 PM"', time(13, 30)),
    ],
)
def test_dates_and_times_have_rules_of_their_own(kind: IcebergType, rule: str, text: str, row: Any) -> None:
    assert one(kind, text, rule) == row


@pytest.mark.parametrize(
    ("kind", "rule", "text", "reason"),
    [
        (TimestampType(), "epoch_nanos", "1001", "1001 is not a whole number of microseconds"),
        (TimestampType(), "epoch_nanos", "-999", "-999 is not a whole number of microseconds"),
        (TimestampNanoType(), "epoch_seconds", "9223372037", "beyond the range"),
        (TimestampNanoType(), "%Y", '"2300"', "beyond the range"),
        (DateType(), "epoch_days", "2932897", "years 1 to 9999"),
        (DateType(), "epoch_days", "-719163", "years 1 to 9999"),
        (DateType(), "epoch_days", "9999999999", "does not fit in 32 bits"),
        (DateType(), "%d.%m.%Y", '"30.02.2024"', " for month"),
        (TimeType(), "millis_of_day", "86400000", "not within a day"),
        (TimeType(), "seconds_of_day", "-1", "not within a day"),
        (TimeType(), "nanos_of_day", "1", "not a whole number of microseconds"),
        (TimeType(), "%H:%M", '"24:00"', "does not match"),
    ],
)
def test_dates_and_times_that_break_their_rule_are_refused(
    kind: IcebergType, rule: str, text: str, reason: str
) -> None:
    assert reason in one(kind, text, rule)


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00.123456789Z", "1969-12-31T23:59:59.999999999Z"])
def test_nanoseconds_are_kept(text: str) -> None:
    decoder = JsonDecoder(Schema(NestedField(1, "c", TimestamptzNanoType())))

    (found,) = decoder.decode([json.dumps({"c": text}).encode()]).table["c"]

    assert found.value % 10**9 == int(text[20:29])
    assert found.value // 10**9 == datetime.fromisoformat(f"{text[:19]}+00:00").timestamp()


@pytest.mark.parametrize(
    ("rule", "text", "reason"),
    [
        ("epoch_seconds", "1767355200000", "years 1 to 9999; check the unit (today's times have 10 digits"),
        ("epoch_seconds", "9223372036854775807", "beyond the range"),
        ("epoch_millis", "1.5", "not written as a whole number"),
        ("epoch_millis", '"1767355200000"', "is a string, not a number"),
        ("%d.%m.%Y", '"30.02.2026"', " for month"),
        ("%d.%m.%Y", '"01.02.2026 tail"', "unconverted data"),
    ],
)
def test_timestamps_that_break_their_rule_are_refused(rule: str, text: str, reason: str) -> None:
    assert reason in one(TimestamptzType(), text, rule)


def test_rules_reach_nested_columns_under_both_of_their_names() -> None:
    visit = StructType(NestedField(11, "at", TimestamptzType()), NestedField(12, "until", TimestamptzType()))
    schema = Schema(
        NestedField(1, "last", visit),
        NestedField(2, "all", ListType(13, StructType(NestedField(14, "at", TimestamptzType())))),
    )
    for path in ("all.element.at", "all.at"):
        decoder = JsonDecoder(schema, FormatOptions(timestamps={"last.at": "epoch_seconds", path: "epoch_millis"}))

        table = decoder.decode(
            [b'{"last":{"at":1767355200,"until":"2026-01-02T12:00:00Z"},"all":[{"at":1767355200000}]}']
        ).table

        assert table.to_pylist() == [{"last": {"at": NOON, "until": NOON}, "all": [{"at": NOON}]}]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BinaryType(), r"column box\.odd is binary, .*\.encodings: {box\.odd: base64 \| base64url \| hex \| utf8}"),
        (FixedType(4), r"column box\.odd is fixed\[4\], .* format\.encodings: {box\.odd: "),
        (GeometryType(), r"column box\.odd has type geometry: JSON has no standard form"),
        (GeographyType(), r"column box\.odd has type geography.*: JSON has no standard form"),
        (MapType(2, DoubleType(), 3, LongType()), r"column box\.odd\.key has type double: .* make it a decimal"),
        (
            MapType(2, ListType(4, LongType()), 3, LongType()),
            r"column box\.odd\.key has type list.*: a key .* is a text",
        ),
        (MapType(2, StringType(), 3, BinaryType()), r"encodings: {box\.odd\.value: "),
        (ListType(2, FixedType(4)), r"encodings: {box\.odd\.element: "),
    ],
)
def test_what_cannot_be_read_is_refused_before_reading(kind: IcebergType, message: str) -> None:
    schema = Schema(NestedField(1, "ok", LongType()), NestedField(9, "box", StructType(NestedField(10, "odd", kind))))
    with pytest.raises(TableError, match=rf"{message}.*LC4004"):
        JsonDecoder(schema)


RULED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "local", TimestampType()),
    NestedField(3, "on", DateType()),
    NestedField(4, "clock", TimeType()),
    NestedField(5, "blob", BinaryType()),
    NestedField(6, "tags", MapType(7, DateType(), 8, FixedType(2))),
)


@pytest.mark.parametrize(
    ("timestamps", "message"),
    [
        ({"gone": "epoch_millis"}, "no column 'gone'"),
        ({"id": "epoch_millis"}, "column id is long"),
        ({"tags": "epoch_days"}, "column tags is map"),
        ({"local": "%Y %z"}, "column local has no zone"),
        ({"local": "epoch_days"}, "column local is timestamp, not for epoch_days: use iso8601, epoch_seconds"),
        ({"on": "epoch_millis"}, "column on is date, not for epoch_millis: use iso8601, epoch_days or a strptime"),
        ({"on": "%Y-%m-%d %H:%M"}, "column on is date, so the value of %H, %M would be lost"),
        ({"clock": "epoch_millis"}, "column clock is time, .* seconds_of_day, millis_of_day"),
        ({"clock": "%d %H:%M"}, "column clock is time, so the value of %d would be lost"),
        ({"tags.key": "%Y-%m-%d %z"}, r"column tags\.key is date, so the value of %z"),
        ({"local": "%Y-%m-%d %H:%M %Z"}, "column local cannot be read by %Z"),
        ({"local": "%d.%m. %H:%M"}, "column local is timestamp, and without %Y each value would be in 1900"),
        ({"on": "%d.%m."}, "column on is date, and without %Y"),
        ({"clock": "%H:%M %p"}, "column clock needs %I and %p together"),
        ({"local": "%Y-%m-%d %I:%M"}, "column local needs %I and %p together"),
    ],
)
def test_a_rule_that_fits_no_column_is_refused_before_reading(timestamps: dict[str, str], message: str) -> None:
    with pytest.raises(TableError, match=rf"{message}.*LC4004"):
        JsonDecoder(RULED, FormatOptions(timestamps=timestamps, encodings={"blob": "hex", "tags.value": "hex"}))


def test_all_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(TableError) as caught:
        JsonDecoder(
            RULED,
            FormatOptions(timestamps={"gone": "iso8601", "id": "iso8601"}, encodings={"id": "hex", "lost": "utf8"}),
        )

    assert [part.split(":")[0] for part in str(caught.value).split("; ")] == [
        *("timestamps", "timestamps", "encodings", "encodings"),
        *("column blob is binary, and JSON has no bytes", "column tags.value is fixed[2], and JSON has no bytes"),
    ]


def coded(kind: IcebergType, encoding: str, text: str) -> Any:
    """What a column of bytes makes of a text; an error's text when it is refused."""
    decoder = JsonDecoder(Schema(NestedField(1, "c", kind)), FormatOptions(encodings={"c": encoding}))
    decoded = decoder.decode([json.dumps({"c": text}).encode()])
    return decoded.rejects[0].reason if decoded.rejects else decoded.table["c"][0].as_py()


@pytest.mark.parametrize(
    ("kind", "encoding", "text", "octets"),
    [
        (BinaryType(), "base64", "AAECgA==", b"\x00\x01\x02\x80"),
        (BinaryType(), "base64", "+/8=", b"\xfb\xff"),
        (BinaryType(), "base64", "", b""),
        (BinaryType(), "base64url", "-_8=", b"\xfb\xff"),
        (BinaryType(), "base64url", "-_8", b"\xfb\xff"),
        (BinaryType(), "hex", "00fF", b"\x00\xff"),
        (BinaryType(), "utf8", "a\u0000ü", b"a\x00\xc3\xbc"),
        (FixedType(2), "hex", "00ff", b"\x00\xff"),
        (FixedType(2), "utf8", "ü", b"\xc3\xbc"),
    ],
)
def test_bytes_are_read_by_their_declared_encoding(kind: IcebergType, encoding: str, text: str, octets: bytes) -> None:
    assert coded(kind, encoding, text) == octets


@pytest.mark.parametrize("kind", [DecimalType(9, 2), DecimalType(38, 2)])
def test_a_decimal_at_the_top_may_be_written_as_bytes(kind: DecimalType) -> None:
    assert coded(kind, "base64", "A+c=") == Decimal("9.99")
    assert coded(kind, "base64", "AA==") == Decimal("0.00")
    assert "Only base64 data is allowed" in coded(kind, "base64", "9.9")
    assert "an empty text is not a number" in coded(kind, "base64", "")


@pytest.mark.parametrize(
    ("kind", "encoding", "text", "reason"),
    [
        (BinaryType(), "base64", "AAECgA", "padding"),
        (BinaryType(), "base64", "AAECgA=", "padding"),
        (BinaryType(), "base64", "AAECgB==", "not canonical"),
        (BinaryType(), "base64", "AAEC\ngA==", "Only base64"),
        (BinaryType(), "base64", "-_8=", "Only base64"),
        (BinaryType(), "base64url", "+/8=", "Only base64"),
        (BinaryType(), "base64url", "-", "Invalid base64"),
        (BinaryType(), "hex", "0", "Odd-length"),
        (BinaryType(), "hex", "0g", "Non-hexadecimal"),
        (BinaryType(), "hex", "00 ff", "Odd-length"),
        (FixedType(2), "hex", "00", "expected to be length 2"),
        (FixedType(2), "utf8", "abc", "expected to be length 2"),
    ],
)
def test_bytes_that_break_their_encoding_are_refused(kind: IcebergType, encoding: str, text: str, reason: str) -> None:
    assert reason in coded(kind, encoding, text)


ATTRS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "attrs", MapType(3, StringType(), 4, PLACE, value_required=False)),
    NestedField(5, "counts", MapType(6, LongType(), 7, LongType(), value_required=True)),
    NestedField(
        8, "box", StructType(NestedField(9, "by", ListType(10, MapType(11, DateType(), 12, StringType(), False))))
    ),
)


@pytest.mark.parametrize(
    ("text", "kind", "column", "reason"),
    [
        ('{"counts":[{"key":1,"value":1}]}', "wrong_value", "counts", "a map is written as a JSON object"),
        ('{"counts":"1"}', "wrong_value", "counts", "a map is written as a JSON object"),
        ('{"counts":{"1":null}}', "missing_required", "counts.value", "missing or null"),
        ('{"counts":{"x":1}}', "wrong_value", "counts.key", "'x' is not a valid key"),
        ('{"counts":{"01":1}}', "wrong_value", "counts.key", "'01' is not a valid key"),
        ('{"counts":{"1.0":1}}', "wrong_value", "counts.key", "1.0 is not written as a whole number"),
        ('{"counts":{"9223372036854775808":1}}', "wrong_value", "counts.key", "does not fit in 64 bits"),
        ('{"counts":{"0":1,"-0":2}}', "wrong_value", "counts", "key 0 is given twice"),
        ('{"counts":{"1":1.5}}', "wrong_value", "counts.value", "1.5 is not written as a whole number"),
        ('{"attrs":{"a":null,"\\u0061":null}}', "wrong_value", "attrs", "key 'a' is given twice"),
        ('{"attrs":{"a":{"zip":1}}}', "missing_required", "attrs.value.city", "missing or null"),
        ('{"attrs":{"a":{"city":1}}}', "wrong_value", "attrs.value.city", "is a number, not a string"),
        ('{"attrs":{"a":{"city":"x","city":"y"}}}', "wrong_value", "attrs.value.city", "twice"),
        ('{"attrs":{},"attrs":{}}', "wrong_value", "attrs", "twice"),
        ('{"box":{"by":[{"2026-02-30":""}]}}', "wrong_value", "box.by.element.key", "2026-02-30"),
        ('{"box":{"by":[[]]}}', "wrong_value", "box.by.element", "a map is written as a JSON object"),
        ('{"box":{"by":{}}}', "wrong_value", "box.by", "is an object, not an array"),
        ('{"counts":{"1":1,}}', "not_json", None, "not valid JSON"),
        ('{"counts":{"1":1 2}}', "not_json", None, "not valid JSON"),
        ('{"counts":{"1":[1}}}', "not_json", None, "not valid JSON"),
        ('{"counts":{"1":1}', "not_json", None, "not valid JSON"),
        ('{"counts":{}} {}', "not_json", None, "not valid JSON"),
        ('["counts"]', "not_json", None, "not a JSON object"),
        ('{"counts":{"1":1}}\x00', "not_json", None, "not valid JSON"),
    ],
)
def test_a_map_that_cannot_be_taken_is_refused_alone(text: str, kind: str, column: str | None, reason: str) -> None:
    bad = text.replace("{", '{"id":1,', 1).encode()

    decoded = JsonDecoder(ATTRS).decode([b'{"id":0,"counts":{"1":5}}', bad, b'{"id":2}', b"", b'{"id":4,"attrs":{}}'])

    assert decoded.table["id"].to_pylist() == [0, 2, 4]
    assert decoded.records == [0, 2, 4]
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [(1, kind, column), (3, "not_json", None)]
    assert reason in decoded.rejects[0].reason


def test_maps_of_every_shape_are_taken() -> None:
    values = [
        b'{"id":1,"attrs":{"b":{"city":"x"},"a":null,"":{"zip":1,"city":"y"}},"counts":{"-5":6,"7":8}}',
        b' {"attrs" : null , "id" : 2 , "counts" : { } , "box" : { "by" : [ { "2026-01-01" : "{[" } , { } ] } } ',
        b'{"\\u0061ttrs":{"k":{"city":"\\"}"}},"id":3}'.replace(b"\\\\", b"\\"),
    ]

    table = JsonDecoder(ATTRS).decode(values).table

    table.validate(full=True)
    assert table["attrs"].to_pylist() == [
        [("b", {"city": "x", "zip": None}), ("a", None), ("", {"city": "y", "zip": 1})],
        None,
        [("k", {"city": '"}', "zip": None})],
    ]
    assert table["counts"].to_pylist() == [[(-5, 6), (7, 8)], [], None]
    assert table["box"].to_pylist() == [None, {"by": [[(date(2026, 1, 1), "{[")], []]}, None]


@pytest.mark.parametrize("contradiction", [False, True], ids=["agreeing types", "contradicting types"])
def test_ignored_fields_are_counted_exactly_inside_maps(contradiction: bool) -> None:
    values = [
        b'{"id":1,"attrs":{"a":{"city":"x","y":{"deep":[1]}},"b":{"city":"x","y":{}},"c":null},"x":{"counts":{}}}',
        b'{"id":2,"attrs":{"a":{"city":"x","y":null,"z":1}},"counts":{"1":1}}',
    ]
    values += [b'{"id":3,"attrs":{"a":{"city":"x","y":"text"}}}'] * contradiction

    decoder = JsonDecoder(ATTRS)

    expected = Counter({"attrs.value.y": 2 + contradiction, "attrs.value.z": 1, "x": 1})
    assert [decoder.decode(values).ignored for _ in range(2)] == [expected, expected]
    strict = JsonDecoder(ATTRS, FormatOptions(unknown_fields="dead_letter")).decode(values[1:2])
    assert [(r.column, r.reason) for r in strict.rejects] == [
        ("attrs.value.y", "the table lacks the field attrs.value.y, attrs.value.z")
    ]


def test_a_schema_of_thirty_levels_is_read() -> None:
    kind: IcebergType = UUIDType()
    text, row = '"0000000a-0000-0000-0000-000000000000"', UUID("0000000a-0000-0000-0000-000000000000")
    expected: Any = row
    for level in range(10):
        ids = 100 + level * 10
        kind = StructType(NestedField(ids, "s", ListType(ids + 1, MapType(ids + 2, LongType(), ids + 3, kind), True)))
        text, expected = f'{{"s":[{{"{level}":{text}}}]}}', {"s": [[(level, expected)]]}

    decoded = JsonDecoder(Schema(NestedField(1, "c", kind))).decode([f'{{"c":{text}}}'.encode(), b'{"c":{"s":[[]]}}'])

    assert decoded.table.to_pylist() == [{"c": expected}]
    assert [r.index for r in decoded.rejects] == [1]


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"1":', b"}")], ids=["arrays", "objects"])
@pytest.mark.parametrize("name", [b"counts", b"attrs", b"box"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "cut off"])
def test_hostile_depth_in_a_map_is_one_reject(name: bytes, opening: bytes, closing: bytes, closed: bool) -> None:
    deep = b'{"id":1,"%b":{"1":' % name + opening * 10_000 + b"1" + (closing * 10_000 + b"}}") * closed

    decoded = JsonDecoder(ATTRS).decode([b'{"id":0}', deep, b'{"id":2}'])

    assert decoded.table["id"].to_pylist() == [0, 2]
    assert [r.index for r in decoded.rejects] == [1]


def test_refused_records_of_a_table_without_rows_leave_an_empty_table() -> None:
    schema = Schema(NestedField(1, "u", UUIDType()), NestedField(2, "m", MapType(3, UUIDType(), 4, LongType())))

    decoded = JsonDecoder(schema).decode([b'{"u":"x"}', b'{"m":{"x":1}}'])

    assert decoded.table.num_rows == 0
    assert decoded.table.schema == JsonDecoder(schema).schema
    assert [r.column for r in decoded.rejects] == ["u", "m.key"]


UNKNOWN = [
    b'{"id":1,"x":1,"place":{"city":"a","y":{"deep":[1]}},"visits":[{"city":"b","z":1},{"city":"c","z":"2"},null]}',
    b'{"id":2,"x":null,"ID":3}',
    b'{"id":3}',
]


@pytest.mark.parametrize("contradiction", [False, True], ids=["agreeing types", "contradicting types"])
def test_ignored_fields_are_counted_exactly(contradiction: bool) -> None:
    values = UNKNOWN + [b'{"id":4,"x":"text"}'] * contradiction + [b'{"id":5,"place":{"city":"d"}}'] * 20
    expected = Counter({"x": 1 + contradiction, "place.y": 1, "visits.element.z": 2, "ID": 1})

    decoder = JsonDecoder(SCHEMA)
    decoded = [decoder.decode(values), decoder.decode(values)]

    assert [d.ignored for d in decoded] == [expected, expected]
    assert [d.rejects for d in decoded] == [(), ()]
    assert decoded[0].table.num_rows == len(values)
    assert decoded[0].table["visits"][0].as_py() == [{"city": "b", "zip": None}, {"city": "c", "zip": None}, None]


@pytest.mark.parametrize("text", ['{"id":%d,"at %d":1}', '{"id":%d,"by":{"user %d":1}}'])
def test_names_that_never_repeat_do_not_become_columns_for_all_records(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    values = [(text % (i, i)).encode() for i in range(3000)]
    sizes: list[int] = []
    count = decode_json.count_inferred

    def counted(columns: Any, rows: pa.StructArray) -> Counter[str]:
        sizes.append(rows.nbytes)
        return count(columns, rows)

    monkeypatch.setattr(decode_json, "count_inferred", counted)
    decoder = JsonDecoder(SCHEMA)
    decoded = [decoder.decode(values), decoder.decode(values)]

    expected = {"by": 3000} if "by" in text else {f"at {i}": 1 for i in range(3000)}
    assert [d.table["id"].to_pylist() for d in decoded] == [list(range(3000))] * 2
    assert [d.ignored for d in decoded] == [expected, expected]
    # All at once would be 3000 times 3000 numbers, 72 MB, in each block.
    assert len(sizes) == 1
    assert sizes[0] < 20_000_000


def test_pieces_to_infer_are_bounded_by_names_times_records() -> None:
    values = [b'{"a":1}'] * 3000 + [b"{%s}" % b",".join(b'"k%d":1' % i for i in range(5000))] * 3 + [b"{}"] * 5000

    for probed, most in ((False, PROBE_CELLS), (True, MOST_CELLS)):
        pieces = list(inferable(values, probed))
        cells = [(end - start) * sum(v.count(b":") for v in values[start:end]) for start, end in pieces]
        assert [start for start, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
        assert pieces[-1][1] == len(values)
        assert cells[0] <= most
        assert max(cells) <= MOST_CELLS
    with pytest.raises(Refusal, match="too wide"):
        list(inferable([b"{}", b":" * (MOST_MEMBERS + 1)], probed=True))


def test_the_columns_of_a_wide_table_do_not_vary() -> None:
    known = pa.struct([(f"c{i}", pa.int64()) for i in range(1000)])

    assert not varied(pa.struct([*known, pa.field("unknown", pa.int64())]), known)
    assert varied(pa.struct([*known, *(pa.field(f"at {i}", pa.int64()) for i in range(300))]), known)


def test_ignored_fields_are_counted_exactly_over_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unknown_fields, "PROBE_CELLS", 20)
    monkeypatch.setattr(unknown_fields, "MOST_CELLS", 100)
    values = UNKNOWN * 20 + [b'{"id":7,"x":"text","new":1}'] * 7

    decoded = JsonDecoder(SCHEMA).decode(values)

    assert decoded.table["id"].to_pylist() == [1, 2, 3] * 20 + [7] * 7
    assert decoded.ignored == {"x": 27, "place.y": 20, "visits.element.z": 40, "ID": 20, "new": 7}
    assert decoded.rejects == ()


def test_unknown_fields_can_be_refused() -> None:
    decoded = JsonDecoder(SCHEMA, FormatOptions(unknown_fields="dead_letter")).decode(UNKNOWN)

    assert decoded.table["id"].to_pylist() == [3]
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [
        (0, "unknown_field", "x"),
        (1, "unknown_field", "x"),
    ]
    assert decoded.rejects[0].reason == "the table lacks the field x, place.y, visits.element.z, visits.element.z"


@pytest.mark.parametrize("depth", [100, 1_000_000])
@pytest.mark.parametrize("opening", [(b"[", b"]"), (b'{"q":', b"}")])
@pytest.mark.parametrize("unknown", ["ignore", "dead_letter"])
def test_a_value_nested_without_end_ends_nothing(depth: int, opening: tuple[bytes, bytes], unknown: str) -> None:
    deep = b'{"id":1,"q":' + opening[0] * depth + b"1" + opening[1] * depth + b"}"

    decoded = JsonDecoder(SCHEMA, FormatOptions(unknown_fields=unknown)).decode([b'{"id":0}', deep, b'{"id":2}'])

    taken = unknown == "ignore" and depth == 100
    assert decoded.table["id"].to_pylist() == ([0, 1, 2] if taken else [0, 2])
    assert len(decoded.rejects) == (not taken)


def test_a_value_of_ten_megabytes_is_exact() -> None:
    text = "ü" * 5_000_000
    schema = Schema(NestedField(1, "c", StringType()))

    decoded = JsonDecoder(schema).decode(
        [json.dumps({"c": text}).encode(), json.dumps({"c": text}, ensure_ascii=False).encode()]
    )

    assert decoded.table["c"].to_pylist() == [text, text]


def test_bad_records_are_isolated_in_a_large_block_and_the_order_is_kept() -> None:
    values = [f'{{"id":{i}}}'.encode() for i in range(5000)]
    bad = [0, 1, 17, 2500, 4998, 4999]
    for i in bad:
        values[i] = b'{"id":"no"}'

    decoded = JsonDecoder(SCHEMA).decode(values)

    good = [i for i in range(5000) if i not in bad]
    assert decoded.records == good
    assert decoded.table["id"].to_pylist() == good
    assert [r.index for r in decoded.rejects] == bad
    assert {r.column for r in decoded.rejects} == {"id"}


def test_no_values_give_no_rows() -> None:
    decoded = JsonDecoder(SCHEMA).decode([])

    assert (decoded.table.num_rows, decoded.rejects) == (0, ())
    assert decoded.table.schema == JsonDecoder(SCHEMA).schema


def test_a_reason_is_cut_to_a_length_that_a_log_can_bear() -> None:
    decoded = JsonDecoder(SCHEMA).decode([b'{"id":1,"place":{"city":"a","zip":' + b"1" * 250 + b"}}"])

    assert len(decoded.rejects[0].reason) <= 300
    assert decoded.rejects[0].column == "place.zip"


@pytest.mark.parametrize(("precision", "scale"), [(1, 1), (9, 2), (18, 18), (20, 19), (38, 10), (38, 38)])
def test_a_decimal_is_the_number_that_was_written_or_is_refused(precision: int, scale: int) -> None:
    exponents = [*(-scale - n for n in (0, 1, 38, 39, 59, 103)), 0, 20, 37]
    texts = [f"{digits}e{e}" for digits in ("1", "-5", "204.8") for e in exponents]
    texts += ["9" * n for n in range(1, 39, 4)] + [f"0.{'0' * (scale + n)}1" for n in (-1, 38, 58)]
    decoder = JsonDecoder(Schema(NestedField(1, "c", DecimalType(precision, scale))))

    for quote in ("", '"'):
        decoded = decoder.decode([f'{{"c":{quote}{t}{quote}}}'.encode() for t in texts])

        for place, found in zip(decoded.records or [], decoded.table["c"].to_pylist(), strict=True):
            assert found == Decimal(texts[place]), texts[place]
        assert {r.column for r in decoded.rejects} == {"c"}
        assert decoded.table.num_rows > 0


def test_a_decimal_that_is_too_fine_is_found_at_every_level_and_elsewhere_it_may_be() -> None:
    kind = DecimalType(9, 2)
    schema = Schema(
        NestedField(1, "ratio", DoubleType()),
        NestedField(2, "in", StructType(NestedField(3, "c", kind))),
        NestedField(4, "list", ListType(5, kind, element_required=False)),
        NestedField(6, "map", MapType(7, StringType(), 8, kind, value_required=False)),
    )
    values = [
        *(b'{"ratio":1e-61,"in":{"c":0},"list":[0,null],"map":{"x":0.0}}', b'{"in":{"c":1e-61}}'),
        *(b'{"list":[1,null,1e-61]}', b'{"map":{"a":null,"b":"1e-61"}}', b'{"x":[1e-61],"in":null,"map":{"a":0}}'),
        b'{"list":[0],"x":1e-61,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ]

    decoded = JsonDecoder(schema).decode(values)

    assert decoded.records == [0, 4]
    assert [r.column for r in decoded.rejects] == ["in.c", "list.element", "map.value", None]
    digits = b'{"list":[0],"ratio":1e-61,"x":%s}' % (b"1" * 200)
    assert JsonDecoder(schema).decode([digits, digits]).ignored == {"x": 2}


@pytest.mark.parametrize("name", ["price (EUR)", "a)b", "(", "/r", "x) changed", "a.b", 'q"', "b\\s", "", "ü\n"])
@pytest.mark.parametrize("text", ['{%s:"x"}', "{%s:1,%s:2}", '{"place":{%s:[]}}'])
def test_a_column_of_any_name_is_named_by_its_reject(name: str, text: str) -> None:
    schema = Schema(
        NestedField(1, name, LongType()), NestedField(2, "place", StructType(NestedField(3, name, LongType())))
    )

    decoded = JsonDecoder(schema).decode([text.replace("%s", json.dumps(name)).encode()])

    (reject,) = decoded.rejects
    assert (reject.kind, reject.column) == ("wrong_value", f"place.{name}" if "place" in text else name)


def test_a_name_that_is_half_a_surrogate_pair_is_reported_in_text_that_can_be_written() -> None:
    values = [b'{"id":1,"x":1,"\\ud800":2}', b'{"id":1,"place":{"city":"a","x":1},"\\udfff":{}}']

    decoded = JsonDecoder(SCHEMA, FormatOptions(unknown_fields="dead_letter")).decode(values)

    assert [r.kind for r in decoded.rejects] == ["unknown_field", "unknown_field"]
    assert [r.reason.encode()[-6:] for r in decoded.rejects] == [b"\\ud800", b"\\udfff"]


def test_the_columns_to_skip_are_unknown_fields_of_the_record() -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "kafka_offset", LongType(), required=True))

    decoded = JsonDecoder(schema, skip={"kafka_offset"}).decode([b'{"id":1,"kafka_offset":9}'])

    assert decoded.table.column_names == ["id"]
    assert decoded.ignored == {"kafka_offset": 1}


def test_a_table_without_a_column_to_read_is_refused_before_reading() -> None:
    with pytest.raises(TableError, match="LC4004"):
        JsonDecoder(Schema(NestedField(2, "kafka_offset", LongType())), skip={"kafka_offset"})


def test_rows_that_lack_a_required_column_are_rejected_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name spoils every record; it costs no more than a right one."""
    decoder, parsed = JsonDecoder(SCHEMA), []
    read = JsonDecoder._read

    def counted(self: JsonDecoder, values: Any, unexpected: str) -> Any:
        parsed.append(len(values))
        return read(self, values, unexpected)

    monkeypatch.setattr(JsonDecoder, "_read", counted)
    bad, good = b'{"iD":1}', b'{"id":1}'
    decoded = decoder.decode([bad] * 5000)
    assert [r.index for r in decoded.rejects] == list(range(5000))
    assert {(r.kind, r.column) for r in decoded.rejects} == {("missing_required", "id")}
    assert decoded.table.num_rows == 0
    assert decoded.ignored == Counter()
    # Once to see that there are unknown fields, and once to count them.
    assert sum(parsed) == 10_000
    assert len(parsed) < 5

    mixed = decoder.decode([bad, good, b'{"id":2,"iD":3}', bad, good])
    assert [r.index for r in mixed.rejects] == [0, 3]
    assert mixed.records == [1, 2, 4]
    assert mixed.table["id"].to_pylist() == [1, 2, 1]
    assert mixed.ignored == Counter({"iD": 1})


def test_a_required_column_within_a_struct_is_missing_only_where_the_struct_is_there() -> None:
    values = [b'{"id":1}', b'{"id":2,"place":{"zip":1}}', b'{"id":3,"place":{"city":"a"}}', b'{"id":4,"place":null}']
    decoded = JsonDecoder(SCHEMA).decode(values)
    assert decoded.table["id"].to_pylist() == [1, 3, 4]
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [(1, "missing_required", "place.city")]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b'{"ids":1}', "required column id is missing or null; the record has 'ids', which the table lacks"),
        (b'{"other":1}', "required column id is missing or null"),
        (b'{"id":null}', "required column id is missing or null"),
    ],
)
def test_a_name_like_that_of_a_missing_column_is_reported(value: bytes, message: str) -> None:
    (reject,) = JsonDecoder(SCHEMA).decode([value]).rejects
    assert reject.reason == message


def test_missing_columns_and_other_refusals_of_one_block_are_reported_in_order() -> None:
    values = [b'{"id":1}', b"{}", b"nonsense", b'{"id":"x"}', b'{"id":null}', b'{"id":2}'] * 20
    decoded = JsonDecoder(SCHEMA).decode(values)
    kinds = {1: "missing_required", 2: "not_json", 3: "wrong_value", 4: "missing_required"}
    assert [(r.index, r.kind) for r in decoded.rejects] == [
        (6 * n + at, kind) for n in range(20) for at, kind in kinds.items()
    ]
    assert decoded.records == [6 * n + at for n in range(20) for at in (0, 5)]


@pytest.mark.parametrize("required", [False, True])
def test_a_record_within_schema_and_payload_is_no_row_of_nulls(required: bool) -> None:
    inner = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 1, "attrs": {"a": 1}}}
    values = [{"id": 1}, inner, {**inner, "id": 2}, {"payload": 5, "id": 3}, inner]
    fields = [
        NestedField(1, "id", LongType(), required),
        NestedField(2, "attrs", MapType(3, StringType(), 4, LongType())),
    ]
    for columns in (fields[:1], fields):
        found = JsonDecoder(Schema(*columns)).decode([json.dumps(v).encode() for v in values])
        assert found.table.column("id").to_pylist() == [1, 2, 3]
        assert found.records == [0, 2, 3]
        assert [(r.index, r.kind) for r in found.rejects] == [
            (i, "missing_required" if required else "wrong_value") for i in (1, 4)
        ]
        assert all("value.converter.schemas.enable=false" in r.reason for r in found.rejects)
        assert found.ignored == {"schema": 1, "payload": 2}
    of_payload = JsonDecoder(Schema(NestedField(1, "payload", StructType(NestedField(2, "id", LongType())))))
    assert of_payload.decode([json.dumps(inner).encode()]).table.to_pylist() == [{"payload": {"id": 1}}]
