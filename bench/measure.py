# SPDX-License-Identifier: Apache-2.0
"""CPU-seconds, wall seconds, waiting time and peak memory of this process with everything below it.

Contract: CPU is user and system time of all live processes of the tree and of the ones they have waited for, or what
was seen of each process while it lived, whichever is more: so a worker that ends in between is not lost, whoever waited
for it. What looking at them costs is taken off. A process that was warm before is counted only from the start of the
measurement on. Memory is the sum of the resident sets; pages that processes share are counted for each of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["Cost", "measured"]

SAMPLE_SECONDS = 0.2


@dataclass(slots=True)
class Cost:
    """What a piece of work took; complete when its block is left.

    ``waited``: seconds for which living threads were ready to run and no processor was free; 0 where nothing tells.
    ``load``: of the machine, in the last minute.
    """

    wall: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0
    load: float = 0.0
    peak_mb: float = 0.0


@contextmanager
def measured(without: Collection[int] = ()) -> Iterator[Cost]:
    """Measure the block.

    :param without: processes of the tree that are not of the work, with all below them: the broker
    """
    cost, done = Cost(), threading.Event()
    before, seen, looking = _own_seconds(_tree(without)), dict[int, float](), 0.0

    def watch() -> None:
        nonlocal looking
        while not done.wait(SAMPLE_SECONDS):
            tree = _tree(without)
            cost.peak_mb = max(cost.peak_mb, _memory_mb(tree))
            seen.update(_own_seconds(tree))
            looking = time.thread_time()

    watcher = threading.Thread(target=watch, daemon=True)
    tree = _tree(without)
    cpu, waited, began = _cpu_seconds(tree), _waited_seconds(tree), time.monotonic()
    watcher.start()
    try:
        yield cost
    finally:
        cost.wall = time.monotonic() - began
        tree = _tree(without)
        sampled = sum(seconds - before.get(pid, 0.0) for pid, seconds in seen.items())
        cost.cpu = max(_cpu_seconds(tree) - cpu, sampled) - looking
        cost.waited = max(0.0, _waited_seconds(tree) - waited)
        cost.load = psutil.getloadavg()[0]
        done.set()
        watcher.join()


def _tree(without: Collection[int]) -> list[psutil.Process]:
    """This process and those below it, but for these and what is below them. All are asked for at once: each question
    reads what there is of every process of the machine.
    """
    root = psutil.Process()
    found = {root.pid: root}
    for child in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.pid not in without and child.ppid() in found:
                found[child.pid] = child
    return list(found.values())


def _own_seconds(tree: Iterable[psutil.Process]) -> dict[int, float]:
    """Of each living process alone."""
    out = {}
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            out[process.pid] = times.user + times.system
    return out


def _cpu_seconds(tree: Iterable[psutil.Process]) -> float:
    total = 0.0
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _waited_seconds(tree: Iterable[psutil.Process]) -> float:
    """Linux counts it for every thread, in nanoseconds."""
    total = 0
    for process in tree:
        for statistics in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(statistics.read_text().split()[1])
    return total / 1e9


def _memory_mb(tree: Iterable[psutil.Process]) -> float:
    total = 0
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total / 1e6
