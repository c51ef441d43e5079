# SPDX-License-Identifier: Apache-2.0
"""Tables stay equal to those of a PostgreSQL database, through Debezium's own connector, whoever is killed."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from dev.servers.connect import ConnectServer
from dev.servers.engine import Engine
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from dev.servers.postgres import Postgres
from tests.support.waiting import until
from tests.worker.copies import COLLECTIONS, CONNECTOR, Copies, connector_of, specs_of
from tests.worker.source_database import CUSTOMERS, EXAMPLES, ORDER_LINES, SourceDatabase, Writer

pytestmark = [pytest.mark.debezium, pytest.mark.engine, pytest.mark.timeout(7200)]

Make = Callable[..., Copies]
ROWS = 5_000
LOGICAL = {"wal_level": "logical"}
WORKER = {
    "plugin.discovery": "service_load",
    # The next worker takes over the connector of one that was killed at once, not after five minutes.
    "scheduled.rebalance.max.delay.ms": "0",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1500",
}
SPARK_EVERY = 10
"""Stops between two comparisons by Spark, which are slow."""
KILLS = 3


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
    folder, plugins = tmp_path / "worker", ["debezium"]
    with ConnectWorker(folder, broker.bootstrap, flush=1.0, heap="512m", plugins=plugins, properties=WORKER) as running:
        yield running


@pytest.fixture
def make_copies(
    source_postgres: Postgres,
    worker: ConnectWorker,
    broker: Broker,
    admin: AdminClient,
    connect_server: ConnectServer,
    engine: Engine,
    tmp_path: Path,
) -> Iterator[Make]:
    """`make_copies(**settings)`: a database whose connector has begun, and landings of its tables."""
    made = list[Copies]()

    def make(settings: dict[str, str] | None = None) -> Copies:
        prefix = f"shop-{uuid4().hex[:6]}"
        uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
        catalog = {"name": f"lake_{uuid4().hex[:8]}", "type": "sql", "uri": uri, "warehouse": warehouse}
        specs = specs_of(tmp_path, prefix, broker.bootstrap, catalog, connect_server.url)
        source = SourceDatabase(source_postgres, ROWS)
        worker.create(CONNECTOR, connector_of(source_postgres, prefix, settings or {}))
        made.append(
            Copies(
                source=source,
                worker=worker,
                admin=admin,
                prefix=prefix,
                specs=specs,
                catalog=catalog,
                engine=engine,
                folder=tmp_path,
            )
        )
        return made[-1]

    yield make
    for copies in made:
        copies.close()


@pytest.mark.parametrize("stops", [8, pytest.param(50, marks=pytest.mark.campaign)])
def test_tables_equal_those_of_the_source(make_copies: Make, worker: ConnectWorker, stops: int) -> None:
    """Random processes are killed at random moments while rows change; after each stop all rows are compared."""
    chance, copies = random.Random(stops), make_copies()
    source = copies.source
    columns = {stops // 3: (CUSTOMERS, "tier", "text"), 2 * stops // 3: (ORDER_LINES, "points", "bigint")}
    with Writer(source, chance.randrange(10**9)):
        # What a kill in the initial snapshot does is shown below.
        copies.catch_up()
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
        copies.catch_up()
        for name in copies.specs:
            copies.kill(name)
            copies.land(name)
        for table in (CUSTOMERS, ORDER_LINES):
            copies.check(table, spark=stop % SPARK_EVERY == 0 or stop == stops - 1)
        print(f"stop {stop}: {writer.transactions} transactions, killed {', '.join(victims)}", flush=True)


def test_rows_that_were_deleted_between_two_initial_snapshots(
    make_copies: Make, worker: ConnectWorker, engine: Engine
) -> None:
    """A snapshot that was killed begins anew, and nothing reports what was deleted in between: the guide's DELETE."""
    copies = make_copies()
    source = copies.source
    until(lambda: bool(source.query("SELECT FROM pg_replication_slots")), what="the connector's slot")
    with source.locked(ORDER_LINES):
        copies.wait_for_records(1_000, CUSTOMERS)
        worker.kill()
    deleted = {key for (key,) in source.query("DELETE FROM customers WHERE mod(id, 3) = 0 RETURNING id")}
    worker.start()
    copies.catch_up()
    copies.land(CUSTOMERS.name)
    left = {key for (key,) in source.query("SELECT id FROM customers")}
    landed = copies.table(CUSTOMERS.name).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    stale = set(landed) - left
    assert stale
    assert stale <= deleted

    statement = (EXAMPLES / "delete_stale_rows.sql").read_text().rstrip().removesuffix(";")
    engine.sql(copies.catalog, statement.replace("shop.customers", "lake.shop.customers"))
    copies.check(CUSTOMERS, spark=True)
    with Writer(source, 1) as writer:
        until(lambda: writer.transactions > 100, what="changes")
    copies.catch_up()
    for table in (CUSTOMERS, ORDER_LINES):
        copies.land(table.name)
        copies.check(table, spark=True)


def test_an_incremental_snapshot_that_is_killed_goes_on(make_copies: Make, worker: ConnectWorker) -> None:
    """Deletes are reported from the start, so no row stays."""
    settings = json.loads((EXAMPLES / "debezium_incremental.json").read_text())
    copies = make_copies({**settings, "incremental.snapshot.chunk.size": "20"})
    both = (CUSTOMERS, ORDER_LINES)
    copies.catch_up()
    copies.source.execute((EXAMPLES / "debezium_snapshot.sql").read_text())
    with Writer(copies.source, 1):
        for _ in range(KILLS):
            copies.wait_for_records(
                copies.records(CUSTOMERS) + copies.records(ORDER_LINES) + 500, CUSTOMERS, ORDER_LINES
            )
            assert COLLECTIONS in copies.stored(), "the snapshot was over before the kill"
            worker.kill()
            worker.start()
    copies.catch_up()
    for table in both:
        copies.land(table.name)
        copies.check(table, spark=True)
