# SPDX-License-Identifier: Apache-2.0
"""Protobuf to rows: which type becomes which, what is a reject and why, what a registry's framing names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
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
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import RegistryError, TableError
from airflow_provider_lakecommit.formats.decoder import Decoded, decoder_for
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import LONG, ProtobufDecoder
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from tests.fakes.registry import FakeRegistry
from tests.support.messages import serialized_set

HEAD = 'syntax = "proto3"; package shop;\n'
IMPORTS = "".join(
    f'import "google/{name}.proto";\n'
    for name in (
        *("protobuf/timestamp", "protobuf/duration", "protobuf/wrappers", "protobuf/struct", "protobuf/any"),
        *("type/date", "type/timeofday"),
    )
)
ENUM = "enum Status { UNKNOWN = 0; OPEN = 1; PAID = 2; }\n"
ID = NestedField(1, "id", LongType())


def text_of(*fields: str) -> str:
    return (
        f"{HEAD}{IMPORTS}{ENUM}message Item {{ string sku = 1; int32 n = 2; }}\nmessage Order {{ {' '.join(fields)} }}"
    )


def kind_of(text: str) -> Any:
    return GetMessageClass(message_named(file_of(text), "shop.Order"))


def decoder(text: str, *columns: NestedField, **options: Any) -> ProtobufDecoder:
    return ProtobufDecoder(
        Schema(*columns), FormatOptions(format="protobuf", schema=text, **{"message": "shop.Order", **options})
    )


def one(declared: str, kind: IcebergType, value: Any, *, required: bool = False, **options: Any) -> Decoded:
    """A message with one field ``c``, given or set by a function."""
    text = text_of(f"{declared} = 1;")
    message = kind_of(text)()
    if callable(value):
        value(message)
    elif value is not None:
        message.c = value
    field = NestedField(1, "c", kind, required=required)
    return decoder(text, field, **options).decode([message.SerializeToString()])


@pytest.mark.parametrize(
    ("declared", "kind", "value", "found"),
    [
        ("int32 c", IntegerType(), -5, -5),
        ("sint32 c", LongType(), -(2**31), -(2**31)),
        ("uint32 c", LongType(), 2**32 - 1, 2**32 - 1),
        ("uint32 c", IntegerType(), 7, 7),
        ("int64 c", IntegerType(), 7, 7),
        ("sfixed64 c", LongType(), -(2**63), -(2**63)),
        ("uint64 c", LongType(), 2**63 - 1, 2**63 - 1),
        ("fixed64 c", DecimalType(20, 0), 2**64 - 1, Decimal(2**64 - 1)),
        ("int64 c", DecimalType(21, 2), -(2**63), Decimal(-(2**63))),
        ("bool c", BooleanType(), True, True),
        ("float c", FloatType(), 0.5, 0.5),
        ("float c", DoubleType(), 0.5, 0.5),
        ("double c", DoubleType(), float("-inf"), float("-inf")),
        ("string c", StringType(), "é\x00", "é\x00"),
        ("string c", UUIDType(), "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
        ("string c", DecimalType(12, 2), "1234567890.12", Decimal("1234567890.12")),
        ("string c", DateType(), "2026-01-31", date(2026, 1, 31)),
        ("bytes c", BinaryType(), b"\xff\x00", b"\xff\x00"),
        ("bytes c", FixedType(2), b"\xff\x00", b"\xff\x00"),
        ("bytes c", UUIDType(), bytes(16), UUID(int=0)),
        ("Status c", StringType(), 2, "PAID"),
        ("Status c", IntegerType(), 99, 99),
        ("optional int32 c", IntegerType(), 0, 0),
        ("optional int32 c", IntegerType(), None, None),
        ("int32 c", IntegerType(), None, 0),
        ("Status c", StringType(), None, "UNKNOWN"),
        ("optional Status c", StringType(), None, None),
        ("Item c", StructType(NestedField(2, "sku", StringType())), None, None),
        ("google.protobuf.Timestamp c", TimestamptzType(), None, None),
        ("google.protobuf.Int64Value c", LongType(), None, None),
        ("google.protobuf.Struct c", StringType(), None, None),
        ("repeated int32 c", ListType(2, LongType(), element_required=True), lambda m: m.c.extend([1, -2]), [1, -2]),
        ("repeated int32 c", ListType(2, LongType()), None, []),
        ("repeated Status c", ListType(2, StringType()), lambda m: m.c.extend([1, 2]), ["OPEN", "PAID"]),
        ("map<string, int64> c", MapType(2, StringType(), 3, LongType()), lambda m: m.c.update({"a": 0}), [("a", 0)]),
        ("map<bool, bytes> c", MapType(2, BooleanType(), 3, BinaryType()), None, []),
        (
            "google.protobuf.Timestamp c",
            TimestamptzType(),
            lambda m: m.c.FromJsonString("9999-12-31T23:59:59.999999Z"),
            datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        ),
        (
            "google.protobuf.Timestamp c",
            TimestamptzType(),
            lambda m: m.c.FromJsonString("0001-01-01T00:00:00.000001Z"),
            datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        ),
        (
            "google.protobuf.Duration c",
            DecimalType(21, 9),
            lambda m: m.c.FromNanoseconds(-3_000_000_001),
            Decimal("-3.000000001"),
        ),
        ("google.protobuf.Duration c", DecimalType(21, 3), lambda m: m.c.FromMilliseconds(1), Decimal("0.001")),
        ("google.protobuf.Int64Value c", LongType(), lambda m: m.c.SetInParent(), 0),
        (
            "google.protobuf.UInt64Value c",
            DecimalType(20, 0),
            lambda m: setattr(m.c, "value", 2**64 - 1),
            Decimal(2**64 - 1),
        ),
        ("google.protobuf.BoolValue c", BooleanType(), lambda m: m.c.SetInParent(), False),
        ("google.protobuf.StringValue c", StringType(), lambda m: setattr(m.c, "value", "x"), "x"),
        (
            "repeated google.protobuf.StringValue c",
            ListType(2, StringType()),
            lambda m: (m.c.add(), setattr(m.c.add(), "value", "x")),
            ["", "x"],
        ),
        (
            "google.protobuf.Struct c",
            StringType(),
            lambda m: m.c.update({"b": [1, None], "a": "é"}),
            '{"a":"é","b":[1.0,null]}',
        ),
        (
            "google.protobuf.Any c",
            StructType(NestedField(2, "type_url", StringType()), NestedField(3, "value", BinaryType())),
            lambda m: (setattr(m.c, "type_url", "t"), setattr(m.c, "value", b"\xff")),
            {"type_url": "t", "value": b"\xff"},
        ),
        (
            "google.type.Date c",
            DateType(),
            lambda m: (setattr(m.c, "year", 2026), setattr(m.c, "month", 1), setattr(m.c, "day", 31)),
            date(2026, 1, 31),
        ),
        (
            "google.type.TimeOfDay c",
            TimeType(),
            lambda m: (setattr(m.c, "hours", 23), setattr(m.c, "nanos", 1000)),
            time(23, 0, 0, 1),
        ),
    ],
)
def test_a_field_becomes_exactly_its_value(declared: str, kind: IcebergType, value: Any, found: Any) -> None:
    decoded = one(declared, kind, value)
    assert (decoded.table["c"].to_pylist(), decoded.rejects) == ([found], ())
    decoded.table.validate(full=True)


def test_times_are_read_by_their_rules() -> None:
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert one("int64 c", TimestamptzType(), 1000, timestamps={"c": "epoch_millis"}).table["c"].to_pylist() == [at]
    assert one("int32 c", DateType(), 1, timestamps={"c": "epoch_days"}).table["c"].to_pylist() == [date(1970, 1, 2)]
    assert one("string c", TimestampType(), "1970-01-01T00:00:01").table["c"].to_pylist() == [at.replace(tzinfo=None)]
    assert one("string c", DateType(), "31.01.2026", timestamps={"c": "%d.%m.%Y"}).table["c"].to_pylist() == [
        date(2026, 1, 31)
    ]


def test_nanoseconds_keep_what_they_hold() -> None:
    decoded = one("google.protobuf.Timestamp c", TimestamptzNanoType(), lambda m: m.c.FromNanoseconds(-1))
    assert decoded.table["c"].cast("int64").to_pylist() == [-1]
    (late,) = one("google.protobuf.Timestamp c", TimestamptzNanoType(), lambda m: m.c.FromSeconds(10**10)).rejects
    assert (late.kind, late.reason[:43]) == ("wrong_value", "column c: not in the years 1677 to 2262, wh")


@pytest.mark.parametrize(
    ("declared", "kind", "value", "message"),
    [
        ("uint64 c", LongType(), 2**63, "9223372036854775808"),
        ("int64 c", IntegerType(), 2**31, "2147483648"),
        ("uint64 c", DecimalType(19, 0), 2**64 - 1, "more digits than"),
        ("bytes c", FixedType(2), b"abc", "b'abc' is not 2 bytes"),
        ("bytes c", UUIDType(), b"abc", "is not 16 bytes"),
        ("string c", UUIDType(), "abc", "not a uuid"),
        ("string c", DecimalType(12, 2), "1.005", "more decimals than"),
        ("string c", DecimalType(12, 2), "0x1", "'0x1' is not a number"),
        ("Status c", StringType(), 99, "99 is not a value of shop.Status in this schema"),
        (
            "google.protobuf.Timestamp c",
            TimestamptzType(),
            lambda m: setattr(m.c, "nanos", 1),
            "1 is not a whole number of microseconds",
        ),
        (
            "google.protobuf.Timestamp c",
            TimestamptzType(),
            lambda m: setattr(m.c, "nanos", -1000),
            "is not the nanoseconds of",
        ),
        (
            "google.protobuf.Timestamp c",
            TimestamptzType(),
            lambda m: setattr(m.c, "seconds", 2**40),
            "is not the second of",
        ),
        ("google.protobuf.Duration c", DecimalType(21, 3), lambda m: setattr(m.c, "nanos", 1), "more decimals than"),
        (
            "google.protobuf.Duration c",
            DecimalType(21, 9),
            lambda m: (setattr(m.c, "nanos", 1), setattr(m.c, "seconds", -1)),
            "not of the sign of its seconds",
        ),
        ("google.protobuf.Struct c", StringType(), lambda m: m.c.update({"a": float("nan")}), "no form in JSON"),
        ("google.type.Date c", DateType(), lambda m: setattr(m.c, "year", 2026), "month must be in 1..12"),
        ("google.type.TimeOfDay c", TimeType(), lambda m: setattr(m.c, "hours", 24), "hour must be in 0..23"),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_a_reject(
    declared: str, kind: IcebergType, value: Any, message: str
) -> None:
    (reject,) = one(declared, kind, value).rejects
    assert (reject.kind, reject.column) == ("wrong_value", "c")
    assert message in reject.reason


def test_a_required_column_needs_a_field_that_is_there() -> None:
    (reject,) = one("optional int32 c", IntegerType(), None, required=True).rejects
    assert (reject.kind, reject.column) == ("missing_required", "c")
    assert one("int32 c", IntegerType(), None, required=True).table["c"].to_pylist() == [0]
    text = text_of("Item c = 1;", "int64 id = 2;")
    inner = StructType(NestedField(3, "sku", StringType()), NestedField(4, "more", LongType(), required=True))
    of = decoder(text, NestedField(1, "c", inner), ID.model_copy(update={"field_id": 2}))
    made = kind_of(text)
    decoded = of.decode([made(id=1).SerializeToString(), made(id=2, c={"sku": "a"}).SerializeToString()])
    assert decoded.table.to_pylist() == [{"c": None, "id": 1}]
    assert [(r.index, r.kind, r.column) for r in decoded.rejects] == [(1, "missing_required", "c.more")]


@pytest.mark.parametrize(
    ("declared", "kind", "message"),
    [
        ("double c", FloatType(), "is float, the field is double"),
        ("int64 c", DoubleType(), "is double, the field is a whole number"),
        ("int64 c", TimestamptzType(), "the field is a number: state its meaning in `timestamps`"),
        ("string c", LongType(), "is long, the field is string"),
        ("bytes c", StringType(), "is string, the field is bytes"),
        ("Item c", StringType(), "is string, the field is a message shop.Item: make it a struct"),
        ("repeated int32 c", IntegerType(), "the field is repeated int32: make it a list"),
        ("map<string, int32> c", StructType(NestedField(2, "a", IntegerType())), "the field is a map: make it a map"),
        ("google.protobuf.Timestamp c", TimestampType(), "the field is a message google.protobuf.Timestamp"),
    ],
)
def test_a_column_that_no_field_fits_is_reported_before_a_record_is_read(
    declared: str, kind: IcebergType, message: str
) -> None:
    with pytest.raises(TableError) as raised:
        one(declared, kind, None)
    assert "message shop.Order: column c" in str(raised.value)
    assert message in str(raised.value)


def test_the_last_member_of_a_oneof_is_there() -> None:
    text = text_of("oneof pay { string card = 1; int64 cash = 2; Item barter = 3; }")
    columns = (
        NestedField(1, "card", StringType()),
        NestedField(2, "cash", LongType()),
        NestedField(3, "barter", StructType(NestedField(4, "n", LongType()))),
    )
    card, cash, barter = b"\x0a\x01c", b"\x10\x00", b"\x1a\x02\x10\x05"
    decoded = decoder(text, *columns).decode(
        [card, cash, barter, card + cash, cash + card, barter + card + barter, b""]
    )
    assert [tuple(row.values()) for row in decoded.table.to_pylist()] == [
        ("c", None, None),
        (None, 0, None),
        (None, None, {"n": 5}),
        (None, 0, None),
        ("c", None, None),
        (None, None, {"n": 5}),
        (None, None, None),
    ]
    # Also where the table lacks the other member.
    assert decoder(text, columns[1]).decode([cash + card]).table["cash"].to_pylist() == [None]


def test_the_last_entry_of_a_key_and_an_entry_without_its_message() -> None:
    text = text_of("map<string, int64> c = 1;", "map<int32, Item> d = 2;")
    item = StructType(NestedField(9, "sku", StringType()))
    columns = (
        NestedField(1, "c", MapType(3, StringType(), 4, LongType())),
        NestedField(2, "d", MapType(5, IntegerType(), 6, item)),
    )
    twice = b"\x0a\x05\x0a\x01a\x10\x01" + b"\x0a\x05\x0a\x01a\x10\x02"
    decoded = decoder(text, *columns).decode([twice, b"\x12\x02\x08\x05", b"\x0a\x00"])
    assert decoded.table.to_pylist() == [
        {"c": [("a", 2)], "d": []},
        {"c": [], "d": [(5, {"sku": ""})]},
        {"c": [("", 0)], "d": []},
    ]


HOSTILE = {
    "cut": b"\x08",
    "field 0": b"\x00\x01",
    "an open group": b"\x9b\x06",
    "deep groups": b"\x9b\x06" * 500_000 + b"\x9c\x06" * 500_000,
    "deep groups without an end": b"\x9b\x06" * 1_000_000,
    "a negative length": b"\x12" + b"\xff" * 9 + b"\x01",
    "a length beyond the end": b"\x12\x7fa",
    "text that is none": b"\x12\x01\xff",
    "JSON": b'{"id": 1}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_fails_alone(name: str) -> None:
    text = text_of("int64 id = 1;", "string c = 2;")
    of = decoder(text, ID, NestedField(2, "c", StringType()))
    decoded = of.decode([b"\x08\x01", HOSTILE[name], b"\x08\x02"])
    assert decoded.table["id"].to_pylist() == [1, 2]
    assert [(r.index, r.kind) for r in decoded.rejects] == [(1, "not_protobuf")]
    assert decoded.rejects[0].reason.startswith("message shop.Order: ")


def test_what_is_long_is_read_all_the_same() -> None:
    text = text_of("int64 id = 1;", "string c = 2;")
    value = kind_of(text)(id=7, c="x" * LONG).SerializeToString()
    assert decoder(text, ID).decode([value]).table["id"].to_pylist() == [7]


def test_fields_that_the_table_lacks_are_counted_by_path_or_reject() -> None:
    text = text_of(
        "int64 id = 1;", "Item c = 2;", "repeated Item l = 3;", "map<string, Item> m = 4;", "string more = 5;"
    )
    item = StructType(NestedField(9, "sku", StringType()))
    columns = (
        ID,
        NestedField(2, "c", item),
        NestedField(3, "l", ListType(10, item)),
        NestedField(4, "m", MapType(11, StringType(), 12, item)),
    )
    made = kind_of(text)
    values = [
        made(id=1, c={"n": 1}, l=[{"n": 2}, {"sku": "a"}, {"n": 3}], m={"a": {"n": 4}}, more="x").SerializeToString(),
        made(id=2, c={"sku": "b"}).SerializeToString(),
        b"\x08\x03\xa0\x06\x01",
    ]
    counted = decoder(text, *columns).decode(values)
    assert counted.table["id"].to_pylist() == [1, 2, 3]
    assert counted.ignored == Counter({"more": 1, "c.n": 1, "l.element.n": 2, "m.value.n": 1})
    strict = decoder(text, *columns, unknown_fields="dead_letter").decode(values)
    assert [(r.index, r.kind) for r in strict.rejects] == [(0, "unknown_field"), (2, "unknown_field")]
    assert strict.rejects[1].reason == "message shop.Order lacks the field 100, or it is a group or an extension"


PARTS = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M {
  google.protobuf.Struct s = 1;
  google.protobuf.ListValue l = 2;
  map<string, google.protobuf.Value> m = 3;
  oneof choice { google.protobuf.Value a = 4; int32 b = 5; }
}
"""


