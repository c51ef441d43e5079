# SPDX-License-Identifier: Apache-2.0
"""What :mod:`bench.soak` measures every minute, and what it says of growth in the end.

Contract: a *role* is a long-lived process: a part of Airflow, a server, a continuous landing and its Spark driver. Of
each are sampled: resident memory, descriptors and threads of the process itself; with everything below it the memory
(shared pages divided), the number of processes and of Python daemons of Spark. All samples go to `processes.csv`, those
of the tables and of the machine to `lake.csv`, as they are taken.

Growth is judged where one process of a role lived for at least :data:`JUDGED` samples: it grows without bound if the
median of each quarter of its life is above the one before by :data:`NOISE` and the last is :data:`GROWN` times the
first. Caches that fill, and then stay, do not count.
"""

from __future__ import annotations

import csv
import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from bench.soak_faults import DAEMON
from bench.soak_world import World
from dev.airflow_client import AirflowAnswerError
from dev.airflow_stack import WITH_TRIGGERER
from dev.processes import Process
from dev.servers.server import Server

__all__ = ["Growth", "Samples"]

PAGE = "/lakecommit/api/v1/landings?limit=200"
JUDGED = 40
NOISE = 1.03
GROWN = 1.25
LEAST = {"rss_mb": 20.0, "fds": 10.0, "threads": 5.0, "daemons": 5.0, "tree_mb": 100.0}
"""Growth that is smaller than this over the whole life of a process is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSample:
    """One process at one moment."""

    at: float
    role: str
    pid: int
    rss_mb: float
    fds: int
    threads: int
    tree_mb: float
    processes: int
    daemons: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSample:
    """The tables, the landings and the machine at one moment. ``lag`` and ``verdicts`` are those of the page."""

    at: float
    produced: int
    lag: int | None
    verdicts: str
    files: int
    megabytes: float
    snapshots: int
    strays: int
    restarts: int
    log_mb: float
    load: float
    free_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One measure of the process of a role that lived longest, as medians of the quarters of its life."""

    role: str
    measure: str
    minutes: float
    quarters: tuple[float, ...]

    @property
    def without_bound(self) -> bool:
        """Return True if it has grown from each quarter to the next, and by much."""
        first, last = self.quarters[0], self.quarters[-1]
        rises = all(b > a * NOISE for a, b in pairwise(self.quarters))
        return rises and last > first * GROWN and last - first > LEAST[self.measure]


