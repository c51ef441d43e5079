# SPDX-License-Identifier: Apache-2.0
"""The orders of :mod:`bench.orders` in Avro.

Contract: :func:`values` gives for each record the same order as the JSON has, so that a table of either is compared
with the same expectation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.orders import BLOCK, numbers, tails

__all__ = ["AVRO", "number", "spanned", "values"]

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer_id", "type": "long"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "status", "type": "string"},
        {"name": "country", "type": "string"},
        {
            "name": "address",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": name, "type": "string"} for name in ("street", "city", "zip")],
            },
        },
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "qty", "type": "int"}],
                },
            },
        },
        {"name": "note", "type": ["null", "string"]},
    ],
}


def values(first: int, last: int, records: int) -> Iterator[bytes]:
    """The bytes of records ``first..last-1`` of ``records``."""
    ends = [_tail(tail) for tail in tails()]
    for start in range(first, last, BLOCK):
        n = numbers(start, min(start + BLOCK, last), records)
        columns = (n[name].tolist() for name in ("id", "customer_id", "ms", "cents", "tail"))
        for i, customer, ts, cents, tail in zip(*columns, strict=True):
            amount = cents.to_bytes((cents.bit_length() + 8) // 8, signed=True)
            yield number(i) + number(customer) + number(ts) + spanned(amount) + ends[tail]


def _tail(tail: Any) -> bytes:
    """All that does not depend on the number of the record."""
    address, items, note = tail["address"], tail["items"], tail["note"]
    out = b"".join(map(_text, (tail["status"], tail["country"], *(address[key] for key in ("street", "city", "zip")))))
    out += number(len(items)) + b"".join(_text(each["sku"]) + number(each["qty"]) for each in items) + number(0)
    return out + (number(0) if note is None else number(1) + _text(note))


def _text(text: str) -> bytes:
    return spanned(text.encode())


def spanned(octets: bytes) -> bytes:
    """Bytes behind their length."""
    return number(len(octets)) + octets


def number(value: int) -> bytes:
    """A whole number, which is not negative."""
    raw, out = value << 1, bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])
