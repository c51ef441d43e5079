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
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from dev.jars import JarsError, fetch
from dev.java import JavaMissingError, java_binary
from dev.paths import run_dir
from dev.servers.server import Server, ServerError

ANSWER_SECONDS = 5.0
FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SERVER = "org.apache.iceberg.rest.RESTCatalogServer"
REMEDY = f"remove {run_dir() / 'jars' / 'rest'} and look at what `python -m dev.servers.rest_catalog` says"


class RestCatalogError(ServerError):
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


class RestCatalogServer(Server):
    """One server, its folder and its process.

    :param settings: further properties of the catalog behind it
    """

    name = "rest-catalog"
    what = f"REST catalog ({REMEDY})"
    error = RestCatalogError

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._jars = ready()
        self._settings = {
            "rest.port": str(self.port),
            "catalog.name": "behind",
            # SQLite's own patience with other writers, in milliseconds.
            "uri": f"jdbc:sqlite:{self.directory / 'catalog.db'}?busy_timeout=30000",
            "warehouse": f"file://{self.directory / 'warehouse'}",
            **(settings or {}),
        }

    @property
    def properties(self) -> dict[str, str]:
        """A catalog's, for pyiceberg."""
        return self.properties_at(self.port)

    def properties_at(self, port: int) -> dict[str, str]:
        """The same through another port, where something stands between."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{port}", "warehouse": self._settings["warehouse"]}

    def command(self) -> list[str]:
        (self.directory / "warehouse").mkdir(exist_ok=True)
        return [java_binary(), *FLAGS, "-cp", f"{self._jars}/*", SERVER]

    def environment(self) -> dict[str, str]:
        return {**os.environ, **{_variable(name): value for name, value in self._settings.items()}}

    def answers(self) -> bool:
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
