# SPDX-License-Identifier: Apache-2.0
"""`make test-all`: the tests of `make test`, those that this machine can run besides, and a list of what was not run.

A kind of test that needs more than a checkout has a marker and one entry in :data:`NEEDS`: what it needs, how to see
that it is there, and what to do. Nothing is skipped in silence: a kind that cannot run is deselected and listed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from dev import jars
from dev.jars import JarsError
from dev.java import JavaMissingError
from dev.servers import engine, metastore, postgres, rest_catalog, s3, schema_registry, toxiproxy
from dev.servers.engine import EngineError
from dev.servers.metastore import MetastoreError
from dev.servers.rest_catalog import RestCatalogError
from dev.servers.s3 import S3ServerError
from dev.servers.toxiproxy import ToxiproxyError


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the tests of one marker need beyond a checkout."""

    marker: str
    what: str
    is_met: Callable[[], bool]
    remedy: str


def _first_of(*programs: str) -> bool:
    return any(shutil.which(program) for program in programs)


BRINGING_FAILED = (
    EngineError,
    JarsError,
    JavaMissingError,
    MetastoreError,
    RestCatalogError,
    S3ServerError,
    ToxiproxyError,
)


def _is_brought(ready: Callable[[], object]) -> bool:
    """Brought here if it can be."""
    try:
        ready()
    except BRINGING_FAILED as error:
        print(error, file=sys.stderr)
        return False
    return True


NEEDS = (
    Need(
        marker="postgres",
        what="the programs of a PostgreSQL server, of which the tests start one of their own",
        is_met=lambda: postgres.programs() is not None,
        remedy=postgres.REMEDY,
    ),
    Need(
        marker="toxiproxy",
        what="Toxiproxy, which is built by Go, and PostgreSQL",
        is_met=lambda: _is_brought(toxiproxy.ready) and postgres.programs() is not None,
        remedy="look at what `python -m dev.servers.toxiproxy` says",
    ),
    Need(
        marker="metastore",
        what="a Hive Metastore (some 90 MB from Maven Central)",
        is_met=lambda: _is_brought(metastore.ready),
        remedy="look at what `python -m dev.servers.metastore` says",
    ),
    Need(
        marker="rest",
        what="an Iceberg REST catalog server (some 80 MB from Maven Central)",
        is_met=lambda: _is_brought(rest_catalog.ready),
        remedy="look at what `python -m dev.servers.rest_catalog` says",
    ),
    Need(
        marker="s3",
        what="an S3 server, which Go builds (some 250 MB from the Go module proxy)",
        is_met=lambda: _is_brought(s3.ready),
        remedy="see the output of `python -m dev.servers.s3`",
    ),
    Need(
        marker="registry",
        what="a schema registry (some 110 MB from Maven Central)",
        is_met=lambda: _is_brought(schema_registry.ready),
        remedy="look at what `python -m dev.servers.schema_registry` says",
    ),
    Need(
        marker="worker",
        what="a Kafka Connect worker with the Iceberg sink (some 140 MB from Maven Central)",
        is_met=lambda: _is_brought(lambda: jars.fetch("worker", "sink")),
        remedy="look at what `python -m dev.jars worker sink` says",
    ),
    Need(
        marker="debezium",
        what="a Kafka Connect worker with Debezium's connector (some 45 MB from Maven Central), and PostgreSQL",
        is_met=lambda: _is_brought(lambda: jars.fetch("worker", "debezium")) and postgres.programs() is not None,
        remedy=f"see the output of `python -m dev.jars worker debezium`, and {postgres.REMEDY}",
    ),
    Need(
        marker="engine",
        what="Spark 4.1 with Iceberg's runtime (some 460 MB from the package index and Maven Central)",
        is_met=lambda: _is_brought(engine.ready),
        remedy="look at what `python -m dev.servers.engine` says",
    ),
    Need(
        marker="ui",
        what="a browser",
        is_met=lambda: _first_of("chromium", "chromium-browser", "google-chrome"),
        remedy="install Chromium (Debian or Ubuntu: apt-get install chromium)",
    ),
)
NO_TESTS = 5


def main(arguments: list[str]) -> int:
    """Run, then tell what was not run."""
    unmet = [need for need in NEEDS if not need.is_met()]
    selection = " and ".join(f"not {need.marker}" for need in unmet)
    marked = ["-m", selection] if selection else []
    everything = {"HYPOTHESIS_PROFILE": "thorough", **os.environ}
    code = subprocess.run([sys.executable, "-m", "pytest", *marked, *arguments], check=False, env=everything).returncode
    for need in unmet:
        print(f"not run: {_count(need.marker)} tests marked {need.marker!r}, which need {need.what}; {need.remedy}")
    return code


def _count(marker: str) -> int:
    command = [sys.executable, "-m", "pytest", "-m", marker, "--collect-only", "-qq"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    # With -qq every file is one line: path: number.
    counts = [line.rsplit(": ", 1)[-1] for line in listed.stdout.splitlines() if ": " in line]
    return 0 if listed.returncode == NO_TESTS else sum(int(count) for count in counts if count.isdigit())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
