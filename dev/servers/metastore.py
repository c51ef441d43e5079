# SPDX-License-Identifier: Apache-2.0
"""A Hive Metastore 3.1 with an embedded Derby database, from Maven Central. (pyiceberg 0.12 calls methods that those of
Hive 4 have no more.)

Contract: :func:`ready` brings the release and an empty database here once (some 90 MB); each :class:`Metastore` begins
with a copy of that database. :meth:`Metastore.start` returns when it takes connections. Locks that nobody renews are
taken away after ``lock_seconds``; a real one does so after five minutes. It listens on all addresses, as it cannot be
told to listen on one.

Failure story: no Java, jars that cannot be fetched, a server that ends while starting: :class:`MetastoreError` with the
end of its log.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tarfile
from pathlib import Path
from xml.sax.saxutils import escape

from dev.jars import JarsError, fetch
from dev.java import JavaMissingError, java_binary
from dev.paths import run_dir
from dev.processes import run_out
from dev.servers.server import Server, ServerError

SETUP_SECONDS = 300
SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"
SCHEMA_TOOL = "org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool"
OPENED = ("java.lang", "java.net", "java.util", "java.util.concurrent")
"""Packages of the JDK that it looks into."""


class MetastoreError(ServerError):
    """The metastore could not be brought here, or does not start."""


def ready() -> tuple[Path, Path]:
    """Folder of the release, and of an empty database.

    :raises MetastoreError: what could not be fetched or made
    """
    try:
        jars = fetch("metastore")["metastore"]
        archive = next(jars.glob("*.tar.gz"))
        home = run_dir() / "metastore" / archive.name.removesuffix("-bin.tar.gz")
        home.mkdir(parents=True, exist_ok=True)
        with (home / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if not (home / "complete").exists():
                _unpack(archive, home / "release")
                _make_database(home)
                (home / "complete").touch()
    except (JarsError, JavaMissingError) as error:
        raise MetastoreError(str(error)) from None
    return home / "release", home / "database"


def _unpack(archive: Path, release: Path) -> None:
    staging = release.with_name("staging")
    for folder in (staging, release):
        shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as opened:
        opened.extractall(staging, filter="data")
    (inner,) = staging.iterdir()
    inner.rename(release)
    staging.rmdir()


def _make_database(home: Path) -> None:
    print("making the database of a Hive Metastore (some 20 s)", file=sys.stderr)
    folder = home / "making"
    for old in (folder, home / "database"):
        shutil.rmtree(old, ignore_errors=True)
    _configure(folder, lock_seconds=300)
    command = [*_java(folder, home / "release"), SCHEMA_TOOL, "-dbType", "derby", "-initSchema"]
    run_out(
        command,
        name=SCHEMA_TOOL,
        seconds=SETUP_SECONDS,
        error=MetastoreError,
        cwd=folder,
        env=_environment(home / "release"),
    )
    (folder / "database").rename(home / "database")
    shutil.rmtree(folder)


class Metastore(Server):
    """One metastore, its folder and its process."""

    name = "metastore"
    what = "metastore"
    error = MetastoreError

    def __init__(self, directory: Path, *, lock_seconds: int = 300) -> None:
        super().__init__(directory)
        self._release, database = ready()
        _configure(self.directory, lock_seconds=lock_seconds)
        shutil.copytree(database, self.directory / "database")

    @property
    def properties(self) -> dict[str, str]:
        """A catalog's, for pyiceberg."""
        return {
            "type": "hive",
            "uri": f"thrift://127.0.0.1:{self.port}",
            "warehouse": f"file://{self.directory / 'warehouse'}",
        }

    def command(self) -> list[str]:
        return [*_java(self.directory, self._release), SERVER, "-p", str(self.port)]

    def environment(self) -> dict[str, str]:
        return _environment(self._release)


def _configure(folder: Path, *, lock_seconds: int) -> None:
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'database'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "metastore.warehouse.dir": f"file://{folder / 'warehouse'}",
        "metastore.txn.timeout": f"{lock_seconds}s",
        "metastore.timedout.txn.reaper.interval": "1s",
        # The default is a class of Hive itself, which is not here.
        "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
        # What takes locks away; by default it runs beside compactors only.
        "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.txn.AcidHouseKeeperService",
    }
    lines = [f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items()]
    (folder / "conf" / "metastore-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>\n")


def _java(folder: Path, release: Path) -> list[str]:
    opens = [part for package in OPENED for part in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    path = f"{folder / 'conf'}:{release / 'lib'}/*:{fetch('metastore')['metastore']}/*"
    return [java_binary(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opens, "-cp", path]


def _environment(release: Path) -> dict[str, str]:
    return {**os.environ, "METASTORE_HOME": str(release)}


def main() -> int:
    """`python -m dev.servers.metastore`: bring it here."""
    try:
        release, _ = ready()
    except MetastoreError as error:
        print(error, file=sys.stderr)
        return 1
    print(release)
    return 0


if __name__ == "__main__":
    sys.exit(main())
