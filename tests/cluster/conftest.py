# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of two workers of one core, whose Python workers stand before a gate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import Backlog
from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import run
from tests.support.cluster_gate import ClusterGate


@pytest.fixture(scope="session")
def whole_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneCluster, ClusterGate]]:
    folder = tmp_path_factory.mktemp("cluster")
    gate = ClusterGate(folder / "gate")
    path = {"PYTHONPATH": str(gate.folder), "PATH": os.defpath}
    with StandaloneCluster(folder / "spark", variables=path) as cluster:
        yield cluster, gate


@pytest.fixture
def cluster(whole_cluster: tuple[StandaloneCluster, ClusterGate]) -> StandaloneCluster:
    """With all workers, whatever became of them before."""
    return whole_cluster[0].start()


@pytest.fixture
def gate(whole_cluster: tuple[StandaloneCluster, ClusterGate]) -> Iterator[ClusterGate]:
    """Shut."""
    whole_cluster[1].shut()
    yield whole_cluster[1]
    whole_cluster[1].open()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `lakecommit env pack` makes of this environment."""
    file = tmp_path_factory.mktemp("archive") / "environment.tar.gz"
    answer = run("env", "pack", "-o", str(file), "--json")
    assert answer.code == 0, answer.err
    assert answer.value["file"] == str(file)
    return file


@pytest.fixture
def make_backlog(bootstrap: str, tmp_path: Path) -> Callable[..., Backlog]:
    """`make_backlog(spark) -> Backlog`: a topic with orders that nobody has landed, and its spec."""

    def make(spark: dict[str, object]) -> Backlog:
        topic = f"orders-{uuid4().hex[:8]}"
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 1)
        return Backlog.of(tmp_path, topic, bootstrap, Sender(bootstrap), spark)

    return make
