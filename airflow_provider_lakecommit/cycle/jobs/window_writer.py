# SPDX-License-Identifier: Apache-2.0
"""The write steps of a run's windows: their Spark jobs, begun by one call and awaited by another.

Contract: :meth:`WindowWriter.begin` hands the jobs of a window to the engine and returns; :meth:`WindowWrite.wait`
waits for their end and reports each group's result. Several windows may be open, each group in its own thread; the
caller sees the progress of the window that it waits for. Reports of a job are in the control topic, which is read if an
engine has no result.

Failure story: a Spark job that dies is no error here; its reported slices count. Any other end of a job, and an
interruption of the caller, stops the engine with all open windows, and is raised. Once it is *stopping*, no job begins
any more; the stopping caller asks running jobs to end.

An :class:`OpenWindow` is a run's open cycle, and has its outcome once it is closed. :class:`Releases` are the open
cycles that the next START must end. Both are values of one run, in memory. The START of a later cycle ends cycles
without a worker: their process is dead, this run closed them without a COMPLETE, as commits failed for some table, or a
run of this process ended with an error before it closed them. Only the last kind is shared by the runs of a process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core import Cycle
from airflow_provider_lakecommit.cycle.jobs.write import GroupWrite, JobOutcome
from airflow_provider_lakecommit.cycle.results import Closed, GroupResult, GroupTicket, Opened
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome, Written
from airflow_provider_lakecommit.cycle.session.early_end import end_job
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.session.progress import Progress, report_progress
from airflow_provider_lakecommit.cycle.session.secrets import secrets_for
from airflow_provider_lakecommit.exceptions import LakecommitError, SparkJobError
from airflow_provider_lakecommit.spark import Engine, Secrets, SliceResult, SliceStatus, WindowJob

Ended = tuple[WindowJob | None, JobOutcome]
"""The last job of a group, if it had one, and its result."""


class WindowWriter:
    """Writes the windows of a run.

    :param progress: called regularly with the progress of writing
    """

    def __init__(
        self, session: LandingSession, engine: Engine, progress: tuple[Callable[[Progress], None], float]
    ) -> None:
        self.session = session
        self.engine = engine
        self.progress = progress
        self.stopping = False
        self.jobs: dict[UUID, WindowJob] = {}
        """Jobs that run, or are about to."""

    def begin(self, opened: Opened, start: Callable[[], None]) -> WindowWrite:
        """Begin the jobs of a window.

        :param start: starts the engine; called if there is a job
        :raises LakecommitError: the engine cannot be started, or a job not be made
        """
        jobs = {ticket: self.group(ticket).left(opened.state) for ticket in opened.groups}
        if any(jobs.values()) and not self.stopping:
            start()
        return WindowWrite(self, jobs)

    def run(self, ticket: GroupTicket, job: WindowJob) -> Ended:
        """Run all of a group's jobs, in a thread."""

        def run(job: WindowJob) -> Sequence[SliceResult]:
            job = job.begun()
            # Before the check: a stop ends the registered jobs.
            self.jobs[job.job_id] = job
            try:
                if self.stopping:
                    raise SparkJobError("LC6233", f"the Spark job of group {job.group} did not begin: it was stopped")
                return self.engine.run(job, self._secrets(job))
            finally:
                del self.jobs[job.job_id]

        group = self.group(ticket)
        return group.run(job, run, lambda: None if self.stopping else group.left())

    def _secrets(self, job: WindowJob) -> Secrets:
        try:
            return secrets_for(self.session.tables, self.session.kafka, [job], log=self.session.log)
        except LakecommitError as e:
            raise SparkJobError("LC6234", f"the Spark job of group {job.group} did not begin: {e}") from e

    def ask_to_end(self, reason: str) -> None:
        """Ask the tasks of all running jobs to end early."""
        for job in list(self.jobs.values()):
            end_job(self.session.control, job, reason)

    def saved(self, ticket: GroupTicket, *, logged: bool) -> GroupResult:
        """Return a group's reported work, by the log.

        :param logged: log it in the run's log too
        """
        result = self.group(ticket).result()
        if logged:
            self.session.log(f"group {ticket.group}: {result}")
        return result

    def group(self, ticket: GroupTicket) -> GroupWrite:
        """Return the write step of a group."""
        of, tables = self.session, self.session.tables
        return GroupWrite(
            landing=of.landing, control=of.control, catalog=tables.name, load=tables.load, ticket=ticket, log=of.log
        )


