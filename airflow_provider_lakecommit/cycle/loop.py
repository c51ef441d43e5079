# SPDX-License-Identifier: Apache-2.0
"""Cycle after cycle in one process, on any engine, until the landing is caught up.

Contract: a cycle that was opened is closed, whatever became of its Spark jobs: what they reported is published. The
groups of a window run side by side. The connections and the engine stay over the cycles of a run, so that a cycle
costs what it does and no start; storage keys that a catalog hands out are taken anew for the jobs of each cycle. A run
that is caught up by its newest plan ends there; it opens no cycle more to see that. What is reported of a job stands in
the control log: where an engine cannot say, the log is asked.

Failure story: a Spark job that dies loses the slices in hand: its cycle is closed and the next one reads the rest.
Cycles in a row that move nothing end the run with the last reason. A run whose window is not admitted goes on with the
next cycle, after waits that grow, because its own commits drain the landing; if that does not help it ends as one that
has nothing to do, and says what clears the state. Where nothing can be planned (the source lost offsets, a table needs
a person) what is reported is published before the run ends with that error. A commit that fails ends it with its error.
A run that is asked to stop, or interrupted, says what is saved and what will be read again, and publishes nothing more:
the next attempt, or the next run, does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from uuid import UUID

from airflow_provider_lakecommit.committer.executor import CommitterThread
from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.cycle.close import close_cycle
from airflow_provider_lakecommit.cycle.drain import drain
from airflow_provider_lakecommit.cycle.open import open_cycle
from airflow_provider_lakecommit.cycle.progress import LOG_SECONDS, Progress, progress_told
from airflow_provider_lakecommit.cycle.results import Closed, GroupResult, GroupTicket, Opened
from airflow_provider_lakecommit.cycle.run import CycleOutcome, Written, first_of
from airflow_provider_lakecommit.cycle.write import JobOutcome, group_job, group_result, run_group
from airflow_provider_lakecommit.engines.base import Engine
from airflow_provider_lakecommit.exceptions import (
    ClosedError,
    ControlTopicError,
    FencedError,
    LakecommitError,
    SourceUnavailableError,
    SparkJobError,
)
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.session.secrets import secrets_for
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob

__all__ = ["MOST_IDLE_CYCLES", "LandingRunner"]

MOST_IDLE_CYCLES = 4
"""Cycles in a row without any progress before a run gives up: one more than it takes to block a range by name."""
PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the next cycle after one, two, more idle cycles whose reason may pass by itself."""
REFUSED_PAUSES = (0.0, 2.0, 10.0, 30.0)
"""Seconds before the next cycle after one, two, more in a row without an admitted window; after one more the run ends.
The first costs nothing: that cycle's own commit may have cleared the state.
"""


