# SPDX-License-Identifier: Apache-2.0
"""An Iceberg REST catalog server from Maven Central: the one of Iceberg's own tests, before a JDBC catalog in SQLite.

Contract: :func:`ready` brings the jars here once (some 80 MB). :meth:`RestCatalogServer.start` returns when it answers;
port, tables and their metadata survive :meth:`~RestCatalogServer.stop`, :meth:`~RestCatalogServer.kill` and another
start. It asks for no credentials and, as it cannot be told to listen on one address, listens on all.

Failure story: no Java, jars that cannot be fetched, a server that ends while starting: :class:`RestCatalogError` with
the end of its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from dev.jars import JarsError, fetch
from dev.java import JavaMissingError, java_binary
from dev.paths import run_dir
from dev.servers.kafka import free_port

START_SECONDS = 120.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.1
FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
REMEDY = f"remove {run_dir() / 'jars' / 'rest'} and look at what `python -m dev.servers.rest_catalog` says"


class RestCatalogError(RuntimeError):
    """The server could not be brought here, or does not start."""


def ready() -> Path:
    """Folder of its jars.

    :raises RestCatalogError: what could not be fetched
    """
    try:
        java_binary()
        return fetch("rest")["rest"]
    except (JarsError, JavaMissingError) as error:
        raise RestCatalogError(str(error)) from None


class RestCatalogServer:
    """One server, its folder and its process. Usable as a context manager.

    :param settings: further properties of the catalog behind it
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._jars = ready()
        self._folder = folder
        self.port = free_port()
        self.log = folder / "rest-catalog.log"
        self._settings = {
            "rest.port": str(self.port),
            "catalog.name": "behind",
            # SQLite's own patience with other writers, in milliseconds.
            "uri": f"jdbc:sqlite:{folder / 'catalog.db'}?busy_timeout=30000",
            "warehouse": f"file://{folder / 'warehouse'}",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """A catalog's, for pyiceberg."""
        return self.properties_at(self.port)

    def properties_at(self, port: int) -> dict[str, str]:
        """The same through another port, where something stands between."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{port}"}

    def start(self) -> Self:
        """Start, unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return self
        (self._folder / "warehouse").mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [java_binary(), *FLAGS, "-cp", f"{self._jars}/*", SERVER],
                cwd=self._folder,
                env={**os.environ, **{_variable(name): value for name, value in self._settings.items()}},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
                self.kill()
                raise RestCatalogError(
                    f"the REST catalog does not come up on port {self.port} ({REMEDY}); {self.log}:\n{tail}"
                )
            time.sleep(LOOK_SECONDS)
        return self

    def stop(self) -> None:
        """End it."""
        process = self._process
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End it at once, as by a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still: connections are taken by the system, and nobody answers until the end of the block."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/config", timeout=ANSWER_SECONDS):
                return True
        except (urllib.error.URLError, OSError):
            return False


def _variable(name: str) -> str:
    """The variable of the environment from which it takes a property."""
    return "CATALOG_" + name.replace("-", "__").replace(".", "_").upper()


def main() -> int:
    """`python -m dev.servers.rest_catalog`: bring it here."""
    try:
        print(ready())
    except RestCatalogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