class WindowWrite:
    """The running jobs of one window."""

    def __init__(self, writers: WindowWriter, jobs: dict[GroupTicket, WindowJob | None]) -> None:
        self._writers = writers
        self._jobs = jobs
        self._todo = {ticket: job for ticket, job in jobs.items() if job is not None}
        self._began = self._ended = time.monotonic()
        pool = ThreadPoolExecutor(max_workers=max(1, len(self._todo)), thread_name_prefix="group")
        self._running: dict[GroupTicket, Future[Ended]] = {
            ticket: pool.submit(writers.run, ticket, job) for ticket, job in self._todo.items()
        }
        pool.shutdown(wait=False)

    @property
    def has_jobs(self) -> bool:
        return bool(self._todo)

    @property
    def seconds(self) -> float:
        """Return the seconds from the beginning to the end of :meth:`wait`."""
        return self._ended - self._began

    def wait(self) -> None:
        """Wait until all jobs have ended.

        :raises BaseException: the error of a job that is not the end of a Spark job, or an interruption of the caller
        """
        writers = self._writers
        try:
            with report_progress(writers.session.control, list(self._todo.values()), *writers.progress):
                wait(self._running.values())
            for each in self._running.values():
                each.result()
        except BaseException:
            writers.engine.stop()
            raise
        finally:
            self._ended = time.monotonic()

    def let_end(self) -> None:
        """Wait for the end, whatever the result."""
        wait(self._running.values())

    def written(self) -> Written:
        """Return the window's result, after its end.

        :raises LakecommitError: the log cannot be read
        """
        ended = {ticket: each.result() for ticket, each in self._running.items()}
        return sum((self._written(t, *ended.get(t, (job, ()))) for t, job in self._jobs.items()), Written())

    def _written(self, ticket: GroupTicket, job: WindowJob | None, outcome: JobOutcome) -> Written:
        """Return a group's result, by its engine, else by the control topic."""
        before = Counter({SliceStatus.REPORTED: ticket.slices - (len(job.plan.slices) if job else 0)})
        if job is None:
            return Written(slices=+before)
        if outcome and not isinstance(outcome, SparkJobError):
            unfinished = tuple(str(r) for r in outcome if not r.status.is_reported)
            return Written(slices=+before + Counter(r.status for r in outcome), unfinished=unfinished)
        died = (str(outcome),) if isinstance(outcome, SparkJobError) else ()
        result = self._writers.saved(ticket, logged=bool(died))
        done = result.done - before[SliceStatus.REPORTED]
        now = Counter({SliceStatus.DONE: done, SliceStatus.AGAIN: 0 if died else len(result.left)})
        return Written(slices=+before + now, unfinished=tuple(f"not reported: {s}" for s in result.left), died=died)


MOST_ABANDONED = 1000
"""Most abandoned cycles that a process remembers; the claims of older ones end by their deadline."""
_abandoned: dict[UUID, None] = {}
"""Abandoned cycles of all runs of this process, the oldest first."""


@dataclass(slots=True, kw_only=True)
class OpenWindow:
    """An open cycle of the run. ``error`` is what kept its jobs from beginning; without either it is over."""

    number: int
    run: RunIdentity
    opened: Opened
    writing: WindowWrite | None = None
    error: LakecommitError | None = None
    released: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def outcome(self, written: Written, closed: Closed) -> CycleOutcome:
        return CycleOutcome(
            number=self.number,
            opened=self.opened,
            written=written,
            closed=closed,
            seconds=self.seconds,
            released=self.released,
        )

    def ended_before(self) -> CycleOutcome:
        """Return the outcome of a cycle that was found to be over."""
        lacking, ticket = tuple(map(str, self.opened.lacking)), self.opened.ticket
        closed = Closed(commit_id=ticket.commit_id, finished=True, note=self.opened.note, missing=lacking)
        return self.outcome(Written(), closed)


def without_window(number: int, done: tuple[Opened, Closed], seconds: float) -> CycleOutcome:
    """Return the outcome of a cycle that only committed."""
    opened, closed = done
    return CycleOutcome(number=number, opened=opened, written=Written(), closed=closed, seconds={"close": seconds})


def abandon(commit_ids: Iterable[UUID]) -> None:
    """Let the next run of this process end these cycles: their run ended with an error and left them open."""
    _abandoned.update(dict.fromkeys(commit_ids))
    for oldest in list(_abandoned)[:-MOST_ABANDONED]:
        _abandoned.pop(oldest, None)


class Releases:
    """The cycles that the START of a run's next cycle ends.

    :param is_dead: decides which open cycles are of dead processes
    :ivar dead: those that the newest read found, including abandoned ones
    """

    def __init__(self, is_dead: Callable[[Cycle], bool]) -> None:
        self._is_dead = is_dead
        self._left: set[UUID] = set()
        self._known: set[UUID] = set()
        self.dead: set[UUID] = set()

    def leave(self, commit_id: UUID) -> None:
        """Record a cycle that the run closed without completing it."""
        self._left.add(commit_id)

    def is_left(self, cycle: Cycle) -> bool:
        return cycle.commit_id in self._left

    def end_with(self, windows: Iterable[OpenWindow]) -> None:
        """After an error, abandon the run's open cycles, and those that it closed without a COMPLETE."""
        abandon([*self._left, *(w.opened.ticket.commit_id for w in windows)])

    def take_up(self, commit_id: UUID) -> None:
        """Record that the run works on that cycle: it is not abandoned any more."""
        _abandoned.pop(commit_id, None)

    def begin(self) -> None:
        """Begin a read of the open cycles."""
        self.dead, self._known = set(), set()

    def __call__(self, cycle: Cycle) -> bool:
        """Return True if it must end."""
        if self.is_left(cycle):
            self._known.add(cycle.commit_id)
            return True
        if cycle.commit_id not in self.dead and (cycle.commit_id in _abandoned or self._is_dead(cycle)):
            self.dead.add(cycle.commit_id)
        return cycle.commit_id in self.dead

    def done(self) -> None:
        """Record that a cycle was opened after the read: left cycles that it did not ask about were already over."""
        self._left &= self._known
