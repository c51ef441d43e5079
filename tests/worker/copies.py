# SPDX-License-Identifier: Apache-2.0
"""Landings that keep tables equal to those of a PostgreSQL database through Debezium, and readers that compare the two.

The connector has the configuration of the documentation (``docs/examples/debezium_postgres.json``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, NestedField, TimestamptzType

from dev.servers.engine import Engine
from dev.servers.kafka_connect import ConnectWorker
from dev.servers.postgres import USER, Postgres
from tests.support.cli import LAND_SECONDS, Running, run
from tests.support.doc_sql import duck
from tests.support.waiting import until
from tests.worker.source_database import CUSTOMERS, EXAMPLES, ORDER_LINES, SourceDatabase, SourceTable

__all__ = ["COLLECTIONS", "CONNECTOR", "Copies", "connector_of", "specs_of"]

CONNECTOR = "shop"
COLLECTIONS = "incremental_snapshot_collections"
"""In a stored offset as long as there are tables of an incremental snapshot to read."""

TABLES: Mapping[str, dict[str, Any]] = {
    CUSTOMERS.name: {
        "transform": {"unwrap": {"envelope": "debezium", "columns": {"_lsn": "source.lsn"}}},
        "upsert": {"key": ["id"], "order_by": ["_lsn", "offset"], "deletes": "hard"},
        "format": {"encodings": {"credit": "base64"}},
        "create": {
            "schema": [
                {"name": "id", "type": "long", "required": True},
                {"name": "name", "type": "string"},
                {"name": "credit", "type": "decimal(12, 2)"},
                {"name": "opened_at", "type": "timestamptz"},
                {"name": "is_active", "type": "boolean"},
                {"name": "note", "type": "string"},
                {"name": "attributes", "type": "string"},
                {"name": "reference", "type": "uuid"},
                {"name": "_op", "type": "string"},
                {"name": "_lsn", "type": "long"},
            ],
            "partition_by": ["bucket(4, id)"],
        },
    },
    ORDER_LINES.name: {
        "transform": {"unwrap": "debezium"},
        "upsert": {"key": ["order_id", "line_no"], "deletes": "hard"},
        "format": {"encodings": {"price": "base64"}},
        "create": {
            "schema": [
                {"name": "order_id", "type": "long", "required": True},
                {"name": "line_no", "type": "int", "required": True},
                {"name": "product", "type": "string"},
                {"name": "price", "type": "decimal(12, 2)"},
                {"name": "sent_at", "type": "timestamptz"},
                {"name": "is_gift", "type": "boolean"},
            ]
        },
    },
}


@dataclass(kw_only=True)
class Copies:
    """The landed tables of a database: connector, topics, specs, processes, and what each reader sees in the tables."""

    source: SourceDatabase
    worker: ConnectWorker
    admin: AdminClient
    prefix: str
    specs: Mapping[str, Path]
    catalog: dict[str, str]
    engine: Engine
    folder: Path
    running: dict[str, Running] = field(default_factory=dict)

    def follow(self) -> None:
        """Start the landings that do not run."""
        for name, spec in self.specs.items():
            if name not in self.running:
                self.running[name] = Running.land(spec, ["--follow", "--window-age", "1s"])

    def wait_for_windows(self) -> None:
        """Until each of them has planned one."""
        for running in self.running.values():
            running.wait_for("cycle 0 (")

    def kill(self, name: str) -> None:
        """SIGKILL; none of them may have ended by itself."""
        running = self.running.pop(name)
        is_alive = running.process.poll() is None
        running.close()
        assert is_alive, running.printed[-20:]

    def land(self, name: str) -> None:
        """Land all that is in the topic."""
        answer = run("land", str(self.specs[name]), "--json", timeout=LAND_SECONDS)
        assert answer.code == 0, answer.err

    # -- the connector ------------------------------------------------------------------------------------------------

    def stored(self) -> Mapping[str, Any]:
        """The offset that the connector has stored last; empty where it has not yet stored one."""
        answer = self.worker.ask("GET", f"/connectors/{CONNECTOR}/offsets") or {}
        return next((each["offset"] for each in answer.get("offsets", ())), {})

    def catch_up(self) -> None:
        """Wait until the connector has written all changes to Kafka."""
        position = self.source.position()

        def is_done() -> bool:
            self.worker.check(CONNECTOR)
            stored = self.stored()
            return (stored.get("lsn_commit") or -1) >= position and COLLECTIONS not in stored

        until(is_done, what="the connector to catch up", pause=0.5)

    def wait_for_records(self, number: int, *tables: SourceTable) -> None:
        """Wait until the topics of tables have so many records."""
        until(lambda: sum(map(self.records, tables)) >= number, 120, what=f"{number} records")

    def records(self, table: SourceTable) -> int:
        """Count the records of a topic; none if the broker does not know it well yet."""
        topic = f"{self.prefix}.public.{table.name}"
        known = self.admin.list_topics(timeout=30).topics
        places = [TopicPartition(topic, n) for n in known[topic].partitions] if topic in known else []
        ends = self.admin.list_offsets({place: OffsetSpec.latest() for place in places}) if places else {}
        try:
            return sum(end.result(30).offset for end in ends.values())
        except KafkaException:
            return 0

    # -- the readers --------------------------------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        return load_catalog(**self.catalog).load_table(f"shop.{name}")

    def check(self, table: SourceTable, *, spark: bool) -> None:
        """Compare all rows and columns with the source, by each reader."""
        loaded = self.table(table.name)
        fields = [f for f in loaded.schema().fields if f.name in self.source.columns(table)]
        names = [f.name for f in fields]
        assert names == list(self.source.columns(table))
        expected = by_key(table, self.source.content(table))
        assert expected
        rows = loaded.scan(selected_fields=tuple(names)).to_arrow().to_pylist()
        check_equal("pyiceberg", expected, by_key(table, [tuple(row[n] for n in names) for row in rows]))
        with duck(self.folder / "extensions") as engine:
            engine.execute("LOAD iceberg")
            scan = f"SELECT {', '.join(names)} FROM iceberg_scan('{loaded.metadata_location}')"
            check_equal("DuckDB", expected, by_key(table, engine.execute(scan).fetchall()))
        if spark:
            stated = ", ".join(map(in_spark, fields))
            rows = self.engine.sql(self.catalog, f"SELECT {stated} FROM lake.shop.{table.name}")
            check_equal("Spark", expected, by_key(table, [tuple(row[n] for n in names) for row in rows]))
        dead = self.table(f"{table.name}_dead").scan().to_arrow()
        assert dead.num_rows == 0, dead.to_pylist()[:3]
        verified = run("verify", str(self.specs[table.name]), "--keys", "--json")
        assert verified.code == 0, verified.out

    def close(self) -> None:
        for running in self.running.values():
            running.close()


def connector_of(postgres: Postgres, prefix: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the documented configuration, for this database.

    :param settings: that win over the documented ones
    """
    stated: dict[str, str] = json.loads((EXAMPLES / "debezium_postgres.json").read_text())
    place = {"database.port": str(postgres.port), "database.user": USER, "database.dbname": "postgres"}
    return {**stated, **place, "topic.prefix": prefix, **settings}


