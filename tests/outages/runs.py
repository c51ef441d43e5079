# SPDX-License-Identifier: Apache-2.0
"""Scheduled runs of a landing while something that it stands on comes and goes, and what the log says of them after.

Contract: :class:`Runs` does what `lakecommit land` does in each scheduled run, one cycle of
:class:`~airflow_provider_lakecommit.cycle.run.loop.LandingRunner` on connections of its own; only Spark is left out,
its tasks are called one after the other. Load comes in equal portions before each run, so that nothing depends on how
fast the machine is. What a run raises must be an error of the package, and is handed back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.cli.watch import GroupVerdicts
from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.records import read_entries
from airflow_provider_lakecommit.core.log import CommitFailed, CycleClosed, CycleOpened, Entry, TablePublished
from airflow_provider_lakecommit.core.model import LIVE, Cycle
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.stall.group_state import StallRules
from airflow_provider_lakecommit.stall.verdict import Verdict
from tests.support.steps import check_verified
from tests.support.world import World, records

Produce = Callable[..., object]


@dataclass(kw_only=True)
class FarWorld(World):
    """A landing whose brokers are given up sooner, while ``timeout`` reports it."""

    timeout: float | None = None
    """Seconds; None for what the package takes by itself."""

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        with super().session() as session:
            if self.timeout is not None:
                session.control.close()
                session.control = ControlTopic(self.landing.control_topic_name, self.kafka, timeout=self.timeout)
            yield session

    @contextmanager
    def impatient(self, seconds: float) -> Iterator[None]:
        self.timeout = seconds
        try:
            yield
        finally:
            self.timeout = None


@dataclass(slots=True)
class InProcess:
    """An engine that does a job's slices in this process. ``meanwhile`` is called before the first of them."""

    meanwhile: Callable[[], None] = lambda: None
    ahead: int = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self.meanwhile()
        return [run_task(job, secrets, index) for index in range(len(job.numbers))]

    def stop(self) -> None: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class Runs:
    """The runs of one landing under a steady load."""

    world: World
    produce: Produce
    portion: int = 20
    produced: int = 0
    done: int = 0
    errors: list[LakecommitError] = field(default_factory=list)

    def load(self) -> None:
        """One portion of records."""
        self.produce(self.world.landing.topics, records(self.produced, self.portion))
        self.produced += self.portion

    def run(self, *, meanwhile: Callable[[], None] = lambda: None) -> CycleOutcome | LakecommitError:
        """A run of one cycle; the error that ended it, if one did."""
        self.done += 1
        name = f"run-{self.done}"

        def run_identity(number: int) -> RunIdentity:
            return RunIdentity(deployment="test", dag_id="test", run_id=name, number=number)

        def release(cycle: Cycle) -> bool:
            return cycle.run != name

        try:
            with self.world.session() as session:
                (outcome,) = LandingRunner(session, InProcess(meanwhile), run_identity, release=release).cycles(most=1)
                return outcome
        except LakecommitError as e:
            self.errors.append(e)
            return e

    def loaded(self, *, meanwhile: Callable[[], None] = lambda: None) -> CycleOutcome | LakecommitError:
        """A portion, and a run."""
        self.load()
        return self.run(meanwhile=meanwhile)

    def drained(self, within: int = 4) -> int:
        """Runs without further load until all of it is in the table, each with a COMPLETE of its own; how many it took.

        :raises LakecommitError: that ended one of them
        """
        for number in range(1, within + 1):
            outcome = self.run()
            if isinstance(outcome, LakecommitError):
                raise outcome
            if len(self.world.rows()) >= self.produced:
                return number
        raise AssertionError(f"not drained in {within} runs: {outcome}")

    def check(self) -> None:
        """Every record is in the table exactly once, and the ledger says the same."""
        self.world.check(Counter(range(self.produced)))
        check_verified(self.world)

    def story(self) -> Story:
        """All that the log says."""
        with self.world.session() as session:
            return Story.read(self.world, list(session.control.read_all()))


@dataclass(kw_only=True)
class FarRuns(Runs):
    """Runs whose patience with the brokers can be shortened."""

    world: FarWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The log of one landing, decoded. ``verdicts`` is what an observer says after each of its events."""

    entries: tuple[Entry, ...]
    verdicts: tuple[Verdict, ...]

    @classmethod
    def read(cls, world: World, log: Sequence[ControlRecord]) -> Story:
        landing = world.landing
        group_verdicts = GroupVerdicts(
            group=landing.group_id,
            rules=StallRules(),
            events_clock=True,
            until=None,
            completion_timeout=landing.window.completion_timeout.total_seconds(),
        )
        lines = [line for record in log if (line := group_verdicts.event(record)) is not None]
        entries = read_entries(log, landing.name, LIVE)
        assert len(entries) == len(lines)
        return cls(entries=entries, verdicts=tuple(Verdict(line["verdict"]) for line in lines))

    @property
    def failed(self) -> set[UUID]:
        """Cycles with evidence that a commit attempt of theirs failed."""
        return {e.commit_id for e in self.entries if isinstance(e, CommitFailed)}

    @property
    def complete(self) -> list[UUID]:
        """Cycles with a COMMIT_COMPLETE, in order."""
        return [e.commit_id for e in self.entries if isinstance(e, CycleClosed)]

    @property
    def planned(self) -> list[UUID]:
        """Cycles that opened with a window, in order."""
        return [e.commit_id for e in self.entries if isinstance(e, CycleOpened) and e.plan.slices]

    @property
    def published(self) -> list[UUID]:
        """Tokens of announced snapshots."""
        return [e.token for e in self.entries if isinstance(e, TablePublished)]

    @property
    def opened(self) -> list[UUID]:
        """All cycles, in order."""
        return [e.commit_id for e in self.entries if isinstance(e, CycleOpened)]

    def since(self, index: int) -> Story:
        """What came after the first ``index`` events."""
        return replace(self, entries=self.entries[index:], verdicts=self.verdicts[index:])

    def __len__(self) -> int:
        return len(self.entries)
