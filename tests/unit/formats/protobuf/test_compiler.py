# SPDX-License-Identifier: Apache-2.0
"""The compiler of schemas: what is a schema's fault, told the same way each time, and what is this machine's."""

from __future__ import annotations

import decimal
import errno
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from confluent_kafka.schema_registry.confluent.type.decimal_utils import to_proto_decimal
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, IntegerType, LongType, MapType, NestedField, StringType, StructType

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import CompilerError, TableError
from airflow_provider_lakecommit.formats.protobuf import compiler
from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError, compiled
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.formats.registry.schema_source import PROTOBUF, RegisteredSchema, SchemaKey

HEAD = 'syntax = "proto3"; package shop; '
ORDER = f"{HEAD}message Order {{ int64 id = 1; }}"
FRAMED = b"\x00\x00\x00\x00\x01\x00\x08\x07"
Done = subprocess.CompletedProcess[bytes]


class OneSchema:
    """A registry with one schema."""

    def __init__(self, text: str, *references: tuple[str, str]) -> None:
        self._found = RegisteredSchema(
            key=1,
            kind=PROTOBUF,
            text=text,
            references=tuple((n, RegisteredSchema(key=2, kind=PROTOBUF, text=t)) for n, t in references),
        )

    def schema(self, _key: SchemaKey) -> RegisteredSchema:
        return self._found


def decoder(registry: OneSchema, *columns: NestedField) -> ProtobufDecoder:
    schema = Schema(*(columns or (NestedField(1, "id", LongType()),)))
    return ProtobufDecoder(schema, FormatOptions(format="protobuf"), registry=registry)


WRITTEN_OUT = """
syntax = "proto3";
package shop;
import "shop/item.proto";

message Order {
  repeated .shop.Order.TagsEntry tags = 1;
  .shop.Order.Place place = 2;
  repeated .shop.Order.ItemsEntry items = 3;

  message TagsEntry {
    option map_entry = true;

    string key = 1;
    int32 value = 2;
  }
  message ItemsEntry {
    option  map_entry=true ;

    int64 key = 1;
    .shop.Item value = 2;
  }
  message Place {
    reserved 536870911;
    int32 key = 1;
    int32 value = 2;
    int32 floor = 3;
  }
}
"""
ITEM_WITH_MAP = """
syntax = "proto3";
package shop;
message Item {
  repeated .shop.Item.NotesEntry notes = 1;
  message NotesEntry {
    option map_entry = true;
    string key = 1;
    string value = 2;
  }
}
"""


def test_a_map_whose_entries_are_written_out_is_a_map() -> None:
    written = "message Order { map<string, int32> tags = 1; Place place = 2; map<int64, Item> items = 3; "
    plain = f'{HEAD} import "shop/item.proto"; {written} message Place {{ int32 key = 1; int32 value = 2; '
    plain += "int32 floor = 3; reserved 536870911; } }"
    item = f"{HEAD} message Item {{ map<string, string> notes = 1; }}"
    files = [
        compiled(text, (("shop/item.proto", inner),)) for text, inner in ((WRITTEN_OUT, ITEM_WITH_MAP), (plain, item))
    ]
    assert [f.package for f in files[0]] == ["shop", "shop"]
    entries, of_map = [
        {m.name: (m.options.map_entry, len(m.reserved_range)) for m in made[-1].message_type[0].nested_type}
        for made in files
    ]
    assert entries == of_map == {"TagsEntry": (True, 0), "ItemsEntry": (True, 0), "Place": (False, 1)}
    assert [m.options.map_entry for m in files[0][0].message_type[0].nested_type] == [True]


def test_records_with_maps_whose_entries_are_written_out_land() -> None:
    tags = MapType(4, StringType(), 5, IntegerType())
    registry = OneSchema(WRITTEN_OUT, ("shop/item.proto", ITEM_WITH_MAP))
    made = decoder(registry, NestedField(1, "tags", tags))
    value = b"\x00\x00\x00\x00\x01\x00" + b"\x0a\x05\x0a\x01a\x10\x03" * 2
    found = made.decode([value])
    assert (found.table.to_pylist(), found.rejects) == ([{"tags": [("a", 3)]}], ())


