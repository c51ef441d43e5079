# SPDX-License-Identifier: Apache-2.0
"""Another engine for tests: Spark 4.1 with Iceberg's own runtime, which this project's Spark (4.2) has none of.

It reads our tables as a stranger does, and makes the mess that maintenance jobs and people make. It lives in an
environment of its own below the run directory, since two releases of pyspark cannot share one, and in a process of its
own that is asked by lines of JSON: ``{"catalog": …, "sql": …}`` is answered by ``{"rows": […]}`` or ``{"error": …}``.

Contract: :func:`ready` brings environment and jars here once (some 460 MB; pip's package index and Maven Central) and
asks nothing of the network later. :class:`Engine` starts one Spark session; an SQLite catalog of pyiceberg that it is
given, with a ``name`` that no other has, is the Spark catalog ``lake`` of that statement. What one commits the other
sees.

Failure: what Spark refuses is an :class:`EngineError` with the first lines of its message; the session goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from dev.jars import fetch
from dev.paths import run_dir
from dev.processes import run_out

SPARK = "4.1.3"
SETUP_SECONDS = 1800
MARKER = "complete"


class EngineError(RuntimeError):
    """The engine could not be brought here, or refused a statement."""


def home() -> Path:
    return run_dir() / "engine"


def jars() -> Path:
    """Folder of its jars, fetched first where missing."""
    return fetch("engine")["engine"]


def ready() -> None:
    """Make the environment, unless it is there.

    :raises EngineError: with what pip or Ivy said
    """
    home().mkdir(parents=True, exist_ok=True)
    with (home() / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        marker = home() / MARKER
        if marker.exists() and marker.read_text() == SPARK:
            return
        print(f"fetching Spark {SPARK} with Iceberg for the tests of another engine (some 460 MB)", file=sys.stderr)
        _environment()
        marker.write_text(SPARK)


def _environment() -> None:
    venv = home() / "venv"
    _run([sys.executable, "-m", "venv", str(venv)])
    _run([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", f"pyspark=={SPARK}"])


def _run(command: list[str]) -> None:
    run_out(command, name=f"{' '.join(command[:6])} …", seconds=SETUP_SECONDS, error=EngineError)


class Engine:
    """One Spark session in a process of its own; for one caller at a time. Usable as a context manager."""

    def __init__(self, folder: Path) -> None:
        ready()
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "engine.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(home() / "venv" / "bin" / "python"), str(Path(__file__).with_name("engine_process.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**environment, "ENGINE_JARS": str(jars()), "SPARK_LOCAL_IP": "127.0.0.1"},
                text=True,
            )

    def sql(self, catalog: Mapping[str, str], statement: str) -> list[dict[str, Any]]:
        """Run one statement with ``lake`` being the given catalog; values that JSON lacks come as text.

        :param catalog: properties of a pyiceberg SQL catalog in an SQLite file, with its ``name``
        :raises EngineError: Spark refused it
        """
        stdin, stdout = self._pipes()
        stdin.write(json.dumps({"catalog": dict(catalog), "sql": statement}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise EngineError(f"the engine is gone: {self.log.read_text(errors='replace')[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{statement[:200]}: {answer['error']}")
        return list(answer["rows"])

    def close(self) -> None:
        """End it; a session that hangs is killed."""
        stdin, stdout = self._pipes()
        stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise EngineError("the engine has no pipes")
        return self._process.stdin, self._process.stdout


def main() -> int:
    """`python -m dev.servers.engine`: bring it here."""
    try:
        ready()
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"Spark {SPARK} with Iceberg in {home()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
