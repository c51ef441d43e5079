# SPDX-License-Identifier: Apache-2.0
"""What decoding Protobuf costs: the landing's decoder, its columnar parser alone, and Protobuf's own parser by hand.

``python -m bench.protobuf`` prints thousands of records per CPU-second of one thread, the best of several rounds. By
hand is what a script does that makes a row of Python of each message, and no Arrow yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.column_rules import ColumnRules
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.formats.protobuf.fields import MessageColumns

RECORDS, ROUNDS = 50_000, 5
PROTO = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
message Address { string street = 1; string city = 2; string zip = 3; }
message Item { string sku = 1; int32 qty = 2; double price = 3; }
message Order {
  int64 id = 1; int64 customer_id = 2; google.protobuf.Timestamp ts = 3; string amount = 4; string status = 5;
  string country = 6; Address address = 7; repeated Item items = 8; optional string note = 9;
}"""
_ADDRESS = StructType(*(NestedField(20 + n, name, StringType()) for n, name in enumerate(("street", "city", "zip"))))
_ITEM = StructType(
    NestedField(24, "sku", StringType()), NestedField(25, "qty", IntegerType()), NestedField(26, "price", DoubleType())
)
TABLE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer_id", LongType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "amount", DecimalType(12, 2)),
    NestedField(5, "status", StringType()),
    NestedField(6, "country", StringType()),
    NestedField(7, "address", _ADDRESS),
    NestedField(8, "items", ListType(23, _ITEM)),
    NestedField(9, "note", StringType()),
)


def main() -> None:
    """Measure and print."""
    kind: Any = GetMessageClass(message_named(file_of(PROTO), "shop.Order"))
    values = [_order(kind, n) for n in range(RECORDS)]
    decoder, strict = _decoder("ignore"), _decoder("dead_letter")
    spoilt = [b"\xff", *values[1:]]
    columns, file, _ = MessageColumns.of(kind.DESCRIPTOR, TABLE.fields, ColumnRules())
    handler = file.handler(columns.wire)
    size = sum(map(len, values)) / RECORDS
    print(f"{RECORDS} orders of {size:.0f} bytes; load {os.getloadavg()[0]:.1f}; thousands of records per CPU-second:")
    for what, act in (
        ("the landing's decoder", lambda: decoder.decode(values)),
        ("with one bad record in the block", lambda: decoder.decode(spoilt)),
        ("with unknown_fields=dead_letter", lambda: strict.decode(values)),
        ("the columnar parser alone", lambda: handler.list_to_record_batch(values)),
        ("Protobuf's own parser by hand", lambda: _by_hand(kind, values)),
    ):
        print(f"{_rate(act):>8.0f}  {what}")


def _decoder(unknown: str) -> ProtobufDecoder:
    options = FormatOptions(format="protobuf", schema=PROTO, message="shop.Order", unknown_fields=unknown)
    return ProtobufDecoder(TABLE, options)


def _order(kind: Any, n: int) -> bytes:
    order = kind(id=n, customer_id=n * 7 % 1000, amount=f"{n % 999}.{n % 100:02}", status="paid", country="DE")
    order.ts.seconds, order.ts.nanos = 1_700_000_000 + n, n % 1000 * 1000
    order.address.street, order.address.city, order.address.zip = f"s{n}", "Berlin", "10115"
    for item in range(n % 3 + 1):
        order.items.add(sku=f"sku{item}", qty=item + 1, price=1.5)
    made: bytes = order.SerializeToString()
    return made


def _by_hand(kind: Any, values: Sequence[bytes]) -> int:
    cells = 0
    for value in values:
        o = kind.FromString(value)
        address = (o.address.street, o.address.city, o.address.zip)
        items = [(i.sku, i.qty, i.price) for i in o.items]
        note = o.note if o.HasField("note") else None
        row = (o.id, o.customer_id, o.ts.seconds, o.ts.nanos, o.amount, o.status, o.country, address, items, note)
        # Rows that are kept would cost more: Python's collector looks at them.
        cells += len(row)
    return cells


def _rate(act: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        act()
        best = min(best, time.process_time() - began)
    return RECORDS / best / 1000


if __name__ == "__main__":
    main()