class Samples:
    """Takes samples, keeps them, and writes them to two files.

    :param folder: of these files
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self.processes: list[ProcessSample] = []
        self.lake: list[LakeSample] = []

    def take(self) -> LakeSample:
        """Take one sample of everything."""
        at = time.time()
        found = [sample for role, family in self._roles() for sample in _sampled(at, role, family)]
        found.append(_sample(at, "soak", psutil.Process(), []))
        lake = self._lake_sample(at)
        self.processes += found
        self.lake.append(lake)
        _append(self._folder / "processes.csv", found)
        _append(self._folder / "lake.csv", [lake])
        return lake

    def newest(self) -> Iterator[ProcessSample]:
        """Return the processes of the newest sample."""
        last = self.processes[-1].at if self.processes else 0.0
        yield from (sample for sample in self.processes if sample.at == last)

    def growths(self) -> list[Growth]:
        """Return every measure of every role, of the process of it that lived longest."""
        lives: dict[str, dict[int, list[ProcessSample]]] = {}
        for sample in self.processes:
            lives.setdefault(sample.role, {}).setdefault(sample.pid, []).append(sample)
        longest = {role: max(found.values(), key=len) for role, found in lives.items()}
        return [_growth(role, measure, life) for role, life in longest.items() if len(life) >= 4 for measure in LEAST]

    @property
    def judged(self) -> set[str]:
        """Roles of which one process lived for long enough."""
        lengths: dict[tuple[str, int], int] = {}
        for sample in self.processes:
            lengths[sample.role, sample.pid] = lengths.get((sample.role, sample.pid), 0) + 1
        return {role for (role, _), length in lengths.items() if length >= JUDGED}

    # -- how ------------------------------------------------------------------------------------------------------

    def _roles(self) -> Iterator[tuple[str, list[Process]]]:
        """Return each role with its process, which comes first, and all below it."""
        world = self._world
        servers: Mapping[str, Server] = {"broker": world.broker, "catalog": world.catalog, "connect": world.connect}
        for name, server in servers.items():
            yield name, _headed(server.pid, server.family)
        for part in WITH_TRIGGERER:
            yield part, _headed(world.children.pid(part), world.children.family(part))
        for stem, name in world.follows().items():
            yield f"follow {stem}", _headed(world.children.pid(name), world.children.family(name))

    def _lake_sample(self, at: float) -> LakeSample:
        world = self._world
        lag, verdicts = self._seen_by_page()
        files, size = _sizes(world.warehouse)
        return LakeSample(
            at=at,
            produced=sum(sum(topic.sent) for topic in world.topics),
            lag=lag,
            verdicts=verdicts,
            files=files,
            megabytes=round(size / 1e6, 1),
            snapshots=self._snapshots(),
            strays=len(world.strays()),
            restarts=sum(world.restarts.values()),
            log_mb=round(_sizes(world.folder / "airflow" / "logs")[1] / 1e6, 1),
            load=os.getloadavg()[0],
            free_gb=round(psutil.virtual_memory().available / 1e9, 1),
        )

    def _seen_by_page(self) -> tuple[int | None, str]:
        """Return the records that wait by the page *Lake commits*, and its landings by verdict."""
        try:
            told = self._world.airflow.client.page(PAGE)
        except (AirflowAnswerError, OSError) as error:
            return None, type(error).__name__
        rows = told["landings"]
        lag = sum((row["read_lag"] or 0) + (row["commit_lag"] or 0) for row in rows)
        return lag, " ".join(f"{name}:{count}" for name, count in sorted(told["verdicts"].items()) if count)

    def _snapshots(self) -> int:
        """Return how many there are in all tables; -1 while the catalog does not answer."""
        try:
            lake = self._world.lake
            return sum(len(lake.load_table(name).metadata.snapshots) for name in lake.list_tables("soak"))
        except Exception:  # Whatever a client raises whose server is away, or whose table is being made.
            return -1


def _headed(pid: int | None, family: Iterable[Process]) -> list[Process]:
    return sorted(family, key=lambda p: p.pid != pid) if pid is not None else []


def _sampled(at: float, role: str, family: Sequence[Process]) -> Iterator[ProcessSample]:
    """Return the sample of a role, and one of the process that does its work, where that is another one."""
    for name, found in ((role, family[:1]), *_aides(role, family[1:])):
        for process in found[:1]:
            with suppress(psutil.NoSuchProcess):
                yield _sample(at, name, psutil.Process(process.pid), family if name == role else [])


def _aides(role: str, below: Sequence[Process]) -> Iterator[tuple[str, list[Process]]]:
    if role == "triggerer":
        yield "triggerer runner", list(below)
    if role.startswith("follow"):
        yield f"{role} driver", [p for p in below if "java" in p.command.split(" ", 1)[0]]


def _sample(at: float, role: str, head: psutil.Process, family: Sequence[Process]) -> ProcessSample:
    with head.oneshot():
        return ProcessSample(
            at=at,
            role=role,
            pid=head.pid,
            rss_mb=round(head.memory_info().rss / 1e6, 1),
            fds=head.num_fds(),
            threads=head.num_threads(),
            tree_mb=round(sum(_shared_mb(p.pid) for p in family), 1),
            processes=len(family),
            daemons=_daemons(family),
        )


def _daemons(family: Sequence[Process]) -> int:
    """Return the number of Spark's Python daemons, without their workers."""
    found = {p.pid for p in family if DAEMON.search(p.command)}
    return sum(p.pid in found and p.parent not in found for p in family)


def _shared_mb(pid: int) -> float:
    """Return the memory of a process, with its share of what it shares; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:")), 0.0)


def _sizes(folder: Path) -> tuple[int, int]:
    """Return the number and the bytes of the files below a folder."""
    number = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.stat(os.path.join(place, name)).st_size
                number += 1
    return number, size


def _growth(role: str, measure: str, life: Sequence[ProcessSample]) -> Growth:
    values = [float(getattr(sample, measure)) for sample in life]
    cuts = [len(values) * n // 4 for n in range(5)]
    quarters = tuple(statistics.median(values[a:b]) for a, b in pairwise(cuts))
    return Growth(role=role, measure=measure, minutes=(life[-1].at - life[0].at) / 60, quarters=quarters)


def _append(path: Path, samples: Sequence[Any]) -> None:
    if not samples:
        return
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(samples[0])])
        if new:
            writer.writeheader()
        writer.writerows(asdict(sample) for sample in samples)