def test_json_that_comes_in_parts_is_merged_as_protobuf_merges_it() -> None:
    kind = GetMessageClass(message_named(file_of(PARTS), ""))
    parts = [kind(), kind(), kind(), kind()]
    parts[0].s.update({"x": 1, "y": "old"})
    parts[1].s.update({"y": "new", "z": None})
    parts[0].l.extend([1, "a"])
    parts[1].l.append(True)
    parts[0].a.string_value = "lost"
    parts[1].b = 3
    parts[2].a.string_value = "kept"
    values = [b"".join(p.SerializeToString() for p in parts[:n]) for n in range(5)]
    # An entry without its value, and one with its value twice.
    values += [b"\x1a\x03\x0a\x01k", b"\x1a\x0c\x0a\x01k\x12\x02\x20\x01\x12\x03\x1a\x01v"]
    text = StringType()
    schema = Schema(
        NestedField(1, "s", text),
        NestedField(2, "l", text),
        NestedField(3, "m", MapType(6, text, 7, text)),
        NestedField(4, "a", text),
        NestedField(5, "b", IntegerType()),
    )
    found = ProtobufDecoder(schema, FormatOptions(format="protobuf", schema=PARTS)).decode(values)
    assert found.rejects == ()
    rows = found.table.to_pylist()
    merged = '{"x":1.0,"y":"new","z":null}'
    assert [row["s"] for row in rows] == [None, '{"x":1.0,"y":"old"}', merged, merged, merged, None, None]
    assert [row["l"] for row in rows][:3] == [None, '[1.0,"a"]', '[1.0,"a",true]']
    assert [(row["a"], row["b"]) for row in rows][:4] == [(None, None), ('"lost"', None), (None, 3), ('"kept"', None)]
    assert [row["m"] for row in rows][4:] == [[], [("k", "null")], [("k", '"v"')]]


