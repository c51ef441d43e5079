# SPDX-License-Identifier: Apache-2.0
"""The landings of a set that one process lands now, each in a thread of its own, so that none delays the others.

If the process is stopped, every landing is stopped, also one that has just started, and no further Spark job starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

from airflow_provider_lakecommit.cli.runs.land import GRACE_SECONDS, land_cycles
from airflow_provider_lakecommit.cli.runs.process import identity, is_dead
from airflow_provider_lakecommit.cli.runs.shared_spark import SharedSpark
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.core import for_landing
from airflow_provider_lakecommit.cycle import ConcurrentLandings, LandingRunner, LandingSession
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.operations import RunCompaction
from airflow_provider_lakecommit.spark import Engine, SparkSection, engine_of

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
        name = spec.landing.name

        def log(line: str) -> None:
            self.output.log(f"{name}: {for_landing(line, name)}")

        section = SparkSection(spec.spark)
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

    def stop(self) -> None:
        self.stopped = True
        for runner in list(self.under_way.values()):
            runner.stop(grace=GRACE_SECONDS)
        deadline = time.monotonic() + GOODBYE_SECONDS
        while self.under_way and time.monotonic() < deadline:
            time.sleep(0.05)
