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

from dev import engine
from dev.engine import EngineError
from dev.jars import JarsError
from dev.java import JavaMissingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the tests of one marker need beyond a checkout."""

    marker: str
    what: str
    is_met: Callable[[], bool]
    remedy: str


def _first_of(*programs: str) -> bool:
    return any(shutil.which(program) for program in programs)


def _engine_is_ready() -> bool:
    """Brought here if it can be."""
    try:
        engine.ready()
    except (EngineError, JarsError, JavaMissingError) as error:
        print(error, file=sys.stderr)
        return False
    return True


NEEDS = (
    Need(
        marker="postgres",
        what="a PostgreSQL server",
        is_met=lambda: bool(os.environ.get("LAKECOMMIT_TEST_POSTGRES")),
        remedy="set LAKECOMMIT_TEST_POSTGRES=postgresql+psycopg2://user:password@host/database",
    ),
    Need(
        marker="engine",
        what="Spark 4.1 with Iceberg's runtime (some 460 MB from the package index and Maven Central)",
        is_met=_engine_is_ready,
        remedy="look at what `python -m dev.engine` says",
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
    code = subprocess.run([sys.executable, "-m", "pytest", *marked, *arguments], check=False).returncode
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
