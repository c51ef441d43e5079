# SPDX-License-Identifier: Apache-2.0
"""What runs next to a test: threads of Python, clients of librdkafka, child processes.

A client of librdkafka has one thread that is named ``rdk:main``, from its creation until it is closed and released.
A server that is killed and started again has the same command, so it is the same one.
Only Linux lists native threads and children; elsewhere only threads of Python are found.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["SERVERS", "running", "tasks"]

SERVERS: set[int] = set()
"""Child processes that end with pytest, such as those that programs are forked from."""
KEPT = frozenset({"InProcessExecutionAPI-loop", "fsspecIO"})
"""Threads of libraries that live as long as their process: Airflow's loop behind `dag.test`, and that of fsspec."""
TRACKER = b"multiprocessing.resource_tracker"
"""A program of Python that ends with the process that once spawned another."""
TASKS = Path("/proc/self/task")
CLIENT = "rdk:main"


def tasks() -> frozenset[str]:
    """Return the ids of all native threads."""
    with suppress(OSError):
        return frozenset(os.listdir(TASKS))
    return frozenset()


def running(known: frozenset[str] = frozenset()) -> dict[Hashable, str]:
    """Return a description of everything that runs.

    :param known: native threads whose names need not be read
    """
    threads = [t for t in threading.enumerate() if t.ident not in _pooled() and t.name not in KEPT]
    found: dict[Hashable, str] = {t: f"thread {t.name}" for t in threads}
    found |= {task: f"librdkafka client {task}" for task in tasks() - known if _read(task, "comm") == CLIENT}
    for thread in threads:
        found |= dict(_children(thread.native_id))
    return found


def _children(task: int | None) -> Iterator[tuple[bytes, str]]:
    for pid in map(int, _read(str(task), "children").split()):
        with suppress(OSError):
            # The command is empty of a process that has ended, and of one that is about to begin.
            while not (command := Path(f"/proc/{pid}/cmdline").read_bytes()) and not _has_ended(pid):
                time.sleep(0.001)
            if command and pid not in SERVERS and TRACKER not in command:
                text = command.replace(b"\0", b" ").decode(errors="replace")
                yield command, f"process {pid}: {text[:200]}"


def _has_ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def _pooled() -> frozenset[int]:
    """Return the threads of pyiceberg's one pool, which it starts as it needs them and never ends."""
    module = sys.modules.get("pyiceberg.utils.concurrent")
    pool = module and module.ExecutorFactory._instance
    return frozenset(t.ident for t in pool._threads) if pool else frozenset()


def _read(task: str, name: str) -> str:
    try:
        return (TASKS / task / name).read_text().strip()
    except OSError:
        return ""
