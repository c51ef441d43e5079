# SPDX-License-Identifier: Apache-2.0
"""What comes and goes in these tests: a catalog in PostgreSQL, a broker, proxies before both, a Hive Metastore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dev.servers.kafka import Broker
from dev.servers.metastore import Metastore
from dev.servers.postgres import Postgres
from dev.servers.server import free_port
from dev.servers.toxiproxy import Proxy, Toxiproxy
from tests.fixtures.kafka import ANSWER_SECONDS, Sender, unique
from tests.outages.runs import FarRuns, FarWorld, Runs
from tests.support.declared import landing_of
from tests.support.world import SCHEMA, World, catalog_in

LOCK_SECONDS = 3
"""After which this metastore takes locks away that nobody renews."""


@pytest.fixture
def make_runs(
    make_world: Callable[..., World], produce: Callable[..., object], postgres: Postgres
) -> Callable[..., Runs]:
    """Runs of a landing whose catalog is one of its own on that server, reached at ``port`` if one is given."""

    def make(port: int | None = None) -> Runs:
        world = make_world(dead_letter_table=None)
        stated = {"uri": postgres.uri(port), "name": f"test-{uuid4().hex[:8]}"}
        return Runs(world=replace(world, catalog={**world.catalog, **stated}), produce=produce)

    return make


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    """One process for all proxies."""
    with Toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as running:
        yield running


@pytest.fixture(scope="session")
def before_postgres(toxiproxy: Toxiproxy, private_postgres: Postgres) -> Proxy:
    """The way to PostgreSQL that can be spoilt."""
    return toxiproxy.before(private_postgres.port)


@pytest.fixture(scope="session")
def far_broker(tmp_path_factory: pytest.TempPathFactory, toxiproxy: Toxiproxy) -> Iterator[tuple[Broker, Proxy]]:
    """A broker with a second listener whose advertised port is a proxy's: who comes by it stays on it. The broker's own
    business, and ours of making topics and load, goes by the first.
    """
    port, second, controller = free_port(), free_port(), free_port()
    proxy = toxiproxy.before(second)
    properties = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},FAR://127.0.0.1:{second},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},FAR://127.0.0.1:{proxy.port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT",
    }
    with Broker(tmp_path_factory.mktemp("far-kafka"), port=port, properties=properties) as running:
        yield running, proxy


@pytest.fixture
def far_runs(far_broker: tuple[Broker, Proxy], tmp_path: Path) -> Iterator[FarRuns]:
    """Runs of a landing that reaches source and control topic by the proxy only."""
    broker, proxy = far_broker
    broker.start()
    admin, topics = AdminClient({"bootstrap.servers": broker.bootstrap}), [unique("source"), unique("control")]
    for made in admin.create_topics([NewTopic(t, 2, 1) for t in topics], operation_timeout=ANSWER_SECONDS).values():
        made.result(ANSWER_SECONDS)
    stated = {"create": SCHEMA, "slice_records": 40, "control_topic": topics[1]}
    landing = landing_of(name="rows", topics=topics[0], table="shop.rows", **stated)
    kafka = {"bootstrap.servers": f"127.0.0.1:{proxy.port}"}
    sender = Sender(broker.bootstrap)
    yield FarRuns(world=FarWorld(landing=landing, kafka=kafka, catalog=catalog_in(tmp_path)), produce=sender.produce)
    sender.close()


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    """One Hive Metastore per pytest process, whose locks do not live long."""
    with Metastore(tmp_path_factory.mktemp("metastore") / "hive", lock_seconds=LOCK_SECONDS) as running:
        yield running
