# SPDX-License-Identifier: Apache-2.0
"""A landing of a topic in memory, and its table as independent readers see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension

from tests.fakes.broker import MemoryBroker
from tests.fakes.plugged import plugged_in
from tests.support.declared import landing_of
from tests.support.upserts import plain
from tests.support.world import World, catalog_in

__all__ = ["TOPIC", "MemoryWorld", "memory_world"]

TOPIC = "changes"


@dataclass(kw_only=True)
class MemoryWorld(World):
    """A world whose topics are in a broker in memory."""

    broker: MemoryBroker

    def send(self, *records: tuple[Any, ...], partition: int = 0) -> None:
        """Produce keys and values, and land them."""
        self.broker.produce(TOPIC, records, partition)
        self.settle()

    def found(self, *names: str) -> list[tuple[Any, ...]]:
        """Return the rows of the table, which DuckDB and pyiceberg see alike, ordered by their text."""
        with self.session() as session:
            table = session.tables.load(self.landing.table)
        ours = [tuple(row[n] for n in names) for row in table.scan(selected_fields=names).to_arrow().to_pylist()]
        with duckdb.connect() as database:
            for name in ("avro", "iceberg"):
                import_extension(name, con=database)
                database.load_extension(name)
            sql = f"SELECT {', '.join(names)} FROM iceberg_scan('{table.metadata_location}')"
            duck = database.execute(sql).fetchall()
        assert sorted(map(plain, duck)) == sorted(map(plain, ours))
        return sorted(ours, key=plain)

    def dead(self) -> list[tuple[int, int, str]]:
        """Return partition, offset and kind of the dead letters."""
        return sorted((r["partition"], r["offset"], r["kind"]) for r in self.rows(self.landing.dead_letter_table))


@contextmanager
def memory_world(
    folder: Path, partitions: int = 1, kafka: Mapping[str, Any] | None = None, **options: Any
) -> Iterator[MemoryWorld]:
    """A landing with these options of a topic in memory.

    :param kafka: further settings of its connection
    """
    broker = MemoryBroker()
    broker.create(TOPIC, partitions)
    stated = {"name": "rows", "topics": TOPIC, "table": "shop.rows", "dead_letter_table": "shop.dead"}
    stated |= {"control_topic": "control", "dead_letter_max_ratio": 1.0, "compact": False}
    with plugged_in(broker):
        yield MemoryWorld(
            landing=landing_of(**{**stated, **options}),
            kafka={"bootstrap.servers": "127.0.0.1:1", **(kafka or {})},
            catalog=catalog_in(folder),
            broker=broker,
        )