INNER = (
    f"{HEAD} message Outer {{ map<string, int32> a = 1; "
    "message One { int64 id = 1; } message Two { int64 other = 1; int64 id = 2; } }"
)


@pytest.mark.parametrize(
    ("message", "index", "found"),
    [
        # Counted with the entries of maps, as most clients do: AEntry, One, Two.
        ("", 1, [{"id": 7}]),
        ("shop.Outer.Two", 2, [{"id": 0}]),
        # Counted without them: no record is an entry, or the landing names what is meant.
        ("", 0, [{"id": 7}]),
        ("shop.Outer.One", 0, [{"id": 7}]),
        ("shop.Outer.Two", 1, [{"id": 0}]),
        ("", 3, []),
    ],
)
def test_entries_of_maps_may_count_in_a_path_or_not(message: str, index: int, found: list[Any]) -> None:
    made = ProtobufDecoder(
        Schema(NestedField(1, "id", LongType())),
        FormatOptions(format="protobuf", message=message),
        registry=OneSchema(INNER),
    )
    value = b"\x00\x00\x00\x00\x01\x04\x00" + bytes([2 * index]) + b"\x08\x07"
    decoded = made.decode([value])
    assert decoded.table.to_pylist() == found
    assert len(decoded.rejects) == 1 - len(found)


def test_what_is_wrong_with_a_text_is_reported_without_a_folder() -> None:
    with pytest.raises(DescriptorError) as first:
        compiled('syntax = "proto3"; import "shop/item.proto"; message Order { Item item = 1; }', ())
    with pytest.raises(DescriptorError) as second:
        compiled('syntax = "proto3"; import "shop/item.proto"; message Order { Item item = 1; }', ())
    message = 'the schema does not compile: 1:20: Import "shop/item.proto" was not found or had errors. 1:62: "Item" is'
    assert str(first.value) == str(second.value)
    assert str(first.value).startswith(message)


def test_a_warning_is_no_verdict() -> None:
    (file,) = compiled("message Order { optional int64 id = 1; }", ())
    assert [m.name for m in file.message_type] == ["Order"]


@pytest.mark.parametrize(
    ("text", "references", "message"),
    [
        (f"{ORDER} // \ud800", [], "the schema is not valid UTF-8"),
        (f"{ORDER}\0", [], "does not compile"),
        (ORDER, [("a\0.proto", HEAD)], "not a file name"),
        (ORDER, [("a", HEAD), ("a/b.proto", HEAD)], "not a file name: File exists"),
        (ORDER, [(f"{'a' * 300}.proto", HEAD)], "not a file name: File name too long"),
    ],
)
def test_no_schema_of_a_registry_stops_a_slice(text: str, references: list[tuple[str, str]], message: str) -> None:
    (reject,) = decoder(OneSchema(text, *references)).decode([FRAMED]).rejects
    assert (reject.kind, message in reject.reason) == ("wrong_schema", True), reject.reason


def _ended(code: int, stderr: bytes) -> Callable[..., Done]:
    return lambda command, **_: subprocess.CompletedProcess(command, code, b"", stderr)


def _late(command: Any, **_: Any) -> Done:
    raise subprocess.TimeoutExpired(command, 60)


def _no_memory(*_: Any, **__: Any) -> Done:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize(
    "run",
    [
        _late,
        _no_memory,
        _ended(-9, b""),
        _ended(1, b"Traceback (most recent call last):\nImportError: libstdc++.so.6: no such file"),
        _ended(1, b"made.descriptors: No space left on device\n"),
        _ended(1, b"lakecommit_root.proto:1:18: warning: Import google/protobuf/any.proto is unused.\nKilled\n"),
    ],
    ids=["late", "no memory", "killed", "not there", "disk full", "killed behind a warning"],
)
def test_a_compiler_that_could_not_do_its_work_rejects_nothing(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{HEAD}message Order {{ int64 id = 1; int32 of_{id(run)} = 2; }}"
    reader = decoder(OneSchema(text))
    with monkeypatch.context() as m:
        m.setattr(compiler.subprocess, "run", run)
        with pytest.raises(CompilerError):
            reader.decode([FRAMED])
    # Nothing of it was kept.
    assert reader.decode([FRAMED]).table.to_pylist() == [{"id": 7}]


def test_a_compiler_that_is_not_there_rejects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_spec", lambda _name: None)
    with pytest.raises(TableError, match="LC4017"):
        decoder(OneSchema(f"{HEAD}message Order {{ int64 id = 1; int32 nobody_elses = 2; }}")).decode([FRAMED])


def test_the_folder_of_a_text_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.tempfile, "tempdir", str(tmp_path))
    compiled(ORDER, ())
    assert list(tmp_path.iterdir()) == []


