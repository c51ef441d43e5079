# SPDX-License-Identifier: Apache-2.0
"""Something to land for the example Dags of the local stack: their topics with some records, and the tables that they
expect to be there.

Contract: what is there stays as it is; a topic is filled once, when it is made. Some records of each topic cannot be
rows, so that dead-letter tables have something to show.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyiceberg.catalog import load_catalog

ANSWER_SECONDS = 60.0
RECORDS = 5_000
PARTITIONS = 4
BAD_EVERY = 1_000
LOG_LEVEL = 3
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
ID = pa.field("id", pa.int64(), nullable=False)
TEXT = pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The topics of an example, how its records are made, and its table where the example does not make it itself."""

    topics: tuple[str, ...]
    record: Callable[[int], dict[str, Any]]
    table: str | None = None
    fields: tuple[pa.Field, ...] = ()


def _order(n: int) -> dict[str, Any]:
    return {"id": n, "customer": f"customer {n % 97}", "amount": f"{n % 500}.{n % 100:02d}", "ordered_at": _time(n)}


def _click(n: int) -> dict[str, Any]:
    return {"id": n, "page": f"/products/{n % 211}", "clicked_at": _time(n)}


def _payment(n: int) -> dict[str, Any]:
    return {"id": n, "amount": f"{n % 900}.{n % 100:02d}", "paid_at": int((FIRST.timestamp() + n) * 1000)}


def _named(n: int) -> dict[str, Any]:
    return {"id": n, "name": f"name {n}"}


def _time(n: int) -> str:
    return (FIRST + timedelta(seconds=n)).isoformat()


AMOUNT = pa.field("amount", pa.decimal128(12, 2))
EXAMPLES = (
    Example(
        topics=("orders",),
        record=_order,
        table="shop.orders",
        fields=(ID, pa.field("customer", TEXT), AMOUNT, pa.field("ordered_at", pa.timestamp("us", "UTC"))),
    ),
    Example(
        topics=("clicks",),
        record=_click,
        table="web.clicks",
        fields=(ID, pa.field("page", TEXT), pa.field("clicked_at", pa.timestamp("us", "UTC"))),
    ),
    Example(
        topics=("payments-eu", "payments-us"),
        record=_payment,
        table="shop.payments",
        fields=(ID, AMOUNT, pa.field("paid_at", pa.timestamp("us", "UTC"))),
    ),
    Example(topics=("brands",), record=_named),
    Example(topics=("customers",), record=_named),
    Example(topics=("stores",), record=_named),
)


def fill(bootstrap: str, catalog: Mapping[str, str], tell: Callable[[str], None]) -> None:
    """Make what is missing."""
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL}
    admin = AdminClient(settings)
    known = admin.list_topics(timeout=ANSWER_SECONDS).topics
    missing = [(topic, e.record) for e in EXAMPLES for topic in e.topics if topic not in known]
    if missing:
        tell(f"filling the topics {', '.join(topic for topic, _ in missing)}")
        made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic, _ in missing])
        for each in made.values():
            each.result(ANSWER_SECONDS)
        producer = Producer({**settings, "linger.ms": 20})
        for topic, record in missing:
            for n, value in enumerate(_values(record)):
                producer.produce(topic, value, str(n))
            producer.flush(ANSWER_SECONDS)
    opened = load_catalog(**catalog)
    for example in EXAMPLES:
        if example.table is not None and not opened.table_exists(example.table):
            opened.create_namespace_if_not_exists(example.table.partition(".")[0])
            opened.create_table(example.table, pa.schema(list(example.fields)))
    opened.close()


def _values(record: Callable[[int], dict[str, Any]]) -> Iterator[bytes]:
    for n in range(RECORDS):
        yield b"no json" if n % BAD_EVERY == BAD_EVERY - 1 else json.dumps(record(n)).encode()
