# SPDX-License-Identifier: Apache-2.0
"""Tables stay equal to those of a PostgreSQL database, through Debezium's own connector, whoever is killed on the way.

The connector has the configuration of the documentation (``docs/examples/debezium_postgres.json``).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.types import DecimalType, NestedField, TimestamptzType

from dev.servers.connect import ConnectServer
from dev.servers.engine import Engine
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from dev.servers.postgres import Postgres
from tests.support.cli import LAND_SECONDS, Running, run
from tests.support.doc_sql import duck
from tests.support.waiting import until
from tests.worker.source_database import CUSTOMERS, ORDER_LINES, SourceDatabase, SourceTable, Writer

pytestmark = [pytest.mark.debezium, pytest.mark.engine, pytest.mark.timeout(7200)]

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ROWS = 5_000
LOGICAL = {"wal_level": "logical"}
WORKER = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1500",
    # A worker that was killed leaves its connector to the next one at once, not after five minutes.
    "scheduled.rebalance.max.delay.ms": "0",
    "plugin.discovery": "service_load",
}
SPARK_EVERY = 10
"""Stops between two comparisons by Spark, which are slow."""

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


@pytest.fixture
def source_postgres() -> Iterator[Postgres]:
    """A server whose changes can be read, in a folder where its user may go."""
    folder = Path(tempfile.mkdtemp(prefix="lakecommit-debezium-"))
    try:
        with Postgres(folder, settings=LOGICAL) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def worker(broker: Broker, tmp_path: Path) -> Iterator[ConnectWorker]:
    directory = tmp_path / "worker"
    with ConnectWorker(
        directory, broker.bootstrap, flush=1.0, heap="512m", plugins=["debezium"], properties=WORKER
    ) as running:
        yield running


@dataclass(kw_only=True)
class Copies:
    """The landed tables of a database: their specs, their processes, and what each reader sees in them."""

    source: SourceDatabase
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
        assert is_alive, running.said[-20:]

    def land(self, name: str) -> None:
        """Land all that is in the topic."""
        answer = run("land", str(self.specs[name]), "--json", timeout=LAND_SECONDS)
        assert answer.code == 0, answer.err
        assert sum(line.get("rejected", 0) for line in answer.lines) == 0, answer.out

    def check(self, table: SourceTable, *, spark: bool) -> None:
        """Compare all rows and columns with the source, by each reader."""
        loaded = load_catalog(**self.catalog).load_table(f"shop.{table.name}")
        fields = [f for f in loaded.schema().fields if f.name in self.source.columns(table)]
        assert [f.name for f in fields] == list(self.source.columns(table))
        expected = by_key(table, self.source.content(table))
        names = [f.name for f in fields]
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
        dead = load_catalog(**self.catalog).load_table(f"shop.{table.name}_dead").scan().to_arrow()
        assert dead.num_rows == 0, dead.to_pylist()[:3]
        verified = run("verify", str(self.specs[table.name]), "--keys", "--json")
        assert verified.code == 0, verified.out

    def close(self) -> None:
        for name in [*self.running]:
            self.kill(name)


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
            return str((value - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution))
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
    assert not (missing or extra or other), f"{reader}: {counts}: {missing[:2]} {extra[:2]} {other[:2]}"


def connector(postgres: Postgres, prefix: str) -> dict[str, str]:
    """The documented configuration, for this database."""
    stated: dict[str, str] = json.loads((EXAMPLES / "debezium_postgres.json").read_text())
    return {
        **stated,
        "database.port": str(postgres.port),
        "database.user": "lakecommit",
        "database.dbname": "postgres",
        "topic.prefix": prefix,
    }


@pytest.fixture
def copies(
    source_postgres: Postgres,
    worker: ConnectWorker,
    broker: Broker,
    admin: AdminClient,
    connect_server: ConnectServer,
    engine: Engine,
    tmp_path: Path,
) -> Iterator[Copies]:
    """A database whose connector has begun, and the landings of its tables."""
    prefix = f"shop-{uuid4().hex[:6]}"
    source = SourceDatabase(source_postgres, ROWS)
    worker.create("shop", connector(source_postgres, prefix))
    catalog = {
        "name": f"lake_{uuid4().hex[:8]}",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
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
            "kafka": {"bootstrap.servers": broker.bootstrap},
            "catalog": catalog,
            "spark": {"remote": connect_server.url},
        }
        specs[name] = tmp_path / f"{name}.yaml"
        specs[name].write_text(yaml.safe_dump(spec))
    topics = {f"{prefix}.public.{name}" for name in TABLES}
    until(lambda: topics <= admin.list_topics(timeout=30).topics.keys(), what="the topics of the tables", look=0.2)
    made = Copies(source=source, specs=specs, catalog=catalog, engine=engine, folder=tmp_path)
    yield made
    made.close()


def catch_up(worker: ConnectWorker, source: SourceDatabase) -> None:
    """Wait until the connector has written all changes to Kafka, by the offsets that it has stored."""
    position = source.position()

    def is_done() -> bool:
        worker.check("shop")
        stored = (worker.ask("GET", "/connectors/shop/offsets") or {}).get("offsets", ())
        return any(each["offset"].get("lsn_commit", -1) >= position for each in stored)

    until(is_done, timeout=180, what="the connector to catch up", look=0.5)


@pytest.mark.parametrize("stops", [8, pytest.param(50, marks=pytest.mark.campaign)])
def test_tables_equal_those_of_the_source(copies: Copies, worker: ConnectWorker, stops: int) -> None:
    """Random processes are killed at random moments while rows change; after each stop all rows are compared."""
    chance, source = random.Random(stops), copies.source
    columns = {stops // 3: (CUSTOMERS, "tier", "text"), 2 * stops // 3: (ORDER_LINES, "points", "bigint")}
    with Writer(source, chance.randrange(10**9)):
        catch_up(worker, source)
    for stop in range(stops):
        with Writer(source, chance.randrange(10**9)) as writer:
            copies.follow()
            copies.wait_for_windows()
            victims = chance.sample(["worker", *copies.specs], chance.randint(1, 3))
            for victim in victims:
                time.sleep(chance.uniform(0.0, 4.0))
                worker.kill() if victim == "worker" else copies.kill(victim)
            if stop in columns:
                source.add_column(*columns[stop])
            copies.follow()
            worker.start()
            time.sleep(chance.uniform(0.0, 4.0))
        catch_up(worker, source)
        for name in copies.specs:
            copies.kill(name)
            copies.land(name)
        for table in (CUSTOMERS, ORDER_LINES):
            copies.check(table, spark=stop % SPARK_EVERY == 0 or stop == stops - 1)
        print(f"stop {stop}: {writer.transactions} transactions, killed {', '.join(victims)}", flush=True)