CHOICE_OF_GROUPS = [
    'syntax = "proto2"; message M { oneof c { int32 a = 1; group Old = 2 { optional int32 z = 1; } } '
    "optional int32 last = 3; optional M within = 4; }",
    'edition = "2023"; message Old { int32 z = 1; } message M { oneof c { int32 a = 1; '
    "Old old = 2 [features.message_encoding = DELIMITED]; } int32 last = 3; M within = 4; }",
]


@pytest.mark.parametrize("schema", CHOICE_OF_GROUPS)
def test_a_group_that_was_written_last_is_there_in_place_of_another_member(schema: str) -> None:
    a, group, last = b"\x08\x05", b"\x13\x08\x07\x14", b"\x18\x09"
    within = b"\x22\x06" + a + group
    columns = (NestedField(1, "a", IntegerType()), NestedField(2, "last", IntegerType()))
    options = FormatOptions(format="protobuf", schema=schema, message="M")
    found = ProtobufDecoder(Schema(*columns), options).decode([a + group, group + a, a + last, group + last])
    assert found.rejects == ()
    assert [row["a"] for row in found.table.to_pylist()] == [None, 5, 5, None]
    strict = ProtobufDecoder(Schema(*columns), replace(options, unknown_fields="dead_letter"))
    found = strict.decode([a + last, group + last, within])
    assert [(r.index, r.kind) for r in found.rejects] == [(1, "unknown_field"), (2, "unknown_field")]


