# SPDX-License-Identifier: Apache-2.0
"""Unique names of processes, so that a later process can check if one still lives.

Contract: a process is named by host, boot, process namespace, process id and start time.
:meth:`ProcessName.certainly_dead` returns True only if that is certain: another start time under the same id is another
process, another boot of the same host leaves no process alive, and other hosts or containers are unknown. A process
that waits to be reaped is dead.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

CLI = "cli"
_ENDED = frozenset({psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """The name of a process, unique over all time."""

    host: str
    boot: str
    namespace: str
    pid: int
    start: str

    @classmethod
    def own(cls) -> ProcessName:
        return _own(os.getpid())

    def __str__(self) -> str:
        return "|".join((self.host, self.boot, self.namespace, str(self.pid), self.start))

    @classmethod
    def parse(cls, text: str) -> ProcessName | None:
        parts = text.split("|")
        if len(parts) != 5 or not parts[3].isdecimal():
            return None
        host, boot, namespace, pid, start = parts
        return cls(host=host, boot=boot, namespace=namespace, pid=int(pid), start=start)

    def certainly_dead(self, here: ProcessName) -> bool:
        """Return True if the process is dead, as seen from the process *here*."""
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and not lives(self.pid, self.start)


def lives(pid: int, start: str) -> bool:
    """Return True if the process that began at *start* under this id exists, or may exist."""
    found = started(pid)
    if found is None:
        return False
    # Without a start time nothing can be compared.
    return not (found.isdecimal() and start.isdecimal()) or abs(int(found) - int(start)) <= 1


def started(pid: int) -> str | None:
    """Return when a process began, or None if the id has none.

    In clock ticks since boot if there is a /proc: these do not depend on a clock that is set meanwhile. Elsewhere in
    seconds since the epoch.
    """
    try:
        boot = 0.0
        while boot != (boot := psutil.boot_time()):
            # Repeat while the clock is being set: the value is the difference of two times.
            process = psutil.Process(pid)
            since_epoch = process.create_time()
        if process.status() in _ENDED:
            return None
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return ""
    return str(round((since_epoch - boot) * os.sysconf("SC_CLK_TCK")) if psutil.LINUX else int(since_epoch))


@cache
def _own(pid: int) -> ProcessName:
    return ProcessName(
        host=platform.node().replace("|", "-"),
        boot=_read("/proc/sys/kernel/random/boot_id"),
        namespace=_link("/proc/self/ns/pid"),
        pid=pid,
        start=started(pid) or "",
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