CONFLUENTS = """syntax = "proto3"; package shop;
    import "confluent/meta.proto"; import "confluent/type/decimal.proto";
    message Order {
        option (confluent.message_meta).doc = "an order";
        int64 id = 1 [(confluent.field_meta) = {tags: ["PII"]}];
        confluent.type.Decimal price = 2;
    }"""


def test_what_confluents_registry_does_not_serve_may_be_imported() -> None:
    price = StructType(
        NestedField(3, "value", BinaryType()),
        NestedField(4, "precision", IntegerType()),
        NestedField(5, "scale", IntegerType()),
    )
    reader = decoder(OneSchema(CONFLUENTS), NestedField(1, "id", LongType()), NestedField(2, "price", price))
    payload = b"\x00\x00\x00\x00\x01\x00\x08\x07\x12\x08\x0a\x02\x04\xd2\x10\x04\x18\x02"
    assert reader.decode([payload]).table.to_pylist() == [
        {"id": 7, "price": {"value": b"\x04\xd2", "precision": 4, "scale": 2}}
    ]


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "12.34",
        "-0.01",
        "1E+3",
        "-99999999.99",
        "99999999.99",
        "5.000",
        "-0",
        "1234567890123456789012345678901234.5E-33",
    ],
)
def test_confluents_decimals_are_the_numbers_that_its_own_library_writes(text: str) -> None:
    number = decimal.Decimal(text)
    found = _of_decimal(to_proto_decimal(number).SerializeToString())
    exact = number == number.quantize(decimal.Decimal("0.01"))
    assert found == (number if exact else "wrong_value")


@pytest.mark.parametrize(
    ("value", "scale"),
    [
        (b"\x05", 3),
        (b"\x05", 77),
        (b"\x05", -77),
        (b"\x05", 2**31 - 1),
        (b"\x05", -(2**31)),
        (b"\x7f" + bytes(32), 2),
        ((10**10).to_bytes(5), 2),
        (b"\x80" + bytes(15), 2),
    ],
)
def test_a_decimal_of_confluents_that_no_column_holds_is_a_reject(value: bytes, scale: int) -> None:
    message = decimal_pb2.Decimal(value=value, precision=1, scale=scale)
    assert _of_decimal(message.SerializeToString()) == "wrong_value"
    assert _of_decimal(decimal_pb2.Decimal(scale=2).SerializeToString()) == 0
    assert _of_decimal(None) is None


def _of_decimal(octets: bytes | None) -> Any:
    """What becomes of one in a column, or the kind of its reject."""
    price = NestedField(1, "price", DecimalType(10, 2))
    payload = b"" if octets is None else b"\x12" + bytes([len(octets)]) + octets
    good = b"\x12\x06\x0a\x02\x04\xd2\x18\x02"
    reader = decoder(OneSchema(CONFLUENTS), price)
    decoded = reader.decode([FRAMED[:6] + good, FRAMED[:6] + payload])
    rows = [row["price"] for row in decoded.table.to_pylist()]
    assert rows[0] == decimal.Decimal("12.34")
    return decoded.rejects[0].kind if decoded.rejects else rows[1]


def test_what_a_registry_serves_of_confluents_files_counts() -> None:
    own = 'syntax = "proto3"; package confluent.type; message Decimal { int64 units = 1; }'
    text = f'{HEAD}import "confluent/type/decimal.proto"; message Order {{ confluent.type.Decimal price = 2; }}'
    reader = decoder(
        OneSchema(text, ("confluent/type/decimal.proto", own)),
        NestedField(1, "price", StructType(NestedField(2, "units", LongType()))),
    )
    payload = b"\x00\x00\x00\x00\x01\x00\x12\x02\x08\x05"
    assert reader.decode([payload]).table.to_pylist() == [{"price": {"units": 5}}]
