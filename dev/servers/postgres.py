# SPDX-License-Identifier: Apache-2.0
"""A private PostgreSQL server in a folder, from whatever PostgreSQL this machine has, to be stopped, killed and frozen.

Contract: :meth:`Postgres.start` returns when the server takes connections, on 127.0.0.1 only and without a password;
:meth:`Postgres.stop` and :meth:`Postgres.crash` when its processes are gone. The port is chosen at the first start and
kept, so that clients find the server again. What was committed survives all of them: it is in the folder, which must
lie where the server's user may go.

PostgreSQL refuses to run as root; then it runs as the user `postgres`, or `nobody`, to whom the folder is given.

Failure story: no programs, no such user, a server that ends while starting or does not answer in time:
:class:`PostgresError` with the end of its log.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from dev.servers.kafka import free_port

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
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.05
# Nothing here has to outlive a power failure.
SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "shared_buffers": "16MB"}


class PostgresError(RuntimeError):
    """The private server could not be started, or does not end."""


def programs() -> Path | None:
    """Folder with `postgres` and `initdb`, of the newest version where there are several; None when there is none."""
    on_path = shutil.which("postgres")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted((p for place in PLACES for p in Path("/").glob(place[1:])), key=_version, reverse=True)
    return next((p for p in found if (p / "initdb").exists() and (p / "postgres").exists()), None)


class Postgres:
    """One server, its folder and its processes. Usable as a context manager."""

    def __init__(self, directory: Path) -> None:
        found = programs()
        if found is None:
            raise PostgresError(f"no PostgreSQL server on the search path or in {', '.join(PLACES)}: {REMEDY}")
        self._programs = found
        self._directory = directory
        self._data = directory / "data"
        self._user = _server_user()
        self._server: subprocess.Popen[bytes] | None = None
        self.log = directory / "postgres.log"
        self.port = free_port()

    def uri(self, port: int | None = None) -> str:
        """For SQLAlchemy; through another *port* where something stands between."""
        return f"postgresql+psycopg2://{USER}@127.0.0.1:{port or self.port}/postgres"

    def start(self) -> Self:
        """Start, unless it runs."""
        if self._server is not None and self._server.poll() is None:
            return self
        if not self._data.exists():
            self._initialise()
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as_user()
            )
        self._await_answer(self._server)
        return self

    def stop(self) -> None:
        """Shut down; open transactions are rolled back, clients are thrown out."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """End at once, without a checkpoint, as in a crash: the next start recovers."""
        self._end(signal.SIGQUIT)

    def freeze(self) -> None:
        """Stand still, all processes: connections are taken by the system, and nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after :meth:`freeze`."""
        self._signal_all(signal.SIGCONT)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """New connections may read and not write, as those to a standby that was not promoted."""
        self._let_write(allowed=False)
        try:
            yield
        finally:
            self._let_write(allowed=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.thaw()
        self.stop()

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

    def _initialise(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._user is not None:
            os.chown(self._directory, self._user.pw_uid, self._user.pw_gid)
        command = [str(self._programs / "initdb"), "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8"]
        done = subprocess.run(
            [*command, "--no-sync", "--locale=C"], capture_output=True, text=True, check=False, **self._as_user()
        )
        if done.returncode:
            raise PostgresError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {"cwd": self._directory}
        who = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return {**who, "cwd": self._directory, "env": {**os.environ, "HOME": str(self._directory)}}

    def _await_answer(self, server: subprocess.Popen[bytes]) -> None:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(ready, check=False).returncode:
            if server.poll() is not None or time.monotonic() > deadline:
                raise PostgresError(f"PostgreSQL does not come up on port {self.port}; {self.log}:\n{self._tail()}")
            time.sleep(LOOK_SECONDS)

    def _end(self, how: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is None or server.poll() is not None:
            return
        server.send_signal(how)
        try:
            server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            raise PostgresError(
                f"PostgreSQL did not end by {how.name} in {STOP_SECONDS:.0f} s:\n{self._tail()}"
            ) from None

    def _signal_all(self, how: signal.Signals) -> None:
        if self._server is not None and self._server.poll() is None:
            # The server itself first: then it starts no more of the others.
            self._server.send_signal(how)
            for pid in _children(self._server.pid):
                with suppress(ProcessLookupError):  # it has ended since
                    os.kill(pid, how)

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])


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


def _children(leader: int) -> Iterable[int]:
    """The other processes of a server: its backends make process groups of their own, and stay its children."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    return [pid for pid, parent in pairs if parent == leader]


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in "".join(c if c.isdigit() else " " for c in str(folder)).split())
