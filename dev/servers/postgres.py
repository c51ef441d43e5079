# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL server in a folder, from whatever PostgreSQL this machine has, to be stopped, killed and frozen.

Contract: that of :class:`~dev.servers.server.Server`, on 127.0.0.1 only and without a password. What was committed
survives stop and kill: it is in the folder, which must lie where the server's user may go.

PostgreSQL refuses to run as root; then it runs as the user `postgres`, or `nobody`, to whom the folder is given.

Failure story: no programs, no such user: :class:`PostgresError`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dev.servers.server import Server, ServerError

PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
)
"""Where packages put the server, which is rarely on the search path."""
REMEDY = "install PostgreSQL (Debian or Ubuntu: apt-get install postgresql; macOS: brew install postgresql)"
USER = "lakecommit"
# Nothing here has to outlive a power failure.
SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "shared_buffers": "16MB"}


class PostgresError(ServerError):
    """The private server could not be started, or does not end."""


def programs() -> Path | None:
    """Folder with `postgres` and `initdb`, of the newest version where there are several; None when there is none."""
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted((p for place in PLACES for p in Path("/").glob(place[1:])), key=_version, reverse=True)
    return next((p for p in found if (p / "initdb").exists() and (p / "postgres").exists()), None)


class Postgres(Server):
    """One server, its folder and its processes.

    :param settings: server settings that win over the ones here
    """

    name = "postgres"
    what = "PostgreSQL"
    error = PostgresError
    start_seconds = 60.0
    stop_seconds = 30.0
    stop_signal = signal.SIGINT
    """Open transactions are rolled back, clients are thrown out."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._settings = {**SETTINGS, **(settings or {})}
        found = programs()
        if found is None:
            raise PostgresError(f"no PostgreSQL server on the search path or in {', '.join(PLACES)}: {REMEDY}")
        self._programs = found
        self.user = _server_user()

    def uri(self, port: int | None = None) -> str:
        """For SQLAlchemy; through another *port* where something stands between."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{port or self.port}/postgres"

    def command(self) -> list[str]:
        data = self.directory / "data"
        if not data.exists():
            self._initialise(data)
        command = [str(self._programs / "postgres"), "-D", str(data), "-p", str(self.port)]
        return [*command, *(word for name, value in self._settings.items() for word in ("-c", f"{name}={value}"))]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.directory)}

    def answers(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """New connections may read and not write, as those to a standby that was not promoted."""
        self._let_write(allowed=False)
        try:
            yield
        finally:
            self._let_write(allowed=True)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _let_write(self, *, allowed: bool) -> None:
        statement = f"ALTER DATABASE postgres SET default_transaction_read_only = {'off' if allowed else 'on'}"
        command = [str(self._programs / "psql"), "-qX", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        # This connection must not be one of those that may only read.
        mine = {**os.environ, "PGOPTIONS": "-c default_transaction_read_only=off"}
        done = subprocess.run(
            [*command, "-d", "postgres", "-c", statement], env=mine, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PostgresError(f"`{statement}` was refused: {done.stderr}")

    def _initialise(self, data: Path) -> None:
        if self.user is not None:
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)
        command = [str(self._programs / "initdb"), "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*command, "--no-sync", "--locale=C"],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            env=self.environment(),
            user=self.user.pw_uid if self.user else None,
            group=self.user.pw_gid if self.user else None,
            extra_groups=[] if self.user else None,
        )
        if done.returncode:
            raise PostgresError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _server_user() -> pwd.struct_passwd | None:
    """Whom the server must run as; None for ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` to run it as")


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in "".join(c if c.isdigit() else " " for c in str(folder)).split())