def test_an_extension_is_a_field_that_the_table_lacks() -> None:
    schema = (
        'syntax = "proto2"; message M { optional int32 a = 1; extensions 100 to 110; '
        "extend M { optional int32 inner = 101; } } extend M { optional int32 outer = 100; }"
    )
    options = FormatOptions(format="protobuf", schema=schema, unknown_fields="dead_letter")
    made = ProtobufDecoder(Schema(NestedField(1, "a", IntegerType())), options)
    found = made.decode([b"\x08\x05", b"\x08\x05\xa0\x06\x01", b"\x08\x05\xa8\x06\x01"])
    assert [(r.index, r.kind) for r in found.rejects] == [(1, "unknown_field"), (2, "unknown_field")]
    assert "the field 101" in found.rejects[1].reason


def test_of_proto2_what_is_not_there_is_null_and_a_group_is_reported() -> None:
    text = """syntax = "proto2"; package shop;
        message Order {
            required int64 id = 1; optional int32 n = 2 [default = 5];
            optional group Old = 3 { optional int32 a = 1; }
        }"""
    decoded = decoder(text, ID, NestedField(2, "n", IntegerType())).decode([b"\x08\x01", b"", b"\x08\x02\x10\x03"])
    assert decoded.table.to_pylist() == [{"id": 1, "n": None}, {"id": None, "n": None}, {"id": 2, "n": 3}]
    with pytest.raises(TableError, match="LC4020"):
        decoder(text, ID, NestedField(2, "old", StructType(NestedField(3, "a", IntegerType()))))