class LandingRunner:
    """The cycles of one run.

    :param identify: the identity of the run's n-th cycle
    :param release: tells which open cycles are of dead processes, so that their claims end
    :param executor: where others commit too; without one, each cycle makes its own
    :param progress: is told how far the writing is, every so many seconds; by default the log is
    :param early: have the engine start while the cycle is opened, also when it then turns out that there is nothing to
        do; for engines that cost next to nothing
    """

    def __init__(
        self,
        session: LandingSession,
        engine: Engine,
        identify: Callable[[int], RunIdentity],
        *,
        release: Callable[[Cycle], bool] = lambda _: False,
        executor: CommitterThread | None = None,
        early: bool = False,
        progress: tuple[Callable[[Progress], None], float] | None = None,
    ) -> None:
        self._session = session
        self._engine = engine
        self._identify = identify
        self._release = release
        self._executor = executor
        self._early = early
        self._log = session.log
        self._progress = progress or (lambda progress: self._log(str(progress)), LOG_SECONDS)
        self._writing: tuple[GroupTicket, ...] = ()
        self._opened = False
        self._stopping = False

    @property
    def tables(self) -> Tables:
        """The catalog of the landing."""
        return self._session.tables

    def cycles(self, first: int = 0, most: int | None = None) -> Iterator[CycleOutcome]:
        """Cycles until caught up, or *most* of them, each as soon as it is closed.

        :param first: number of the first one
        :raises LakecommitError: what keeps a cycle from being opened or closed, that none of them moves anything, or
            that the run was asked to stop
        """
        number, idle, refused = first, 0, 0
        while True:
            try:
                outcome = self.cycle(number)
            except LakecommitError as e:
                if (drained := self._drained(number, e)) is not None:
                    yield drained
                raise
            yield outcome
            number += 1
            if outcome.final or number - first == most:
                return
            refused = refused + 1 if outcome.deferred and not outcome.closed.published else 0
            if outcome.deferred:
                if refused > len(REFUSED_PAUSES):
                    return
                self._pause(REFUSED_PAUSES[max(refused, 1) - 1])
                continue
            idle = 0 if outcome.progress else idle + 1
            if idle >= MOST_IDLE_CYCLES:
                raise SparkJobError(_why_given_up(outcome, idle))
            if idle and outcome.written.may_pass:
                time.sleep(PAUSES[min(idle, len(PAUSES)) - 1])

    def cycle(self, number: int) -> CycleOutcome:
        """Open or continue the n-th cycle, write, close.

        :raises LakecommitError: what `open_cycle` and `close_cycle` raise, and why the engine cannot run jobs at all;
            never for what became of a job
        """
        self._opened = False
        self._go_on_or_stop()
        run, seconds, began = self._identify(number), {}, time.monotonic()
        starting = _beside(self._engine.start) if self._early else None
        dead: set[UUID] = set()
        try:
            opened = open_cycle(self._session, run, release=lambda cycle: self._released(cycle, dead))
        except LakecommitError:
            if starting:
                wait([starting])
            raise
        self._opened = True
        seconds["open"] = time.monotonic() - began
        for commit_id in dead:
            self._log(f"cycle {commit_id} is of a process that is gone: its claims end, what it reported is kept")
        for line in opened.lines(number):
            self._log(line)
        if opened.finished:
            lacking = tuple(map(str, opened.lacking))
            closed = Closed(commit_id=opened.ticket.commit_id, finished=True, note=opened.note, missing=lacking)
            return CycleOutcome(number=number, opened=opened, written=Written(), closed=closed, seconds=seconds)
        try:
            written = self._write(opened, seconds, starting.result if starting else self._engine.start)
        except LakecommitError:
            if not self._stopping:
                # The run cannot go on; what others have reported is published all the same. This error tells more.
                with suppress(LakecommitError):
                    close_cycle(self._session, run, opened.ticket, executor=self._executor)
            raise
        began = time.monotonic()
        closed = close_cycle(self._session, run, opened.ticket, executor=self._executor)
        seconds["close"] = time.monotonic() - began
        return CycleOutcome(
            number=number, opened=opened, written=written, closed=closed, seconds=seconds, released=len(dead)
        )

    def _drained(self, number: int, error: LakecommitError) -> CycleOutcome | None:
        """After an error that kept a cycle from being opened: a cycle that publishes what is reported, if there is such
        a thing. The error itself tells more than what keeps that from being done.
        """
        if self._opened or self._stopping or isinstance(error, (ControlTopicError, ClosedError, FencedError)):
            return None
        run, began = self._identify(number), time.monotonic()
        try:
            drained = drain(self._session, run, str(error), executor=self._executor)
        except LakecommitError as e:
            # Brokers that are away are told once, by the error itself.
            if not (isinstance(error, SourceUnavailableError) and isinstance(e, (type(error), ControlTopicError))):
                self._log(f"what is reported could not be published now: {e}")
            return None
        if drained is None:
            return None
        opened, closed = drained
        seconds = {"close": time.monotonic() - began}
        return CycleOutcome(number=number, opened=opened, written=Written(), closed=closed, seconds=seconds)

    def stop(self) -> None:
        """Ask the running jobs to end and open no further cycle; returns at once. For signal handlers."""
        self._stopping = True
        self._engine.stop()

    def report_interrupted(self) -> None:
        """After an interruption: what is saved, and what will be read again."""
        if self._writing:
            for ticket in self._writing:
                self._saved(ticket, told=True)
            self._log("what is reported is published by the next run")
        else:
            self._log("nothing was being written; what is in the tables stays, the next run goes on from there")

    def _go_on_or_stop(self) -> None:
        if self._stopping:
            self.report_interrupted()
            raise SparkJobError(f"landing {self._session.landing.name} was told to stop")

    def _pause(self, seconds: float) -> None:
        """Wait, unless asked to stop meanwhile."""
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))

    def _released(self, cycle: Cycle, dead: set[UUID]) -> bool:
        if cycle.commit_id not in dead and self._release(cycle):
            dead.add(cycle.commit_id)
        return cycle.commit_id in dead

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, opened: Opened, seconds: dict[str, float], start: Callable[[], None]) -> Written:
        tickets = tuple(opened.groups)
        jobs = {ticket.group: self._job(ticket) for ticket in tickets}
        outcomes: dict[int, tuple[WindowJob | None, JobOutcome]] = {}
        self._writing = tickets
        self._go_on_or_stop()
        if any(jobs.values()):
            began = time.monotonic()
            start()
            seconds["spark"] = time.monotonic() - began
            self._go_on_or_stop()
            began = time.monotonic()
            todo = {t: job for t in tickets if (job := jobs[t.group]) is not None}
            with progress_told(self._session.control, list(todo.values()), *self._progress):
                outcomes = self._side_by_side(todo)
            seconds["write"] = time.monotonic() - began
            self._go_on_or_stop()
        self._writing = ()
        return sum((self._written(t, *outcomes.get(t.group, (jobs[t.group], ()))) for t in tickets), Written())

    def _job(self, ticket: GroupTicket) -> WindowJob | None:
        tables = self._session.tables
        return group_job(self._session.landing, self._session.control, ticket, tables.name, tables.load)

    def _side_by_side(self, todo: Mapping[GroupTicket, WindowJob]) -> dict[int, tuple[WindowJob | None, JobOutcome]]:
        pool = ThreadPoolExecutor(max_workers=max(1, len(todo)), thread_name_prefix="group")
        try:
            running = {ticket.group: pool.submit(self._run, ticket, job) for ticket, job in todo.items()}
            wait(running.values())
            return {group: each.result() for group, each in running.items()}
        except BaseException:
            self._engine.stop()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, ticket: GroupTicket, job: WindowJob) -> tuple[WindowJob | None, JobOutcome]:
        """In a thread."""

        def run(job: WindowJob) -> Sequence[SliceResult]:
            try:
                secrets = secrets_for(self._session.tables, self._session.kafka, [job], log=self._log)
            except LakecommitError as e:
                raise SparkJobError(f"the Spark job of group {job.group} did not begin: {e}") from e
            return self._engine.run(job, secrets)

        return run_group(job, run, lambda: None if self._stopping else self._job(ticket), self._log)

    def _written(self, ticket: GroupTicket, job: WindowJob | None, outcome: JobOutcome) -> Written:
        """How a group went, by what its engine says, else by the control log."""
        before = Counter({SliceStatus.REPORTED: ticket.slices - (len(job.plan.slices) if job else 0)})
        if job is None:
            return Written(slices=+before)
        if outcome and not isinstance(outcome, SparkJobError):
            unfinished = tuple(str(r) for r in outcome if r.status is not SliceStatus.DONE)
            return Written(slices=+before + Counter(r.status for r in outcome), unfinished=unfinished)
        died = (str(outcome),) if isinstance(outcome, SparkJobError) else ()
        result = self._saved(ticket, told=bool(died))
        done = result.done - before[SliceStatus.REPORTED]
        now = Counter({SliceStatus.DONE: done, SliceStatus.AGAIN: 0 if died else len(result.left)})
        return Written(slices=+before + now, unfinished=tuple(f"not reported: {s}" for s in result.left), died=died)

    def _saved(self, ticket: GroupTicket, *, told: bool) -> GroupResult:
        result = group_result(self._session.landing, self._session.control, ticket)
        if told:
            self._log(f"group {ticket.group}: {result}")
        return result


def _beside(work: Callable[[], None]) -> Future[None]:
    """Run it while the caller does something else; if nobody waits for it, it ends with the process."""
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
            ended.set_result(None)
        except BaseException as e:
            ended.set_exception(e)

    threading.Thread(target=run, name="engine", daemon=True).start()
    return ended


def _why_given_up(last: CycleOutcome, idle: int) -> str:
    reasons = last.written.trouble or last.closed.voided or last.closed.missing
    why = f"{first_of(reasons)} the reason" if reasons else "it was granted no slice"
    return f"{idle} cycles in a row moved nothing; of the last one {why}"
