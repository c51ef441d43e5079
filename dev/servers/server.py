# SPDX-License-Identifier: Apache-2.0
"""What all servers here have in common: a folder, a port of 127.0.0.1 and processes that are ended exactly.

Contract: :meth:`Server.start` returns when the server answers, :meth:`Server.stop` and :meth:`Server.kill` when its
processes are gone. The port is chosen free at random, unless one is given, and kept for the life of the folder, so that
clients find the server again after :meth:`Server.restart`; so is what the server stores. It runs in a session of its
own: a Ctrl-C meant for us does not reach it, and only what it and its children are is ever signalled.

Failure story: a server that dies while starting, or does not answer in time, ends in its class's ``error`` with the end
of its log; a port that somebody else took between choice and use is answered by choosing another.
"""

from __future__ import annotations

import os
import pwd
import random
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from dev.processes import Children, Process, signal_all, tail

__all__ = ["PortTakenError", "Server", "ServerError", "free_port", "listens"]

# Below the range that systems hand out to outgoing connections, so that a chosen port stays ours over a restart.
PORTS = range(18_000, 32_000)
PORT_ATTEMPTS = 4
LOOK_SECONDS = 0.1
TAKEN = "Address already in use"


class ServerError(RuntimeError):
    """A server could not be brought here or started, or does not answer."""


class PortTakenError(ServerError):
    """Another process listens on the port that the server was to have."""


class Server(ABC):
    """One server, its folder and its processes. Usable as a context manager.

    :param directory: where all of it is; made at the first start
    :param port: the port, also where another was kept
    """

    name: ClassVar[str]
    """Of its process and its log."""
    what: ClassVar[str]
    """In messages."""
    error: ClassVar[type[ServerError]] = ServerError
    start_seconds: ClassVar[float] = 120.0
    stop_seconds: ClassVar[float] = 20.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    user: pwd.struct_passwd | None = None
    """Whom it runs as; None for ourselves."""

    def __init__(self, directory: Path | str, *, port: int | None = None) -> None:
        self.directory = Path(directory).resolve()
        self._wanted_port = port
        self._found: Children | None = None
        self._log_begin = 0

    # -- what a kind of server says of itself ----------------------------------------------------------------------

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What is started, when folder and port are there; settings are written here."""

    def environment(self) -> Mapping[str, str]:
        """Of its process."""
        return os.environ

    def answers(self) -> bool:
        """Can it be used? Asked until it can."""
        return listens(self.port)

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port, chosen when it is first asked for."""
        kept = self.directory / "port"
        if not kept.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            kept.write_text(str(self._wanted_port or free_port()))
        return self._wanted_port or int(kept.read_text())

    @property
    def was_started(self) -> bool:
        """Whether there ever was one in this folder."""
        return self.log.exists()

    @property
    def pid(self) -> int | None:
        """Process id of the running server of this folder, whoever started it; None when it does not run."""
        return self._children.pid(self.name)

    @property
    def family(self) -> list[Process]:
        """The server and everything it started that lives."""
        return self._children.family(self.name)

    @property
    def log(self) -> Path:
        """What the server prints."""
        return self.directory / "log" / f"{self.name}.log"

    @property
    def _children(self) -> Children:
        if self._found is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._found = Children(self.directory)
        return self._found

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or find running, and wait until the server answers."""
        if self.pid is not None:
            self._await_answer()
            return self
        kept = self._wanted_port is not None or (self.directory / "port").exists()
        for _ in range(0 if kept else PORT_ATTEMPTS - 1):
            try:
                return self._start_once()
            except PortTakenError:
                (self.directory / "port").unlink()
        return self._start_once()

    def stop(self, patience: float | None = None) -> None:
        """Shut down in order; after a while, or so many seconds, by force. Nothing to do when it does not run."""
        self._end(self.stop_seconds if patience is None else patience)

    def kill(self) -> None:
        """SIGKILL: what a crash of the machine looks like to clients."""
        self._end(0.0)

    def restart(self) -> Self:
        """Stop if running, then start on the same port with what is stored."""
        self.stop()
        return self.start()

    def freeze(self) -> None:
        """Stand still, all processes: connections are taken by the system, and nobody answers."""
        # The server comes before its children, so that it starts no more of them.
        signal_all(self.family, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after :meth:`freeze`."""
        signal_all(self.family, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen until the end of the block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- how ----------------------------------------------------------------------------------------------------------

    def _start_once(self) -> Self:
        if listens(self.port):
            raise PortTakenError(f"port {self.port} of 127.0.0.1 is taken ({TAKEN}): give another port")
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        command = self.command()
        try:
            self._children.start(self.name, command, env=self.environment(), cwd=self.directory, user=self.user)
            self._await_answer()
        except BaseException:
            # Also where somebody interrupts the waiting: nobody else would end it.
            self.kill()
            raise
        return self

    def _await_answer(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline:
            if self.pid is None:
                ended = f"the {self.what} ended while starting; the end of {self.log}:\n{tail(self.log)}"
                raise PortTakenError(ended) if self._is_port_taken() else self.error(ended)
            if self.answers():
                return
            time.sleep(LOOK_SECONDS)
        raise self.error(
            f"the {self.what} does not answer on port {self.port} in {self.start_seconds:.0f} s; "
            f"the end of {self.log}:\n{tail(self.log)}"
        )

    def _is_port_taken(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            return TAKEN.encode() in log.read()

    def _end(self, grace: float) -> None:
        self.thaw()
        self._children.stop(grace, self.stop_signal)
        # What has been told to stop starts nothing any more; the next start has its own record.
        self._found = None


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now, outside the range of outgoing connections."""
    for candidate in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    raise ServerError(f"no free port on 127.0.0.1 in {PORTS.start}-{PORTS.stop - 1}")


def listens(port: int) -> bool:
    """Whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