SELF = StructType(NestedField(30, "id", LongType()))


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("inner", SELF, "inner"),
        ("list", ListType(31, SELF, element_required=False), "list.element"),
        ("map", MapType(32, StringType(), 33, SELF, value_required=False), "map.value"),
        ("other", StructType(NestedField(34, "back", SELF)), "other.back"),
    ],
)
def test_a_column_for_a_message_within_itself_is_refused_by_name(name: str, kind: IcebergType, path: str) -> None:
    text = f"""{HEAD} message Other {{ Order back = 1; int32 n = 2; }} message Order {{
        int64 id = 1; Order inner = 2; repeated Order list = 3; map<string, Order> map = 4; Other other = 5; }}"""
    with pytest.raises(TableError, match="LC4020"):
        decoder(text, ID, NestedField(2, name, kind))
    # Without the column it is an unknown field like others, and so is what leads back to it.
    other = NestedField(2, "other", StructType(NestedField(3, "n", IntegerType())))
    value = kind_of(text)(id=1, inner={"id": 2}, other={"n": 3, "back": {"id": 4}}).SerializeToString()
    decoded = decoder(text, ID, other).decode([value])
    assert decoded.table.to_pylist() == [{"id": 1, "other": {"n": 3}}]
    assert decoded.ignored == Counter({"inner": 1, "other.back": 1})