def specs_of(folder: Path, prefix: str, bootstrap: str, catalog: Mapping[str, str], spark: str) -> dict[str, Path]:
    """Write the specs of the landings, by table."""
    specs = {}
    for name, options in TABLES.items():
        spec = {
            "name": name,
            "topics": f"{prefix}.public.{name}",
            "table": f"shop.{name}",
            "dead_letter_table": f"shop.{name}_dead",
            "evolve": "add",
            **options,
            "connections": {"control_topic": f"{prefix}-control"},
            "kafka": {"bootstrap.servers": bootstrap},
            "catalog": dict(catalog),
            "spark": {"remote": spark},
        }
        specs[name] = folder / f"{name}.yaml"
        specs[name].write_text(yaml.safe_dump(spec))
    return specs


def in_spark(column: NestedField) -> str:
    match column.field_type:
        case TimestamptzType():
            return f"unix_micros({column.name}) AS {column.name}"
        case DecimalType():
            return f"CAST({column.name} AS string) AS {column.name}"
    return column.name


def text(value: Any) -> str | None:
    """Return a value as text, the same for each reader."""
    match value:
        case None:
            return None
        case datetime():
            return str((value - datetime(1970, 1, 1, tzinfo=UTC)) // datetime.resolution)
        case Decimal():
            return f"{value:.2f}"
    return str(value)


def by_key(table: SourceTable, rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found = {row[: len(table.key)]: tuple(map(text, row)) for row in rows}
    assert len(found) == len(rows), f"{len(rows) - len(found)} keys are there twice"
    return found


def check_equal(reader: str, expected: Mapping[Any, Any], found: Mapping[Any, Any]) -> None:
    missing = [expected[k] for k in expected.keys() - found.keys()]
    extra = [found[k] for k in found.keys() - expected.keys()]
    other = [(expected[k], found[k]) for k in expected.keys() & found.keys() if expected[k] != found[k]]
    counts = f"{len(missing)} rows are missing, {len(extra)} should not be there, {len(other)} differ"
    if missing or extra or other:
        raise AssertionError(f"{reader}: {counts}: {missing[:2]} {extra[:2]} {other[:2]}")
