# SPDX-License-Identifier: Apache-2.0
"""Names a process among all that ever ran, so that a later one can tell whether it still lives.

Contract: a process is named by host, boot, process namespace, process id and its start time.
:meth:`ProcessName.certainly_dead` says yes only when that is certain: another start time under the same id is another
process, another boot of the same host leaves no process alive, and of another host or container nothing is known. A
process that waits to be reaped is dead.
"""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["CLI", "ProcessName", "lives", "started"]

CLI = "cli"
_GONE = frozenset("ZXx")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessName:
    """A process among all processes that ever were."""

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
        """As seen from the process *here*."""
        if self.host != here.host:
            return False
        if self.boot != here.boot:
            return True
        return self.namespace == here.namespace and not lives(self.pid, self.start)


def lives(pid: int, start: str) -> bool:
    """Is the process that began at *start* under this id still there?"""
    return started(pid) == start


def started(pid: int) -> str | None:
    """When a process began, in the system's own words, or None when there is none under this id."""
    if Path("/proc/self/stat").exists():
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def _started_by_proc(pid: int) -> str | None:
    try:
        # The name in the second field may hold anything, also spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in _GONE else fields[19]


def _started_by_ps(pid: int) -> str | None:
    asked = ["ps", "-o", "state=,lstart=", "-p", str(pid)]
    state, _, start = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
    return None if not start or state[0] in _GONE else "-".join(start.split())


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
