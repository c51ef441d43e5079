# SPDX-License-Identifier: Apache-2.0
"""The landings of a set that one process lands now, each in a thread of its own, so that none delays the others.

If the process is stopped, every landing is stopped, also one that has just started, and no further Spark job starts.

The one local Spark session of the landings of a set.

The first landing that needs it starts it. Small jobs that wait at the same time run as tasks of one Spark job, so that
five hundred small windows do not cost five hundred jobs; a large job runs by itself. A job that dies, dies for all
landings in it, and each retries the rest of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

from airflow_provider_lakecommit.cli.runs.land import GRACE_SECONDS, land_cycles
from airflow_provider_lakecommit.cli.runs.process import identity, is_dead
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.core import for_landing
from airflow_provider_lakecommit.cycle import Combined, ConcurrentLandings, LandingRunner, LandingSession
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.operations import RunCompaction
from airflow_provider_lakecommit.spark import (
    Engine,
    LocalSpark,
    Secrets,
    SliceResult,
    SparkSection,
    WindowJob,
    engine_of,
)

Connect = Callable[[Landing, Callable[[str], None]], LandingSession]
"""Opens a landing's session on its set's connections; the second argument gets its log lines."""
GOODBYE_SECONDS = GRACE_SECONDS + 10.0
"""How long stopped landings may publish and log what is left."""


@dataclass(kw_only=True)
class Landings:
    """The shared connections of a set's landings, and the running landings.

    :param shared: the local Spark session; ``None`` if each landing has an engine of its own
    """

    concurrent: ConcurrentLandings
    output: Output
    cycles: int | None
    shared: SharedSpark | None
    unique: UUID = field(default_factory=uuid4)
    under_way: dict[str, LandingRunner] = field(default_factory=dict)
    stopped: bool = False

    def land(self, spec: LandingSpec, connect: Connect) -> int:
        name, section = spec.landing.name, SparkSection(spec.spark)
        log = self.log_of(name)
        engine: Engine = self.shared or engine_of(section, name, log=log, on_start=lambda: None)
        with (
            self.concurrent.session(lambda: connect(spec.landing, log)) as connected,
            RunCompaction(connected, log) as compaction,
        ):
            runner = LandingRunner(
                connected,
                engine,
                partial(identity, self.unique),
                release=is_dead,
                executor=self.concurrent.executor,
                early=section.is_warm,
                maintain=compaction.begin,
            )
            self.under_way[name] = runner
            if self.stopped:
                runner.stop(grace=GRACE_SECONDS)
            try:
                return land_cycles(runner, spec, self.output, log, self.cycles)
            finally:
                del self.under_way[name]
                engine.close()

    def log_of(self, name: str) -> Callable[[str], None]:
        return lambda line: self.output.log(f"{name}: {for_landing(line, name)}")

    def stop(self) -> None:
        self.stopped = True
        for runner in list(self.under_way.values()):
            runner.stop(grace=GRACE_SECONDS)
        deadline = time.monotonic() + GOODBYE_SECONDS
        while self.under_way and time.monotonic() < deadline:
            time.sleep(0.05)


SMALL = 100_000
"""Most records of a job that runs together with others."""
AT_ONCE = 4
"""Spark jobs of small ones at a time: a hanging one blocks only its own landings."""
TOGETHER = 256
"""Most small jobs in one."""


class SharedSpark:
    """One engine for all landings; the session's owner closes it."""

    ahead = 0

    def __init__(self, session: LocalSpark) -> None:
        self._session = session
        self._starting = threading.Lock()
        self._stopped = False
        self._small = Combined[tuple[WindowJob, Secrets], list[SliceResult]](
            self._run_all, at_once=AT_ONCE, most=TOGETHER
        )

    def start(self) -> None:
        with self._starting:
            self._go_on_or_stop()
            self._session.start()

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self._go_on_or_stop()
        if sum(map(len, job.plan.slices)) > SMALL:
            return self._session.run(job, secrets)
        return self._small.request((job, secrets))

    def stop(self) -> None:
        self._stopped = True
        self._session.stop()

    def close(self) -> None:
        """Do nothing: the session is shared."""

    def _run_all(self, requests: Sequence[tuple[WindowJob, Secrets]]) -> Sequence[list[SliceResult]]:
        self._go_on_or_stop()
        return self._session.run_together(requests)

    def _go_on_or_stop(self) -> None:
        if self._stopped:
            raise SparkJobError("LC8033", "this call was stopped")
