# SPDX-License-Identifier: Apache-2.0
"""Decisions of the JSON decoder one by one: what is taken, what is refused, how it is told."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.spark.decode_json import JsonDecoder

PLACE = StructType(NestedField(11, "city", StringType(), required=True), NestedField(12, "zip", IntegerType()))
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "place", PLACE),
    NestedField(3, "marks", ListType(13, IntegerType(), element_required=True)),
    NestedField(4, "visits", ListType(14, PLACE, element_required=False)),
)


def one(kind: IcebergType, text: str, rule: str | None = None) -> Any:
    """What a column ``c`` of this type makes of a JSON text; an error's text when it is refused."""
    decoder = JsonDecoder(Schema(NestedField(1, "c", kind)), {"c": rule} if rule else {})
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
    assert decoded.accepted == [0, 2]
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
    ],
)
def test_exact_values_are_taken(kind: IcebergType, text: str, row: Any) -> None:
    assert one(kind, text) == row


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (DecimalType(12, 2), "1.005", "requires scale 3"),
        (DecimalType(9, 2), "10000000", "does not fit in precision"),
        (DecimalType(38, 10), "12345678901234567890123456789", "does not fit in precision"),
        (DecimalType(12, 2), '"12,30"', "not a valid decimal"),
        (LongType(), "1.0", "couldn't parse"),
        (LongType(), '"1"', "changed from number to string"),
        (LongType(), "9223372036854775808", "couldn't parse"),
        (IntegerType(), "2147483648", "couldn't parse"),
        (FloatType(), "1e39", "too large"),
        (DoubleType(), "1.7976931348623159e308", "too large"),
        (DoubleType(), "NaN", "not a finite number"),
        (DoubleType(), "-Infinity", "not a finite number"),
        (StringType(), "1", "changed from string to number"),
        (DateType(), '"2026-02-30"', "2026-02-30"),
        (DateType(), '"2026-01-01T00:00:00"', "2026-01-01T00:00:00"),
        (TimestampType(), '"2026-01-01T00:00:00Z"', "expected no zone offset"),
        (TimestamptzType(), '"2026-01-01T00:00:00"', "expected a zone offset"),
        (TimestamptzType(), '"2026-01-01T00:00:00.1234567Z"', "1234567Z"),
        (TimestamptzType(), "1767225600", "changed from string to number"),
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
    ("rule", "text", "reason"),
    [
        ("epoch_seconds", "1767355200000", "years 1 to 9999; is the unit right?"),
        ("epoch_seconds", "9223372036854775807", "overflow"),
        ("epoch_millis", "1.5", "couldn't parse"),
        ("epoch_millis", '"1767355200000"', "changed from number to string"),
        ("%d.%m.%Y", '"30.02.2026"', "day is out of range"),
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
        decoder = JsonDecoder(schema, {"last.at": "epoch_seconds", path: "epoch_millis"})

        table = decoder.decode(
            [b'{"last":{"at":1767355200,"until":"2026-01-02T12:00:00Z"},"all":[{"at":1767355200000}]}']
        ).table

        assert table.to_pylist() == [{"last": {"at": NOON, "until": NOON}, "all": [{"at": NOON}]}]


@pytest.mark.parametrize(
    "kind",
    [
        MapType(2, StringType(), 3, StringType()),
        UUIDType(),
        TimeType(),
        FixedType(4),
        BinaryType(),
        TimestampNanoType(),
    ],
)
def test_a_type_that_is_not_landed_is_refused_before_reading(kind: IcebergType) -> None:
    schema = Schema(NestedField(1, "ok", LongType()), NestedField(9, "box", StructType(NestedField(10, "odd", kind))))
    with pytest.raises(TableError, match=r"column box\.odd has type .*: not yet landed"):
        JsonDecoder(schema)


@pytest.mark.parametrize(
    ("timestamps", "message"),
    [
        ({"gone": "epoch_millis"}, "no column 'gone'"),
        ({"id": "epoch_millis"}, "column id is long"),
        ({"local": "%Y %z"}, "column local has no zone"),
    ],
)
def test_a_rule_that_fits_no_column_is_refused_before_reading(timestamps: dict[str, str], message: str) -> None:
    with pytest.raises(TableError, match=message):
        JsonDecoder(Schema(NestedField(1, "id", LongType()), NestedField(2, "local", TimestampType())), timestamps)


UNKNOWN = [
    b'{"id":1,"x":1,"place":{"city":"a","y":{"deep":[1]}},"visits":[{"city":"b","z":1},{"city":"c","z":"2"},null]}',
    b'{"id":2,"x":null,"ID":3}',
    b'{"id":3}',
]


@pytest.mark.parametrize("contradiction", [False, True], ids=["agreeing types", "contradicting types"])
def test_ignored_fields_are_counted_exactly(contradiction: bool) -> None:
    values = UNKNOWN + [b'{"id":4,"x":"text"}'] * contradiction + [b'{"id":5,"place":{"city":"d"}}'] * 20
    wanted = Counter({"x": 1 + contradiction, "place.y": 1, "visits.element.z": 2, "ID": 1})

    decoder = JsonDecoder(SCHEMA)
    decoded = [decoder.decode(values), decoder.decode(values)]

    assert [d.ignored for d in decoded] == [wanted, wanted]
    assert [d.rejects for d in decoded] == [(), ()]
    assert decoded[0].table.num_rows == len(values)
    assert decoded[0].table["visits"][0].as_py() == [{"city": "b", "zip": None}, {"city": "c", "zip": None}, None]


def test_unknown_fields_can_be_refused() -> None:
    decoded = JsonDecoder(SCHEMA, unknown_fields="dead_letter").decode(UNKNOWN)

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

    decoded = JsonDecoder(SCHEMA, unknown_fields=unknown).decode([b'{"id":0}', deep, b'{"id":2}'])

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
    assert decoded.accepted == good
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


def test_the_columns_to_skip_are_unknown_fields_of_the_record() -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "kafka_offset", LongType(), required=True))

    decoded = JsonDecoder(schema, skip={"kafka_offset"}).decode([b'{"id":1,"kafka_offset":9}'])

    assert decoded.table.column_names == ["id"]
    assert decoded.ignored == {"kafka_offset": 1}


def test_a_table_without_a_column_to_read_is_refused_before_reading() -> None:
    with pytest.raises(TableError, match="no column to fill"):
        JsonDecoder(Schema(NestedField(2, "kafka_offset", LongType())), skip={"kafka_offset"})
