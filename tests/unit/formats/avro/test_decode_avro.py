# SPDX-License-Identifier: Apache-2.0
"""Avro into columns that are not what it says: by name, alias, promotion and rule; and what is refused by name."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import RegistryError, TableError
from airflow_provider_lakecommit.formats.avro.block import MOST_EMPTY
from airflow_provider_lakecommit.formats.avro.decode_avro import AvroDecoder
from airflow_provider_lakecommit.formats.decoder import Decoded
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema, SchemaKey, UnknownSchemaError
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from tests.support.avro_shapes import encoded

UUID_TEXT = "01234567-89ab-cdef-0123-456789abcdef"
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LONGS = {"type": "array", "items": "long"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
FIXED_UUID = {"type": "fixed", "name": "X", "size": 16, "logicalType": "uuid"}


def exact(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def table(*columns: Any) -> Schema:
    stated = [c if isinstance(c, Mapping) and "name" in c else {"name": "c", "type": c} for c in columns]
    return create_from_spec({"schema": stated})[0]


def of(kind: Any) -> dict[str, Any]:
    """A record with one field ``c``."""
    return {"type": "record", "name": "R", "fields": [{"name": "c", "type": kind}]}


def decoded(schema: Any, columns: Schema, values: list[Any], **options: Any) -> Decoded:
    stated = FormatOptions(format="avro", schema=json.dumps(schema), **options)
    return AvroDecoder(columns, stated).decode([encoded(schema, value) for value in values])


def column(kind: Any, target: Any, *values: Any, **options: Any) -> list[Any]:
    """What becomes of values of a type in a column of another: a value, or the reason why not."""
    found = decoded(of(kind), table(target), [{"c": value} for value in values], **options)
    out = dict(zip(found.records or range(found.table.num_rows), found.table.column("c").to_pylist(), strict=False))
    out |= {r.index: f"{r.kind}: {r.reason}" for r in found.rejects}
    return [out[n] for n in range(len(values))]


class TestPromotion:
    @pytest.mark.parametrize(
        ("kind", "target", "value", "row"),
        [
            ("int", "long", -7, -7),
            ("int", "double", 2**31 - 1, 2.0**31 - 1),
            ("long", "int", 7, 7),
            ("long", "float", 2**24, 2.0**24),
            ("long", "decimal(20, 2)", 12, Decimal("12.00")),
            ("float", "double", 1.5, 1.5),
            ("bytes", "string", "Malmö".encode(), "Malmö"),
            ("string", "binary", "Malmö", "Malmö".encode()),
            ("string", "uuid", UUID_TEXT, UUID(UUID_TEXT)),
            ("string", "timestamptz", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ({"type": "fixed", "name": "X", "size": 4}, "fixed[4]", b"abcd", b"abcd"),
            ({"type": "fixed", "name": "X", "size": 4}, "binary", b"abcd", b"abcd"),
            (
                {"type": "fixed", "name": "X", "size": 16, "logicalType": "uuid"},
                "uuid",
                UUID(UUID_TEXT).bytes,
                UUID(UUID_TEXT),
            ),
            ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string", 1, "B"),
            (exact(4, 1), "decimal(9, 3)", 15, Decimal("1.500")),
            (NANOS, "timestamptz", 1_000, datetime(1970, 1, 1, microsecond=1, tzinfo=UTC)),
            ({"type": "string", "logicalType": "no-such"}, "string", "x", "x"),
            ({"type": "int", "logicalType": "timestamp-millis"}, "long", 5, 5),
        ],
    )
    def test_what_loses_nothing(self, kind: Any, target: str, value: Any, row: Any) -> None:
        assert column(kind, target, value) == [row]

    @pytest.mark.parametrize(
        ("kind", "target", "good", "bad", "why"),
        [
            ("long", "int", 1, 2**31, "is out of range"),
            ("long", "double", 2**53, 2**53 + 1, "does not hold exactly"),
            ("int", "float", 2**24, 2**24 + 1, "does not hold exactly"),
            ("long", "decimal(3, 0)", 999, 1000, ""),
            ("bytes", "string", b"a", b"\xff", "not UTF-8"),
            ("string", "uuid", UUID_TEXT, "x", "not a uuid"),
            (exact(5, 2), "decimal(5, 1)", 110, 111, ""),
            (exact(9, 2), "decimal(5, 2)", 99999, 100000, ""),
            (NANOS, "timestamptz", 1000, 1001, "whole number"),
            (MILLIS, "timestamptz", 0, 2**50, "years 1 to 9999"),
            ({"type": "int", "logicalType": "time-millis"}, "time", 0, 86_400_000, "within a day"),
            ({"type": "int", "logicalType": "date"}, "date", 0, 2**31 - 1, "years 1 to 9999"),
        ],
    )
    def test_what_would_lose_something_costs_its_own_record(
        self, kind: Any, target: str, good: Any, bad: Any, why: str
    ) -> None:
        first, second, third = column(kind, target, good, bad, good)
        assert first == third
        assert not isinstance(first, str) or not first.startswith("wrong_value")
        assert second.startswith("wrong_value: column c: ")
        assert why in second

    @pytest.mark.parametrize(
        ("kind", "target", "value", "why"),
        [
            ("double", "float", 1.0, "the table has float, the records have double"),
            ("string", "long", "7", "the table has long, the records have string"),
            ("long", "timestamptz", 7, "state in `timestamps` how times are written"),
            (MILLIS, "timestamp", 7, "set `timestamps` to epoch_millis"),
            (MILLIS, "long", 7, "the records have long (timestamp-millis)"),
            ("string", {"list": "string"}, "x", "the table has list<string>"),
            ({"type": "array", "items": "int"}, "string", [1], "the records have array"),
            ({"type": "fixed", "name": "X", "size": 3}, "fixed[4]", b"abc", "the records have fixed X"),
        ],
    )
    def test_a_field_that_cannot_become_its_column_is_named(self, kind: Any, target: Any, value: Any, why: str) -> None:
        (reason,) = column(kind, target, value)
        assert reason.startswith("wrong_value: column c: ")
        assert why in reason
        optional, null = ["null", kind], column(["null", kind], target, (0, None), (1, value))
        assert null[0] is None, optional
        assert why in null[1]

    def test_a_rule_speaks_where_no_logical_type_does(self) -> None:
        rule = {"timestamps": {"c": "epoch_seconds"}}
        assert column("long", "timestamptz", 60, **rule) == [datetime(1970, 1, 1, 0, 1, tzinfo=UTC)]
        assert column(MILLIS, "timestamp", 60_000, timestamps={"c": "epoch_millis"}) == [datetime(1970, 1, 1, 0, 1)]
        (conflict,) = column(MILLIS, "timestamptz", 60, **rule)
        assert "`timestamps` has epoch_seconds, the records have timestamp-millis" in conflict
        assert column("string", "timestamp", "31.01.2026", timestamps={"c": "%d.%m.%Y"}) == [datetime(2026, 1, 31)]
        with pytest.raises(TableError, match="LC4003"):
            column("long", "long", 1, **rule)

    def test_a_rule_that_contradicts_what_connect_calls_the_numbers_is_an_error_by_name(self) -> None:
        declared = {"type": "long", "connect.name": "io.debezium.time.Timestamp", "connect.version": 1}
        assert column(declared, "timestamp", 60_000, timestamps={"c": "epoch_millis"}) == [datetime(1970, 1, 1, 0, 1)]
        (conflict,) = column(["null", declared], "timestamp", (1, 60_000), timestamps={"c": "epoch_micros"})
        assert "long of io.debezium.time.Timestamp, which epoch_millis reads; `timestamps` has epoch_micros" in conflict
        (unsaid,) = column(declared, "timestamp", 60_000)
        assert "how times are written (io.debezium.time.Timestamp is epoch_millis)" in unsaid
        own = {**declared, "connect.name": "of.our.own"}
        assert column(own, "timestamp", 60_000, timestamps={"c": "epoch_millis"}) == [datetime(1970, 1, 1, 0, 1)]

    def test_numbers_at_the_ends_of_their_types(self) -> None:
        ends = [-(2**63), 2**63 - 1, -(2**31), 2**31, 0, -1, 63, 64, -64, -65]
        assert column("long", "long", *ends) == ends
        assert column("int", "int", -(2**31), 2**31 - 1) == [-(2**31), 2**31 - 1]

    def test_a_decimal_may_repeat_its_sign(self) -> None:
        kind = exact(38, 0)
        most = 10**38 - 1
        columns = table("decimal(38, 0)")
        decoder = AvroDecoder(columns, FormatOptions(format="avro", schema=json.dumps(of(kind))))
        values = [n.to_bytes(size, signed=True) for n in (most, -most, 0, -1) for size in (17, 20)]
        found = decoder.decode([encoded("bytes", value) for value in [*values, bytes([1]) + bytes(16), b""]])
        assert found.table.column("c").to_pylist() == [Decimal(n) for n in (most, -most, 0, -1) for _ in range(2)]
        assert [(r.index, r.kind) for r in found.rejects] == [(8, "wrong_value"), (9, "not_avro")]


WRITTEN = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "extra", "type": ["null", {"type": "map", "values": "string"}]},
        {"name": "no", "type": "long", "aliases": ["number", "id"]},
        {
            "name": "where",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "int"}],
            },
        },
    ],
}
COLUMNS = (
    {"name": "where", "type": {"struct": [{"name": "street", "type": "string"}, {"name": "city", "type": "string"}]}},
    {"name": "id", "type": "long", "required": True},
    {"name": "note", "type": "string"},
)
ROW: dict[str, Any] = {"where": {"street": None, "city": "Paris"}, "id": 7, "note": None}


class TestFields:
    def value(self, extra: Any = (0, None)) -> dict[str, Any]:
        return {"extra": extra, "no": 7, "where": {"city": "Paris", "zip": 1}}

    def test_they_find_their_columns_by_name_and_alias(self) -> None:
        found = decoded(WRITTEN, table(*COLUMNS), [self.value(), self.value((1, {"a": "b"}))])
        assert found.table.to_pylist() == [ROW, ROW]
        assert dict(found.ignored) == {"where.zip": 2, "extra": 1}

    def test_those_that_the_table_lacks_may_reject(self) -> None:
        values = [self.value((1, {}))]
        found = decoded(WRITTEN, table(*COLUMNS), values, unknown_fields="dead_letter")
        assert [(r.kind, r.column) for r in found.rejects] == [("unknown_field", "extra")]
        assert found.ignored == {}

    def test_a_rejected_record_counts_for_no_unknown_field(self) -> None:
        bad = encoded(WRITTEN, self.value((1, {"a": "b"}))) + b"\x00"
        stated = FormatOptions(format="avro", schema=json.dumps(WRITTEN))
        found = AvroDecoder(table(*COLUMNS), stated).decode([bad, encoded(WRITTEN, self.value())])
        assert dict(found.ignored) == {"where.zip": 1}

    def test_a_wrong_default_of_who_wrote_them_means_nothing(self) -> None:
        schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": "int", "default": None}]}
        assert decoded(schema, table("int"), [{"c": 1}]).table.to_pylist() == [{"c": 1}]

    def test_a_required_column_without_a_field_is_missing(self) -> None:
        columns = table({"name": "c", "type": "long"}, {"name": "id", "type": "long", "required": True})
        found = decoded(of("long"), columns, [{"c": 1}])
        assert [(r.kind, r.column) for r in found.rejects] == [("missing_required", "id")]

    def test_what_is_missing_within_what_is_missing_is_not_missing(self) -> None:
        inner = {"struct": [{"name": name, "type": "int", "required": True} for name in "ab"]}
        schema = of(["null", {"type": "record", "name": "I", "fields": [{"name": "a", "type": "int"}]}])
        found = decoded(schema, table(inner), [{"c": (0, None)}, {"c": (1, {"a": 1})}])
        assert found.table.to_pylist() == [{"c": None}]
        assert [(r.index, r.column) for r in found.rejects] == [(1, "c.b")]

    def test_a_map_with_a_key_twice_is_no_map(self) -> None:
        schema = of({"type": "map", "values": "int"})
        twice = encoded(schema, {"c": {}})[:-1] + b"\x04\x02k\x02\x02k\x04\x00"
        decoder = AvroDecoder(
            table({"map": {"key": "string", "value": "int"}}), FormatOptions(format="avro", schema=json.dumps(schema))
        )
        found = decoder.decode([encoded(schema, {"c": {"k": 1}}), twice])
        assert found.table.num_rows == 1
        assert found.rejects[0].reason == "column c: a key is given twice"


MONEY = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
SEVERAL = ["null", "int", "string", MONEY]


class TestUnions:
    def test_a_struct_has_a_field_for_each_type(self) -> None:
        members = {
            "struct": [
                {"name": "string", "type": "string"},
                {"name": "Money", "type": {"struct": [{"name": "cents", "type": "long"}]}},
                {"name": "gone", "type": "int"},
            ]
        }
        values = [(0, None), (2, "x"), (3, {"cents": 5})]
        rows = column(SEVERAL, members, *values)
        nothing = {"string": None, "Money": None, "gone": None}
        assert rows == [None, {**nothing, "string": "x"}, {**nothing, "Money": {"cents": 5}}]
        found = decoded(of(SEVERAL), table(members), [{"c": (1, 7)}])
        assert (found.table.to_pylist(), dict(found.ignored)) == ([{"c": nothing}], {"c.int": 1})

    def test_a_column_of_one_type_takes_what_can_become_it(self) -> None:
        assert column(["int", "long", "null"], "long", (0, 1), (1, 2**40), (2, None)) == [1, 2**40, None]
        number, text, null, money = column(SEVERAL, "string", (1, 7), (2, "x"), (0, None), (3, {"cents": 5}))
        assert (text, null) == ("x", None)
        assert "the table has string, the records have int" in number
        assert "the records have record Money" in money

    def test_records_of_several_types_may_share_a_struct(self) -> None:
        kinds = [
            {"type": "record", "name": f"V{n}", "fields": [{"name": name, "type": "int"} for name in names]}
            for n, names in enumerate((("a",), ("b", "a")))
        ]
        target = {"struct": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
        assert column(kinds, target, (0, {"a": 1}), (1, {"b": 2, "a": 3})) == [{"a": 1, "b": None}, {"a": 3, "b": 2}]


class TestHostile:
    @pytest.mark.parametrize("read", [True, False])
    @pytest.mark.parametrize(
        ("kind", "target", "octets", "message"),
        [
            ("long", "long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
            ("long", "long", b"\xff" * 20, "more than 64 bits"),
            ("string", "string", b"\x01", "its length exceeds the record"),
            ("string", "string", b"\xff" * 9 + b"\x01", "its length exceeds the record"),
            ("double", "double", b"1234567", "the record ends in c"),
            ("long", "long", b"", "the record ends in c"),
            (["null", "int"], "int", b"\x04", "the index is beyond a union of 2 types"),
            (["null", "int"], "int", b"\x01", "the index is beyond a union of 2 types"),
            (
                {"type": "array", "items": "long"},
                {"list": "long"},
                encoded("long", 2**62),
                "more items than fit in the record",
            ),
            (
                {"type": "array", "items": "long"},
                {"list": "long"},
                b"\xff" * 9 + b"\x01\x00",
                "more items than fit in the record",
            ),
            ("long", "long", b"\x02\x02\x02", "2 bytes are left after the record"),
        ],
    )
    def test_it_is_named_and_costs_nothing_else(
        self, kind: Any, target: Any, octets: bytes, message: str, read: bool
    ) -> None:
        schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "c", "type": kind}]}
        columns = table({"name": "id", "type": "int"}, *([target] if read else []))
        decoder = AvroDecoder(columns, FormatOptions(format="avro", schema=json.dumps(schema)))
        found = decoder.decode([b"\x02" + octets])
        assert [r.kind for r in found.rejects] == ["not_avro"]
        assert message in found.rejects[0].reason

    @pytest.mark.parametrize(
        ("kind", "target", "octets", "message"),
        [
            ("int", "int", b"\x80\x80\x80\x80\x20", "more than 32 bits"),
            ("boolean", "boolean", b"\x02", "neither 0 nor 1"),
            (
                {"type": "enum", "name": "E", "symbols": ["A"]},
                "string",
                b"\x02",
                "the index is beyond an enum of 1 symbols",
            ),
        ],
    )
    def test_a_value_that_its_type_cannot_have(self, kind: Any, target: str, octets: bytes, message: str) -> None:
        decoder = AvroDecoder(table(target), FormatOptions(format="avro", schema=json.dumps(of(kind))))
        found = decoder.decode([octets, b"\x00"])
        assert (found.table.num_rows, [r.kind for r in found.rejects]) == (1, ["not_avro"])
        assert message in found.rejects[0].reason

    def test_items_of_no_bytes_are_accepted_up_to_a_number(self) -> None:
        schema = of({"type": "array", "items": {"type": "record", "name": "E", "fields": []}})
        columns = table({"name": "c", "type": {"list": {"struct": [{"name": "x", "type": "int"}]}}})
        decoder = AvroDecoder(columns, FormatOptions(format="avro", schema=json.dumps(schema)))
        few, many = encoded("long", 3) + b"\x00", encoded("long", MOST_EMPTY) + encoded("long", 1) + b"\x00"
        found = decoder.decode([few, many])
        assert [len(each) for each in found.table.column("c").to_pylist()] == [3]
        assert "more items" in found.rejects[0].reason

    @pytest.mark.heavy(but=("double-*", "string-x-5000*"))
    @pytest.mark.parametrize(
        ("kind", "item", "many"),
        [("string", "x", 5_000), ("long", -(2**40), 200_000), ("double", 0.5, 200_000), ("boolean", True, 200_000)],
    )
    def test_one_long_list_among_short_ones(self, kind: str, item: Any, many: int) -> None:
        schema = of({"type": "array", "items": kind})
        values = [{"c": [item] * (many if n == 7 else n % 3)} for n in range(1_000)]
        octets = [encoded(schema, value) for value in values]
        decoder = AvroDecoder(table({"list": kind}), FormatOptions(format="avro", schema=json.dumps(schema)))
        began = time.process_time()
        found = decoder.decode([*octets, octets[7][:-9], octets[7][:-2] + b"\xff", *octets])
        assert time.process_time() - began < 20
        assert found.table.to_pylist() == [*values, *values]
        assert [r.index for r in found.rejects] == [1_000, 1_001]

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (
                {"type": "record", "name": "N", "fields": [{"name": "c", "type": ["null", "N"]}]},
                "the recursive type N, which tables cannot hold",
            ),
            ({"type": "array", "items": "int"}, "not a record"),
            ({"type": "record", "name": "R", "fields": [{"name": "c", "type": "no.such"}]}, "is not an Avro schema"),
            ({"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]}, "no field of the table"),
        ],
    )
    def test_a_schema_that_cannot_be_read_is_refused_by_name(self, schema: Any, message: str) -> None:
        with pytest.raises(TableError, match="LC4001") as refused:
            AvroDecoder(table("int"), FormatOptions(format="avro", schema=json.dumps(schema)))
        assert message in str(refused.value)


class Source:
    """A registry of given schemas."""

    def __init__(self, **texts: Any) -> None:
        self.requests: list[SchemaKey] = []
        self.schemas = {int(key[1:]): value for key, value in texts.items()}

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        self.requests.append(key)
        found = self.schemas.get(key)
        if found is None:
            raise UnknownSchemaError(f"no schema id {key}")
        if isinstance(found, Exception):
            raise found
        return (
            found
            if isinstance(found, RegisteredSchema)
            else RegisteredSchema(key=key, kind="AVRO", text=json.dumps(found))
        )


def framed(number: int, schema: Any, value: Any) -> bytes:
    return b"\x00" + number.to_bytes(4) + encoded(schema, value)


class TestSchemasOfABlock:
    def test_rows_come_in_the_order_of_their_values(self) -> None:
        wide = {
            "type": "record",
            "name": "W",
            "fields": [{"name": "x", "type": "string"}, {"name": "c", "type": "int"}],
        }
        source = Source(s1=of("long"), s2=wide)
        decoder = AvroDecoder(table("long"), FormatOptions(format="avro"), registry=source)
        good = [framed(1, of("long"), {"c": n}) if n % 3 else framed(2, wide, {"x": "y", "c": n}) for n in range(50)]
        values = [*good[:20], good[0] + b"!", good[1] + b"!", b"{}", *good[20:]]
        for _ in range(2):
            found = decoder.decode(values)
            assert found.table.column("c").to_pylist() == list(range(50))
            assert list(found.records or ()) == [*range(20), *range(23, 53)]
            assert [(r.index, r.kind) for r in found.rejects] == [
                (20, "not_avro"),
                (21, "not_avro"),
                (22, "not_framed"),
            ]
            assert found.rejects[0].reason.endswith("(schema id 2)")
        assert source.requests == [2, 1]

    def test_a_schema_of_nothing_here_rejects_its_records_alone(self) -> None:
        source = Source(
            s1=of("long"), s2={"type": "record", "name": "O", "fields": [{"name": "y", "type": "int"}]}, s3="int"
        )
        decoder = AvroDecoder(table("long"), FormatOptions(format="avro"), registry=source)
        values = [framed(n, of("long"), {"c": n}) for n in (1, 2, 3, 4)]
        found = decoder.decode(values)
        assert found.table.to_pylist() == [{"c": 1}]
        assert [r.kind for r in found.rejects] == ["wrong_schema", "wrong_schema", "unknown_schema"]
        assert found.rejects[0].reason == "schema id 2: the schema of record O has no field of the table (it has y)"

    def test_a_registry_that_is_away_is_no_fault_of_a_record(self) -> None:
        decoder = AvroDecoder(
            table("long"), FormatOptions(format="avro"), registry=Source(s1=RegistryError("LC9999", "away"))
        )
        with pytest.raises(RegistryError):
            decoder.decode([framed(1, of("long"), {"c": 1})])

    def test_types_that_a_schema_imports(self) -> None:
        money = RegisteredSchema(key=9, kind="AVRO", text=json.dumps({"type": "fixed", "name": "a.Money", "size": 2}))
        text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "c", "type": "a.Money"}]})
        schema = RegisteredSchema(key=1, kind="AVRO", text=text, references=(("a.Money", money),))
        decoder = AvroDecoder(table("binary"), FormatOptions(format="avro"), registry=Source(s1=schema))
        assert decoder.decode([b"\x00\x00\x00\x00\x01ab"]).table.to_pylist() == [{"c": b"ab"}]

    def test_nothing_is_nothing(self) -> None:
        found = AvroDecoder(table("uuid"), FormatOptions(format="avro"), registry=Source()).decode([])
        assert (found.table.num_rows, found.rejects) == (0, ())
