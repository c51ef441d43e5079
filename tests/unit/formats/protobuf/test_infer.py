# SPDX-License-Identifier: Apache-2.0
"""Columns from a message: each takes all that its field can hold, by the landing's own decoder."""

from __future__ import annotations

from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.infer_values import schema_of
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.formats.protobuf.infer import message_columns
from tests.support.effort import examples
from tests.support.messages import schemas

ALL = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/empty.proto"; import "google/type/date.proto";
enum Status { UNKNOWN = 0; }
message Item { string sku = 1; Order order = 2; }
message Order {
  int32 a = 1; uint32 b = 2; fixed64 c = 3; bytes d = 4; Status e = 5; google.protobuf.Timestamp f = 6;
  google.protobuf.Duration g = 7; google.protobuf.Struct h = 8; google.protobuf.UInt64Value i = 9;
  google.type.Date j = 10;
  repeated Item k = 11; map<int32, Item> l = 12; Order m = 13; google.protobuf.Empty n = 14; float o = 15;
}"""


def test_each_field_becomes_a_type_that_holds_it() -> None:
    columns = message_columns(message_named(file_of(ALL), "shop.Order"))
    item = {"struct": [{"name": "sku", "type": "string"}]}
    assert {c.name: c.type for c in columns} == {
        "a": "int",
        "b": "long",
        "c": "decimal(20, 0)",
        "d": "binary",
        "e": "string",
        "f": "timestamptz",
        "g": "decimal(21, 9)",
        "h": "string",
        "i": "decimal(20, 0)",
        "j": "date",
        "k": {"list": item},
        "l": {"map": {"key": "int", "value": item}},
        "m": None,
        "n": None,
        "o": "float",
    }
    notes = {c.name: c.notes for c in columns if c.type is None}
    assert notes == {
        "m": ("m: left out: shop.Order is recursive",),
        "n": ("n: left out: google.protobuf.Empty has no field with a type",),
    }


@settings(max_examples=examples(150), deadline=None)
@given(schemas())
def test_the_columns_of_any_message_can_be_filled(schema: str) -> None:
    message = message_named(file_of(schema), "")
    table = schema_of(message_columns(message))
    assert table is not None
    decoded = ProtobufDecoder(table, FormatOptions(format="protobuf", schema=schema)).decode(
        [GetMessageClass(message)().SerializeToString()]
    )
    assert (decoded.table.num_rows, decoded.rejects) == (1, ())
