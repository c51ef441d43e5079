# SPDX-License-Identifier: Apache-2.0
"""A real REST catalog server per pytest process, a gateway before it, and runs of a landing through that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from dev.servers.rest_catalog import RestCatalogServer
from tests.outages.runs import Runs
from tests.rest.gateway import Gateway
from tests.support.world import World


@pytest.fixture(scope="session")
def private_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(tmp_path_factory.mktemp("rest-catalog")) as running:
        yield running


@pytest.fixture
def server(private_server: RestCatalogServer) -> RestCatalogServer:
    """It runs, whatever the test before did to it."""
    return private_server.start()


@pytest.fixture
def gateway(server: RestCatalogServer) -> Iterator[Gateway]:
    with Gateway(server.port) as running:
        yield running


@pytest.fixture
def make_rest_world(
    make_world: Callable[..., World], server: RestCatalogServer, gateway: Gateway
) -> Callable[..., World]:
    """A landing into a table of its own, in a namespace below a namespace."""

    def make(**fields: object) -> World:
        stated = {"table": f"shop.eu_{uuid4().hex[:8]}.rows", "dead_letter_table": None, **fields}
        return replace(make_world(**stated), catalog=server.properties_at(gateway.port))

    return make


@pytest.fixture
def runs(make_rest_world: Callable[..., World], produce: Callable[..., object]) -> Runs:
    """Scheduled runs of one."""
    return Runs(world=make_rest_world(), produce=produce)
