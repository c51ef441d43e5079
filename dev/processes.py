# SPDX-License-Identifier: Apache-2.0
"""Child processes that are found and ended again exactly, together with everything they started.

Contract: each child runs in a session of its own, so a Ctrl-C meant for us does not reach it. Its *family* is that
session and all descendants of its members: nothing else is ever signalled. Children are recorded in a file with their
start time, so that another process, later, can end them too and never mistakes a stranger under a reused id for one.

Failure story: a child that dies or is too slow where its end is waited for is a :class:`ChildError` with the end of its
log. After :meth:`Children.stop` has begun, no further child starts: an interrupt while starting leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_SECONDS = 0.05
GONE_SECONDS = 20.0
START_TOLERANCE = 2.0
"""`ps` computes a start time from the time of asking: two answers may differ by a second."""
TAIL_LINES = 25


class ChildError(RuntimeError):
    """A child process did not do what it was started for."""


class StoppingError(ChildError):
    """No more children are started: the stop has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process of this machine, as `ps` tells."""

    pid: int
    parent: int
    started: float
    command: str


def living() -> dict[int, Process]:
    """All living processes; one that has ended and waits for its parent is not living."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,lstart=,command="]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    found = (_process(line) for line in told.stdout.splitlines())
    return {p.pid: p for p in found if p is not None}


def _process(line: str) -> Process | None:
    words = line.split(maxsplit=8)
    if len(words) < 8 or words[2].startswith("Z"):
        return None
    started = time.mktime(time.strptime(" ".join(words[3:8]), "%a %b %d %H:%M:%S %Y"))
    command = words[8] if len(words) > 8 else ""
    return Process(pid=int(words[0]), parent=int(words[1]), started=started, command=command)


def descendants(pid: int, among: Mapping[int, Process]) -> list[Process]:
    """A process and all that it started, parents first."""
    found = [among[pid]] if pid in among else []
    for process in found:
        found += [p for p in among.values() if p.parent == process.pid]
    return found


def signal_all(processes: Iterable[Process], how: signal.Signals) -> None:
    """Signal processes in their order; who is gone already is passed over."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, how)


def run_out(command: Sequence[str], *, name: str, seconds: float, error: type[Exception], **options: Any) -> None:
    """Run a command that brings or makes something, to its end; its output is told only if it fails.

    :param name: of the command, in messages
    :param options: further ones of :func:`subprocess.run`
    :raises Exception: the given kind: it failed, or took longer
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        raise error(f"`{name}` did not end in {seconds:.0f} s") from None
    if done.returncode:
        raise error(f"`{name}` ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")


def kill_all(processes: Iterable[Process]) -> None:
    """SIGKILL."""
    signal_all(processes, signal.SIGKILL)


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The end of a log."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"