PROTO2 = """syntax = "proto2"; package shop;
    message Order {
        required int64 id = 1; optional Status s = 2; repeated Status all = 3;
        oneof one { int32 a = 4; int32 b = 5; }
        enum Status { OPEN = 0; PAID = 1; }
    }"""
BOTH_OF_ONE = b"\x08\x01\x20\x01\x28\x01"
"""It has two members of a oneof, so that all values next to it are read by Protobuf's own parser."""


VERY_LONG = b"\x08\x01\xa2\x06\xff\x7f" + bytes(16383)
"""And so is what stands next to this one."""


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    "entries",
    [
        b"\x0a\x05\x0a\x01k\x78\x07",
        b"\x0a\x02\x78\x07",
        b"\x0a\x05\x0a\x01k\x12\x00" + b"\x0a\x07\x0a\x01k\x12\x00\x78\x07",
    ],
    ids=["no value", "nothing", "twice"],
)
def test_a_map_never_has_a_key_twice_or_an_entry_without_its_value(entries: bytes, required: bool) -> None:
    text = f"{HEAD} message Item {{ int32 n = 1; }} message Order {{ map<string, Item> m = 1; }}"
    item = StructType(NestedField(4, "n", IntegerType()))
    kind = MapType(2, StringType(), 3, item, value_required=required)
    good = b"\x0a\x05\x0a\x01g\x12\x00"
    for unknown_fields in ("ignore", "dead_letter"):
        odd = decoder(text, NestedField(1, "m", kind), unknown_fields=unknown_fields)
        decoded = odd.decode([good, entries, good])
        assert [r.index for r in decoded.rejects] == [1]
        assert decoded.table.to_pylist() == [{"m": [("g", {"n": 0})]}] * 2


