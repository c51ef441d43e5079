# SPDX-License-Identifier: Apache-2.0
"""What goes wrong during :mod:`bench.soak`: a SIGKILL a minute, outages of the broker and of the catalog.

Contract: all choices come from one seed. Processes that should live long (the parts of Airflow, the Spark Connect
server, the first continuous landing) are killed in the first third of the run only, so that the rest shows whether they
grow. Each act is one line of the log; an act that finds nothing to kill is tried on another target.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from threading import Event
from typing import TextIO

from bench.soak_world import World
from dev.processes import ChildError, Process, kill_all
from dev.servers.server import ServerError

__all__ = ["DAEMON", "Faults"]

KILL_SECONDS = 60.0
AWAY_SECONDS = {"broker": 5.0, "rest-catalog": 25.0}
LONG_LIVED = ("scheduler", "triggerer", "dag-processor", "api-server")
EARLY = 1 / 3
"""Share of the run in which long-lived processes are killed."""
OFTEN = {"task": 40, "Spark worker": 20, "follow": 20, "driver of a follow": 10}
"""How often each kind is killed, all the time."""
RARELY = {"part of Airflow": 16, "Connect server": 8}
"""The same, in the first part of the run only."""
DAEMON = re.compile(r" -m (pyspark|airflow_provider_lakecommit\.spark)\.daemon\b")
"""What is in the command of Spark's Python daemons, and of their workers, which are forks of them."""


class Faults:
    """The plan of everything that goes wrong.

    :param seconds: length of the run
    :param outages: seconds between two outages; the broker and the catalog take turns
    """

    def __init__(self, world: World, seconds: float, outages: float, seed: int, log: TextIO) -> None:
        self._world, self._seconds, self._outages, self._log = world, seconds, outages, log
        self._random = random.Random(seed)
        self._began = time.monotonic()
        self.done: Counter[str] = Counter()

    def run(self, stop: Event) -> None:
        """Kill and restart until the stop, one act after the other."""
        kill, outage, number = self._began + KILL_SECONDS, self._began + self._outages, 0
        while not stop.wait(max(0.0, min(kill, outage) - time.monotonic())):
            if time.monotonic() >= outage:
                self._outage(number)
                number, outage = number + 1, outage + self._outages
            else:
                self._kill()
                kill = max(kill + KILL_SECONDS, time.monotonic())

    # -- acts -----------------------------------------------------------------------------------------------------

    def _outage(self, number: int) -> None:
        server = (self._world.broker, self._world.catalog)[number % 2]
        hard = number % 4 >= 2
        what = f"{server.name} {'killed' if hard else 'stopped'} for {AWAY_SECONDS[server.name]:.0f} s"
        self._act(what, lambda: self._world.outage(server, AWAY_SECONDS[server.name], kill=hard))

    def _kill(self) -> None:
        kinds = dict(OFTEN if self._is_late else OFTEN | RARELY)
        while kinds:
            (kind,) = self._random.choices(list(kinds), list(kinds.values()))
            if self._killed(kind):
                return
            del kinds[kind]

    def _killed(self, kind: str) -> bool:
        """Kill one process of a kind, if there is one."""
        if kind == "part of Airflow":
            part = self._random.choice(LONG_LIVED)
            self._act(f"{part} killed", lambda: self._world.revive(part))
            return True
        if kind == "Connect server":
            self._act("Connect server killed", lambda: self._world.outage(self._world.connect, 1.0, kill=True))
            return True
        targets = list(self._targets(kind))
        if targets:
            one = self._random.choice(targets)
            self._act(f"{kind} killed", lambda: kill_all([one]), f"{one.pid} {one.command[:80]}")
        return bool(targets)

    @property
    def _is_late(self) -> bool:
        """Return True when long-lived processes are left alone."""
        return time.monotonic() - self._began > EARLY * self._seconds

    def _act(self, what: str, act: Callable[[], object], which: str = "") -> None:
        began = time.monotonic()
        try:
            act()
        except (ChildError, ServerError, OSError) as error:
            what = f"{what}: {type(error).__name__}: {str(error)[:300]}"
            self._world.troubles.append(what)
        self.done[what] += 1
        self._log.write(f"{time.strftime('%H:%M:%S')} {what} {which} ({time.monotonic() - began:.1f} s)\n")
        self._log.flush()

    # -- targets --------------------------------------------------------------------------------------------------

    def _targets(self, kind: str) -> Iterator[Process]:
        """Return the living processes of a kind that may be killed now."""
        world = self._world
        if kind == "task":
            yield from self._tasks()
            return
        if kind == "Spark worker":
            yield from _workers(world.connect.family)
            for name in world.follows().values():
                yield from _workers(world.children.family(name))
            return
        for name in list(world.follows().values())[1 if self._is_late else 0 :]:
            family = world.children.family(name)
            head = world.children.pid(name)
            java = [p for p in family if "java" in p.command.split(" ", 1)[0]]
            yield from [p for p in family if p.pid == head] if kind == "follow" else java

    def _tasks(self) -> Iterator[Process]:
        """Return the processes that run tasks, with what they started: they are below the executor's workers."""
        scheduler = self._world.children.pid("scheduler")
        family = self._world.children.family("scheduler")
        workers = {p.pid for p in family if p.parent == scheduler}
        yield from (p for p in family if p.pid != scheduler and p.pid not in workers)


def _workers(family: list[Process]) -> Iterator[Process]:
    """Return Spark's Python daemons and workers."""
    yield from (p for p in family if DAEMON.search(p.command))
