# SPDX-License-Identifier: Apache-2.0
"""The orders of :mod:`bench.orders` as Protobuf messages.

Contract: :func:`values` gives for each record the same order as the JSON has. An exact decimal is a text, as Protobuf
has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from bench.orders import BLOCK, numbers, tails

__all__ = ["PROTO", "values"]

PROTO = """syntax = "proto3"; package bench; import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1; int64 customer_id = 2; google.protobuf.Timestamp ts = 3; string amount = 4; string status = 5;
  string country = 6; Address address = 7; repeated Item items = 8; optional string note = 9;
}
message Address { string street = 1; string city = 2; string zip = 3; }
message Item { string sku = 1; int32 qty = 2; }"""


def values(first: int, last: int, records: int) -> Iterator[bytes]:
    """The bytes of records ``first..last-1`` of ``records``."""
    order: Any = GetMessageClass(message_named(file_of(PROTO), "bench.Order"))
    ends = [order(**tail).SerializeToString() for tail in tails()]
    for start in range(first, last, BLOCK):
        n = numbers(start, min(start + BLOCK, last), records)
        columns = (n[name].tolist() for name in ("id", "customer_id", "ms", "cents", "tail"))
        for i, customer, ms, cents, tail in zip(*columns, strict=True):
            made = order(id=i, customer_id=customer, amount=f"{cents // 100}.{cents % 100:02d}")
            made.ts.seconds, made.ts.nanos = ms // 1000, ms % 1000 * 1_000_000
            yield made.SerializeToString() + ends[tail]