@pytest.mark.parametrize("neighbours", [[], [BOTH_OF_ONE], [VERY_LONG]])
@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b"\x10\x01", {"id": None, "s": 1, "all": []}),
        (b"\x08\x07\x10\x63", {"id": 7, "s": 99, "all": []}),
        (b"\x08\x07\x10\x63\x10\x01", {"id": 7, "s": 1, "all": []}),
        (b"\x08\x07\x10\x01\x10\x63", {"id": 7, "s": 99, "all": []}),
        (b"\x08\x07\x18\x01\x18\x63\x18\x00", {"id": 7, "s": None, "all": [1, 99, 0]}),
        (b"\x08\x07\x1a\x03\x01\x63\x00", {"id": 7, "s": None, "all": [1, 99, 0]}),
    ],
)
def test_a_row_of_proto2_is_the_same_whatever_is_next_to_it(
    value: bytes, row: dict[str, Any], neighbours: list[bytes]
) -> None:
    numbers = NestedField(3, "all", ListType(4, IntegerType(), element_required=False))
    columns = (ID, NestedField(2, "s", IntegerType()), numbers)
    decoded = decoder(PROTO2, *columns).decode([value, *neighbours])
    assert decoded.rejects == ()
    assert decoded.table.to_pylist()[0] == row


def test_what_proto2_requires_rejects_only_by_a_required_column() -> None:
    required = NestedField(1, "id", LongType(), required=True)
    for unknown_fields in ("ignore", "dead_letter"):
        decoded = decoder(PROTO2, required, unknown_fields=unknown_fields).decode([b"\x08\x01", b"", BOTH_OF_ONE[:2]])
        assert [(r.index, r.kind) for r in decoded.rejects] == [(1, "missing_required")]


def test_a_descriptor_set_states_the_schema_as_well_as_its_text() -> None:
    text = text_of("int64 id = 1;", "google.protobuf.Timestamp c = 2;")
    own, kept = descriptor_pb2.FileDescriptorProto(), file_of(text)
    kept.CopyToProto(own)
    for stated in (serialized_set(own), serialized_set(*_with_imports(kept))):
        decoded = decoder(stated, ID, NestedField(2, "c", TimestamptzType())).decode([b"\x08\x01\x12\x00"])
        assert decoded.table.to_pylist() == [{"id": 1, "c": datetime(1970, 1, 1, tzinfo=UTC)}]


def _with_imports(file: Any) -> Iterator[descriptor_pb2.FileDescriptorProto]:
    for inner in file.dependencies:
        yield from _with_imports(inner)
    own = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(own)
    yield own


@pytest.mark.parametrize(
    ("schema", "message", "output"),
    [
        ("message Order {", "", "does not compile"),
        (f"{HEAD} message Order {{ Gone c = 1; }}", "", '"Gone" is not defined'),
        (f'{HEAD} import "gone.proto"; message Order {{ int64 id = 1; }}', "", "gone.proto"),
        (f"{HEAD} message Order {{ int64 id = 1; }}", "Order", "has no message 'Order' (it has shop.Order)"),
        (HEAD, "", "has no message"),
        (f"{HEAD} message Order {{ int64 other = 1; }}", "", "it has none of the table's columns"),
    ],
)
def test_a_stated_schema_that_cannot_be_used_is_reported(schema: str, message: str, output: str) -> None:
    with pytest.raises(TableError) as raised:
        decoder(schema, ID, message=message)
    assert output in str(raised.value)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def framed(fake: FakeRegistry, *columns: NestedField, **options: Any) -> Any:
    registry = SchemaRegistry({"url": fake.url, "max.retries": 0, "unknown.wait.seconds": 0})
    return decoder_for(Schema(*columns), FormatOptions(format="protobuf", **options), registry=registry)


def behind(schema_id: int, payload: bytes, *indexes: int) -> bytes:
    """As Confluent's serializers write it."""
    path = b"\x00" if indexes in ((), (0,)) else bytes([2 * len(indexes), *(2 * i for i in indexes)])
    return b"\x00" + schema_id.to_bytes(4) + path + payload


