# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of two workers of one core, whose Python workers stand before a gate."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import Backlog
from tests.fixtures.kafka import Sender, create_topic
from tests.support.cluster_gate import ClusterGate
from tests.support.doc_play import script
from tests.support.doc_texts import ROOT


@pytest.fixture(scope="session")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StandaloneCluster, ClusterGate]]:
    folder = tmp_path_factory.mktemp("cluster")
    gate = ClusterGate(folder / "gate")
    path = {"PYTHONPATH": str(gate.folder), "PATH": os.defpath}
    with StandaloneCluster(folder / "spark", variables=path) as cluster:
        yield cluster, gate


@pytest.fixture
def cluster(started_cluster: tuple[StandaloneCluster, ClusterGate]) -> Iterator[StandaloneCluster]:
    """With all parts. What a test ended is started at its end: in the next test, it would be a process left behind."""
    yield started_cluster[0]
    started_cluster[0].start()


@pytest.fixture
def gate(started_cluster: tuple[StandaloneCluster, ClusterGate]) -> Iterator[ClusterGate]:
    """Shut."""
    started_cluster[1].shut()
    yield started_cluster[1]
    started_cluster[1].open()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the page about clusters, made by the commands that the page shows."""
    folder = tmp_path_factory.mktemp("archive")
    places = {
        "/usr/bin/python3.11": getattr(sys, "_base_executable", sys.executable),
        "/shared/lakecommit.tar.gz": str(folder / "lakecommit.tar.gz"),
        "constraints.txt": str(ROOT / "constraints.txt"),
        "executors.txt": str(ROOT / "docs" / "examples" / "executors.txt"),
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = [line.text for line in script(ROOT / "docs" / "guides" / "spark.rst") if line.kind == "command"]
    made = [shlex.split(each) for each in commands if each.startswith(("uv ", "tar "))]
    assert len(made) == 3
    for command in made:
        words = [places.get(word, word) for word in command]
        subprocess.run(words, cwd=folder, env={**os.environ, "PATH": path}, check=True, timeout=600)
    return folder / "lakecommit.tar.gz"


@pytest.fixture(scope="session")
def archive_conf(archive: Path) -> dict[str, str]:
    """The settings with which Spark uses the archive."""
    return {"spark.archives": f"{archive}#environment", "spark.pyspark.python": "./environment/bin/python"}


@pytest.fixture
def make_backlog(bootstrap: str, tmp_path: Path) -> Callable[..., Backlog]:
    """`make_backlog(spark) -> Backlog`: a topic with orders that nobody has landed, and its spec."""

    def make(spark: dict[str, object]) -> Backlog:
        topic = f"orders-{uuid4().hex[:8]}"
        create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 1)
        return Backlog.of(tmp_path, topic, bootstrap, Sender(bootstrap), spark)

    return make
