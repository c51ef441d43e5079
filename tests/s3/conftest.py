# SPDX-License-Identifier: Apache-2.0
"""A real S3 server per pytest process, a proxy before it, and a landing's table behind that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.iceberg.file_io import with_light_io
from dev.servers.s3 import BUCKET, S3Server
from tests.fakes.replaced_lake import RowsLake, lake_at
from tests.s3.proxy import FaultyProxy


@pytest.fixture(scope="session")
def private_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def server(private_server: S3Server) -> S3Server:
    """It runs, whatever the test before did to it."""
    return private_server.start()


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.port) as running:
        yield running


@pytest.fixture
def storage(server: S3Server, proxy: FaultyProxy) -> dict[str, str]:
    """Storage properties through the proxy, with a warehouse of this test, as a catalog's client has them."""
    return with_light_io({**server.properties_at(proxy.port), "warehouse": f"s3://{BUCKET}/{uuid4().hex[:8]}"})


@pytest.fixture
def lake(tmp_path: Path, server: S3Server, storage: dict[str, str]) -> RowsLake:
    made = lake_at(tmp_path, storage=storage, disk=(f"s3://{BUCKET}/", f"{server.bucket}/"))
    made.join()
    return made