class Children:
    """The children of one directory: their logs, their record, their end."""

    def __init__(self, directory: Path) -> None:
        self.logs = directory / "log"
        self.logs.mkdir(parents=True, exist_ok=True)
        self._record = directory / "processes.json"
        self._known: dict[str, tuple[int, float]] = _read(self._record)
        self._popen: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._stopping = False

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        user: pwd.struct_passwd | None = None,
    ) -> int:
        """Start a child that goes on; what it prints is in `log/NAME.log`.

        :param user: whom it runs as; None for ourselves
        :raises StoppingError: the stop has begun
        """
        with self._lock:
            if self._stopping:
                raise StoppingError(f"{name} is not started: everything is being stopped")
            began = time.time()
            with self.log(name).open("ab") as log:
                child = subprocess.Popen(
                    command,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    user=user.pw_uid if user else None,
                    group=user.pw_gid if user else None,
                    extra_groups=[] if user else None,
                )
            self._popen[child.pid] = child
            self._known[name] = (child.pid, began)
            self._record.write_text(json.dumps(self._known))
        return child.pid

    def run(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float) -> None:
        """Start a child and wait for its end.

        :raises ChildError: it failed or was too slow
        """
        code = self.outcome(name, command, env=env, cwd=cwd, timeout=timeout)
        if code != 0:
            raise ChildError(f"{name} ended with {code}; the end of {self.log(name)}:\n{tail(self.log(name))}")

    def outcome(self, name: str, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float) -> int:
        """Start a child, wait for its end, and tell its exit code.

        :raises ChildError: it was too slow
        """
        child = self._popen[self.start(name, command, env=env, cwd=cwd)]
        try:
            return child.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_all(self._family(self._known[name], living()))
            raise ChildError(f"{name} did not end in {timeout:.0f} s; see {self.log(name)}") from None

    def log(self, name: str) -> Path:
        """Where a child's output goes."""
        return self.logs / f"{name}.log"

    def pid(self, name: str) -> int | None:
        """Process id of a child that lives, whoever started it."""
        known = self._known.get(name)
        if known is None:
            return None
        alive = self._popen[known[0]].poll() is None if known[0] in self._popen else self._is(known, living())
        return known[0] if alive else None

    def exit_code(self, name: str) -> int | None:
        """With what a child that was started here has ended; None while it lives."""
        child = self._popen.get(self._known[name][0]) if name in self._known else None
        return None if child is None else child.poll()

    def family(self, name: str) -> list[Process]:
        """A child and everything it started that lives."""
        return self._family(self._known[name], living()) if name in self._known else []

    def expect_alive(self, *names: str) -> None:
        """:raises ChildError: one of them has ended"""
        for name in names:
            if self.pid(name) is None:
                raise ChildError(f"{name} has ended; the end of {self.log(name)}:\n{tail(self.log(name))}")

    @property
    def is_stopping(self) -> bool:
        """Whether :meth:`stop` has been called."""
        return self._stopping

    def stop(self, grace: float = 0.0, how: signal.Signals = signal.SIGTERM) -> None:
        """End all families: SIGTERM, or what *how* says, to the children, and SIGKILL for what is left after *grace*
        seconds.

        :raises ChildError: something cannot be ended
        """
        with self._lock:
            self._stopping = True
        if grace:
            self._terminate(grace, how)
        # Killed until none is left: a family may grow while its members are counted.
        if not self._until_gone(GONE_SECONDS, kill_all):
            raise ChildError(f"processes {', '.join(str(p.pid) for p in self._left())} do not end, even by SIGKILL")
        for child in self._popen.values():
            # It has ended; only its exit code may not have been asked for yet.
            child.wait(GONE_SECONDS)
        self._known.clear()
        self._record.unlink(missing_ok=True)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _terminate(self, grace: float, how: signal.Signals) -> None:
        """To the children, whose business it is to end their own; where a child is gone, to its family."""
        told: set[int] = set()

        def tell(left: list[Process]) -> None:
            now = living()
            heads = {known[0] for known in self._known.values() if self._is(known, now)}
            orphans = {p.pid for p in left if not heads & {p.pid, _session(p.pid)}}
            for pid in (heads | orphans) - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
                told.add(pid)

        self._until_gone(grace, tell)

    def _until_gone(self, seconds: float, act: Callable[[list[Process]], None]) -> bool:
        deadline = time.monotonic() + seconds
        while left := self._left():
            if time.monotonic() > deadline:
                return False
            act(left)
            time.sleep(LOOK_SECONDS)
        return True

    def _left(self) -> list[Process]:
        for child in self._popen.values():
            child.poll()
        now = living()
        found = {p.pid: p for known in self._known.values() for p in self._family(known, now)}
        return list(found.values())

    def _family(self, known: tuple[int, float], now: Mapping[int, Process]) -> list[Process]:
        pid = known[0]
        if pid in now and not self._is(known, now):
            return []
        # A session with members keeps its id, so that they are ours also when the child is gone.
        members = [p for p in now if p != os.getpid() and _session(p) == pid]
        found = {p.pid: p for member in members for p in descendants(member, now)}
        return list(found.values())

    def _is(self, known: tuple[int, float], now: Mapping[int, Process]) -> bool:
        pid, started = known
        child = self._popen.get(pid)
        if child is not None:
            return child.poll() is None
        return pid in now and abs(now[pid].started - started) <= START_TOLERANCE


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return -1


def _read(record: Path) -> dict[str, tuple[int, float]]:
    try:
        return {name: (pid, started) for name, (pid, started) in json.loads(record.read_text()).items()}
    except (FileNotFoundError, ValueError):
        return {}
