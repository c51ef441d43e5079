# SPDX-License-Identifier: Apache-2.0
"""A schema registry from Maven Central: Apicurio's, which speaks the interface of Confluent's too, with all in memory.

Contract: :func:`ready` brings the release here once (some 110 MB) and unpacks it. Its checksum is stated here; Ivy, by
which other archives come, wants a parent of its descriptor that is not published everywhere.
:meth:`SchemaRegistryServer.start` returns when it answers, with no schema in it; it listens on this machine alone and
asks for no credentials.

Failure story: no Java, a release that cannot be fetched, a server that ends while starting:
:class:`SchemaRegistryError` with the end of its log.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from dev.jar_checksums import digest
from dev.java import JavaMissingError, java_binary
from dev.paths import run_dir
from dev.servers.server import Server, ServerError

ANSWER_SECONDS = 30.0
FLAGS = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
VERSION = "3.0.9"
"""The last one that runs on Java 17."""
ARCHIVE = f"apicurio-registry-app-{VERSION}-all.tar.gz"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
URL = f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{VERSION}/{ARCHIVE}"
FACE = "apis/ccompat/v7"
"""Where the interface of Confluent's registry is."""


class SchemaRegistryError(ServerError):
    """The registry could not be brought here, or does not start."""


def ready() -> Path:
    """The jar that runs it.

    :raises SchemaRegistryError: what could not be fetched
    """
    try:
        java_binary()
    except JavaMissingError as error:
        raise SchemaRegistryError(str(error)) from None
    home = run_dir() / "registry"
    release = home / ARCHIVE.removesuffix(".tar.gz")
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if not release.exists():
            staging = home / "staging"
            shutil.rmtree(staging, ignore_errors=True)
            with tarfile.open(_fetched(home / ARCHIVE)) as opened:
                opened.extractall(staging, filter="data")
            staging.rename(release)
    (runner,) = release.glob("*-runner.jar")
    return runner


def _fetched(archive: Path) -> Path:
    if not archive.exists():
        print(f"fetching {ARCHIVE} (some 110 MB)", file=sys.stderr)
        partial = archive.with_suffix(".partial")
        try:
            with urllib.request.urlopen(URL, timeout=ANSWER_SECONDS) as answer, partial.open("wb") as out:
                shutil.copyfileobj(answer, out)
        except (urllib.error.URLError, OSError) as error:
            raise SchemaRegistryError(f"{URL} could not be fetched: {error}") from None
        partial.rename(archive)
    if (found := digest(archive)) != SHA256:
        archive.unlink()
        raise SchemaRegistryError(f"{URL} is not what was released: its SHA-256 is {found}")
    return archive


class SchemaRegistryServer(Server):
    """One registry and its process."""

    name = "schema-registry"
    what = "schema registry (look at what `python -m dev.servers.schema_registry` says)"
    error = SchemaRegistryError

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._runner = ready()

    @property
    def url(self) -> str:
        """Of the interface that clients of Confluent's registry speak."""
        return f"http://127.0.0.1:{self.port}/{FACE}"

    def command(self) -> list[str]:
        listening = (f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1")
        return [java_binary(), *FLAGS, *listening, "-jar", str(self._runner)]

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=ANSWER_SECONDS):
                return True
        except (urllib.error.URLError, OSError):
            return False


def main() -> int:
    """`python -m dev.servers.schema_registry`: bring it here."""
    try:
        print(ready())
    except SchemaRegistryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
