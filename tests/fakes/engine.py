# SPDX-License-Identifier: Apache-2.0
"""An engine for a landing without brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from tests.fakes.session import FakeLanding

__all__ = ["Act", "FakeEngine"]

Act = Callable[[WindowJob], list[SliceResult]]


@dataclass
class FakeEngine:
    """Reports all slices of a job at once, unless one of ``acts`` is done instead; these are used up."""

    landing: FakeLanding
    acts: list[Act] = field(default_factory=list)
    jobs: list[WindowJob] = field(default_factory=list)
    stopped: int = 0
    ahead: int = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self.jobs.append(job)
        return self.acts.pop(0)(job) if self.acts else self.do(job)

    def do(self, job: WindowJob, most: int | None = None) -> list[SliceResult]:
        ticket = CycleTicket(
            landing=job.plan.landing,
            lane=job.plan.lane,
            commit_id=job.commit_id,
            slot=job.slot,
            partition=job.control_partition,
            read_from=0,
        )
        some = job.plan.slices[:most]
        self.landing.report(Opened(ticket=ticket, plan=job.plan, slices=some, explain=()))
        return [SliceResult(slice=str(s), status=SliceStatus.DONE, detail="") for s in some]

    def stop(self) -> None:
        self.stopped += 1

    def close(self) -> None: ...