ITEM = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
ORDER = f"""{HEAD} import "shop/item.proto";
    message Order {{ int64 id = 1; Item item = 2; message Line {{ int64 id = 3; }} }}
    message Other {{ int64 id = 5; }}"""


def test_each_record_is_read_by_the_message_that_it_names(fake: FakeRegistry) -> None:
    fake.register("item", ITEM, kind="PROTOBUF")
    order = fake.register(
        "orders-value",
        ORDER,
        kind="PROTOBUF",
        references=[{"name": "shop/item.proto", "subject": "item", "version": 1}],
    )
    newer = fake.register("orders-value", f"{HEAD} message Order {{ int64 id = 1; string late = 7; }}", kind="PROTOBUF")
    columns = (
        ID,
        NestedField(2, "item", StructType(NestedField(3, "sku", StringType()))),
        NestedField(4, "late", StringType()),
    )
    values: Sequence[bytes] = [
        behind(order, b"\x08\x01\x12\x03\x0a\x01a"),
        behind(newer, b"\x08\x02\x3a\x01b"),
        behind(order, b"\x28\x03", 1),
        behind(order, b"\x18\x04", 0, 0),
        behind(order, b"\x08\x05", 0),
        behind(order, b"\x08\x06", 7),
        behind(order, b"")[:5] + b"\x80",
        behind(99, b"\x08\x07"),
        b"\x08\x08",
        behind(order, b"\xff"),
    ]
    decoded = framed(fake, *columns).decode(values)
    assert [(row["id"], row["item"], row["late"]) for row in decoded.table.to_pylist()] == [
        (1, {"sku": "a"}, None),
        (2, None, "b"),
        (3, None, None),
        (4, None, None),
        (5, None, None),
    ]
    assert decoded.records == [0, 1, 2, 3, 4]
    assert [(r.index, r.kind) for r in decoded.rejects] == [
        (5, "wrong_schema"),
        (6, "not_framed"),
        (7, "unknown_schema"),
        (8, "not_framed"),
        (9, "not_protobuf"),
    ]
    assert decoded.rejects[0].reason == f"schema id {order}: the schema has no message at 7"
    assert decoded.rejects[4].reason.startswith(f"schema id {order}, message shop.Order: ")
    stated = framed(fake, *columns, message="shop.Order").decode(values[:3])
    assert [r.reason for r in stated.rejects] == [
        f"schema id {order}: the record is a shop.Other; the landing reads shop.Order"
    ]


def test_a_schema_that_does_not_fit_the_table_rejects_its_records_by_name(fake: FakeRegistry) -> None:
    good = fake.register("orders-value", f"{HEAD} message Order {{ int64 id = 1; }}", kind="PROTOBUF")
    bad = fake.register("orders-value", f"{HEAD} message Order {{ string id = 1; }}", kind="PROTOBUF")
    broken = fake.register("orders-value", "message {", kind="PROTOBUF")
    avro = fake.register("other-value", "long")
    decoded = framed(fake, ID).decode([behind(i, b"\x08\x01") for i in (good, bad, broken, avro)])
    assert decoded.table["id"].to_pylist() == [1]
    assert [(r.index, r.kind) for r in decoded.rejects] == [
        (1, "wrong_schema"),
        (2, "wrong_schema"),
        (3, "wrong_schema"),
    ]
    assert decoded.rejects[0].reason == f"schema id {bad}, message shop.Order: column id is long, the field is string"
    assert "does not compile" in decoded.rejects[1].reason


def test_a_registry_that_is_away_rejects_nothing(fake: FakeRegistry) -> None:
    fake.before = lambda _path: (503, "text/plain", b"")
    with pytest.raises(RegistryError):
        framed(fake, ID).decode([behind(1, b"\x08\x01")])


def test_an_import_that_leads_out_of_its_folder_is_refused(fake: FakeRegistry) -> None:
    fake.register("item", ITEM, kind="PROTOBUF")
    name = "../../../tmp/lakecommit-escaped.proto"
    order = fake.register("o", ORDER, kind="PROTOBUF", references=[{"name": name, "subject": "item", "version": 1}])
    (reject,) = framed(fake, ID).decode([behind(order, b"\x08\x01")]).rejects
    assert (reject.kind, "is not a file name" in reject.reason) == ("wrong_schema", True)
