# SPDX-License-Identifier: Apache-2.0
"""CPU-seconds, wall seconds, waiting time and peak memory of this process with everything below it.

Contract: CPU is user and system time of all live processes of the tree and of the ones they have waited for, so a
worker that ends in between is not lost, and one that was warm before is counted only from the start of the measurement
on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
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
def measured(without: int | None = None) -> Iterator[Cost]:
    """Measure the block.

    :param without: process of the tree that is not of the work: the broker
    """
    cost, done = Cost(), threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            cost.peak_mb = max(cost.peak_mb, _memory_mb(without))

    watcher = threading.Thread(target=watch, daemon=True)
    cpu, waited, began = _cpu_seconds(without), _waited_seconds(without), time.monotonic()
    watcher.start()
    try:
        yield cost
    finally:
        cost.wall = time.monotonic() - began
        cost.cpu = _cpu_seconds(without) - cpu
        cost.waited = max(0.0, _waited_seconds(without) - waited)
        cost.load = psutil.getloadavg()[0]
        done.set()
        watcher.join()


def _tree(without: int | None) -> list[psutil.Process]:
    root = psutil.Process()
    return [root, *(p for p in root.children(recursive=True) if p.pid != without)]


def _cpu_seconds(without: int | None) -> float:
    total = 0.0
    for process in _tree(without):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _waited_seconds(without: int | None) -> float:
    """Linux counts it for every thread, in nanoseconds."""
    total = 0
    for process in _tree(without):
        for statistics in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(statistics.read_text().split()[1])
    return total / 1e9


def _memory_mb(without: int | None) -> float:
    total = 0
    for process in _tree(without):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6
