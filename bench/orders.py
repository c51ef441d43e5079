# SPDX-License-Identifier: Apache-2.0
"""Deterministic JSON orders, and the table that they must become.

Contract: record ``i`` is a pure function of ``i``, the number of records and the timestamp form; :func:`values` gives
its bytes, :func:`expected` the same records as an Arrow table, made from the same numbers without any JSON. So a landed
table can be compared with its source cell by cell, and no copy of the topic has to be kept.

Records are about 260 bytes: two longs, a timestamp (ordered, with a jitter of an hour, over four days), an exact
decimal, strings, a struct, a list of structs and a note that is null in two of three records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

__all__ = [
    "BASE_MS",
    "BLOCK",
    "BY_DAY",
    "BY_DAY_AND_BUCKET",
    "SCHEMA",
    "SPREAD_MS",
    "expected",
    "mixed",
    "numbers",
    "produce",
    "tails",
    "values",
]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "customer_id", LongType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "amount", DecimalType(12, 2)),
    NestedField(5, "status", StringType()),
    NestedField(6, "country", StringType()),
    NestedField(
        7,
        "address",
        StructType(
            NestedField(10, "street", StringType()),
            NestedField(11, "city", StringType()),
            NestedField(12, "zip", StringType()),
        ),
    ),
    NestedField(
        8,
        "items",
        ListType(
            13,
            StructType(NestedField(14, "sku", StringType()), NestedField(15, "qty", IntegerType())),
            element_required=False,
        ),
    ),
    NestedField(9, "note", StringType()),
)
BY_DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day"))
BY_DAY_AND_BUCKET = PartitionSpec(
    PartitionField(3, 1000, DayTransform(), "ts_day"), PartitionField(2, 1001, BucketTransform(16), "customer_bucket")
)

BASE_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)
SPREAD_MS = 4 * 86_400_000
JITTER_MS = 3_600_000
POOL = 4096
BLOCK = 50_000

STATUS = ("created", "paid", "packed", "shipped", "delivered", "cancelled", "returned")
PLACES = (("DE", "Berlin"), ("FR", "Paris"), ("PL", "Gdańsk"), ("SE", "Malmö"), ("JP", "Osaka"), ("BR", "Recife"))
STREETS = ("Main Street", "Rue du Lac", "Hauptstrasse", "Via Roma", "Oak Avenue", "Calle Mayor", "Kerkweg")
NOTES = ("leave at the door", 'says "ring twice"', "gift, no invoice", "call before delivery")


@cache
def tails() -> tuple[Mapping[str, Any], ...]:
    """The pool of all that does not depend on the number of the record."""
    draw = random.Random(20260301)
    out = []
    for _ in range(POOL):
        country, city = draw.choice(PLACES)
        out.append(
            {
                "status": draw.choice(STATUS),
                "country": country,
                "address": {
                    "street": f"{draw.randint(1, 999)} {draw.choice(STREETS)}",
                    "city": city,
                    "zip": f"{draw.randrange(100_000):05d}",
                },
                "items": [
                    {"sku": f"SKU-{draw.randrange(100_000):05d}", "qty": draw.randint(1, 9)}
                    for _ in range(draw.choice((1, 2, 2, 3)))
                ],
                "note": draw.choice((*NOTES, *(None,) * 2 * len(NOTES))),
            }
        )
    return tuple(out)


def mixed(i: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A number of 64 bits for each number (splitmix64)."""
    with np.errstate(over="ignore"):
        h = (i + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


def numbers(first: int, last: int, records: int) -> dict[str, np.ndarray[Any, Any]]:
    """Ids ``first..last-1`` and what is mixed from them."""
    i = np.arange(first, last, dtype=np.uint64)
    h = mixed(i)
    late = (h >> np.uint64(8)) % np.uint64(JITTER_MS)
    at = (i.astype(np.float64) / max(records, 1) * SPREAD_MS).astype(np.int64)
    return {
        "id": i.astype(np.int64),
        "customer_id": ((h >> np.uint64(20)) % np.uint64(1_000_000)).astype(np.int64),
        "ms": BASE_MS + at + late.astype(np.int64),
        "cents": ((h >> np.uint64(33)) % np.uint64(100_000_000)).astype(np.int64),
        "tail": (h % np.uint64(POOL)).astype(np.int64),
    }


def values(first: int, last: int, records: int, *, iso: bool = False) -> Iterator[bytes]:
    """The JSON of records ``first..last-1`` of ``records``; timestamps as epoch milliseconds, or as ISO text."""
    ends = [json.dumps(t, ensure_ascii=False, separators=(",", ":")).encode()[1:] for t in tails()]
    for start in range(first, last, BLOCK):
        n = numbers(start, min(start + BLOCK, last), records)
        times = n["ms"].tolist()
        if iso:
            texts = np.datetime_as_string(n["ms"].astype("datetime64[ms]"), unit="ms", timezone="UTC").tolist()
            times = [f'"{t}"' for t in texts]
        columns = (n["id"].tolist(), n["customer_id"].tolist(), times, n["cents"].tolist(), n["tail"].tolist())
        for i, customer, ts, cents, tail in zip(*columns, strict=True):
            head = f'{{"id":{i},"customer_id":{customer},"ts":{ts},"amount":{cents // 100}.{cents % 100:02d},'
            yield head.encode() + ends[tail]


def expected(first: int, last: int, records: int) -> pa.Table:
    """Records ``first..last-1`` as rows, with the types of :data:`SCHEMA`."""
    n = numbers(first, last, records)
    pool = pa.Table.from_pylist(
        [dict(t) for t in tails()],
        schema=pa.schema(
            [
                ("status", pa.string()),
                ("country", pa.string()),
                ("address", pa.struct([("street", pa.string()), ("city", pa.string()), ("zip", pa.string())])),
                ("items", pa.list_(pa.struct([("sku", pa.string()), ("qty", pa.int32())]))),
                ("note", pa.string()),
            ]
        ),
    )
    tail = pool.take(pa.array(n["tail"]))
    cents = pa.array(n["cents"]).cast(pa.decimal128(20, 0))
    amount = pc.multiply(cents, pa.scalar(1, pa.decimal128(1, 0))).cast(pa.decimal128(24, 2))
    head = {
        "id": pa.array(n["id"]),
        "customer_id": pa.array(n["customer_id"]),
        "ts": pa.array(n["ms"] * 1000, pa.timestamp("us", "UTC")),
        "amount": pc.divide(amount, pa.scalar(100, pa.decimal128(3, 0))).cast(pa.decimal128(12, 2)),
    }
    return pa.table({**head, **{c: tail[c] for c in tail.column_names}})


def produce(
    bootstrap: str,
    topic: str,
    records: int,
    partitions: int,
    *,
    iso: bool = False,
    hot: float | None = None,
    made: Iterable[bytes] | None = None,
) -> int:
    """Make the topic and fill it; record ``i`` goes to partition ``i % partitions``. Returns the bytes of values.

    :param made: the values, where they are not JSON
    :param hot: so large a share of the records, in their turn, goes to partition 0
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
    )

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    share = 0 if hot is None else round(hot * 1000)
    total = 0
    for i, value in enumerate(values(0, records, records, iso=iso) if made is None else made):
        total += len(value)
        while True:
            try:
                partition = 0 if i * 7919 % 1000 < share else i % partitions
                producer.produce(topic, value, partition=partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.5)
        if i % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise RuntimeError(f"{len(failed)} of {records} orders were not delivered: {failed[:1]}")
    return total
