# SPDX-License-Identifier: Apache-2.0
"""Cycle after cycle in one process, on any engine, until the landing is caught up.

Contract: an opened cycle is closed, whatever happens to its Spark jobs: reported slices are published. The groups of a
window run concurrently. If a window leaves records to the next, that one is opened and written while the first is still
written or committed, up to a limit; windows are closed and reported in the order of their opening. Connections and
engine are kept over the cycles of a run; storage keys from a catalog are renewed for the jobs of each cycle. A run that
is caught up by its newest plan ends there, without another cycle.

Failure story: a Spark job that dies loses its slices in progress: its cycle is closed, the windows ahead are ended as
they are, and a cycle of its own reads the missing ranges before any other is opened. Several cycles in a row without
progress end the run with the last reason. A run whose window is not admitted continues with the next cycle, after
growing waits, because its own commits drain the landing; if that does not help, it ends as a run with nothing to do,
and reports what clears the state. If nothing can be planned (the source lost offsets, a table needs an operator),
reported slices are published before the run ends with that error. A commit that fails for all tables of rows ends the
run with its error once open jobs have reported their work; one that fails for some is an error only at the end, if they
then lack something. A stopped run opens nothing more; its tasks end after the current record and report it, and slices
reported within the grace are published before the run ends with an error that names what is read again. Without a
grace, after it, or if interrupted, a run logs what is saved and publishes nothing more: the next attempt or run does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import wait
from contextlib import suppress

from airflow_provider_lakecommit.core import Cycle
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.commit.drain import drained_after, tried_again
from airflow_provider_lakecommit.cycle.commit.failing import FailingTables
from airflow_provider_lakecommit.cycle.jobs.window_writer import (
    OpenWindow,
    Releases,
    WindowWriter,
    abandon,
    without_window,
)
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.run.pauses import PausePolicy
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.concurrent import in_thread
from airflow_provider_lakecommit.cycle.session.early_end import EarlyEnd
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.cycle.session.progress import LOG_SECONDS, Progress
from airflow_provider_lakecommit.exceptions import LakecommitError, SparkJobError
from airflow_provider_lakecommit.iceberg import CommitterThread, Tables
from airflow_provider_lakecommit.spark import Engine

YIELD_SECONDS = 2.0
"""Seconds between checks of a run that lets others go first."""


class LandingRunner:
    """The cycles of one run.

    :param identify: returns the identity of the run's n-th cycle
    :param release: decides which open cycles are of dead processes, so that their claims end
    :param executor: a shared executor; by default each cycle makes its own
    :param progress: called regularly with the progress of writing; by default it is logged
    :param early: start the engine while the cycle is opened, even if there turns out to be nothing to do; for engines
        that cost almost nothing
    :param maintain: called after a cycle that asks for a compaction; must return at once
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
        maintain: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self._identify = identify
        self._releases = Releases(release)
        self._executor = executor
        self._maintain = maintain
        self._early = early
        self._log = session.log
        report = progress or (lambda progress: self._log(str(progress)), LOG_SECONDS)
        self._writers = WindowWriter(session, engine, report)
        self._engine = engine
        self._windows: deque[OpenWindow] = deque()
        self._gave_up = False
        self._again: list[str] = []
        self._early_end: EarlyEnd | None = None
        most = session.landing.pending_budget.open_cycles
        self._took = 0.0
        self._last = self._goes_on = False
        self._failing = FailingTables(session.landing.data_tables, session.log)
        self._at_once = 1 + (engine.ahead if most is None else min(engine.ahead, max(0, most - 1)))

    @property
    def tables(self) -> Tables:
        """Return the catalog of the landing."""
        return self._session.tables

    @property
    def under_way(self) -> bool:
        """Return True if a cycle is open."""
        return bool(self._windows)

    @property
    def stopping(self) -> bool:
        """Return True if the run was stopped."""
        return self._writers.stopping

    def open_no_more(self) -> None:
        """Finish the open windows, and open none after them."""
        self._last = True

    def cycles(self, first: int = 0, most: int | None = None, *, goes_on: bool = False) -> Iterator[CycleOutcome]:
        """Yield cycles until caught up, or *most* of them, each once it is closed. May be called again after its end.

        :param first: number of the first one
        :param goes_on: it will be called again: :meth:`last_try` then reports what tables lack
        :raises LakecommitError: a cycle cannot be opened or closed, none makes progress, the run was stopped, or tables
            lack something in the end
        """
        self._goes_on = goes_on
        self._early_end = early_end = EarlyEnd(self._writers.ask_to_end, self._give_up)
        try:
            end = first + most if most is not None else None
            number, end = yield from self._cycles(first, end)
            if not goes_on:
                yield from self.last_try(number, tries=number != end)
        except Exception:
            self._let_end()
            raise
        except BaseException:
            if self._windows:
                self._engine.stop()
            self._releases.end_with(self._windows)
            raise
        finally:
            early_end.close()

    def last_try(self, number: int, *, tries: bool = True) -> Iterator[CycleOutcome]:
        """Commit the tables that the newest commit skipped after failures.

        :param number: number of its cycle
        :param tries: False only reports them
        :raises LakecommitError: some table lacks something
        """
        if tries and self._failing.left_out and not self._writers.stopping:
            run, began = self._identify(number), time.monotonic()
            done = tried_again(
                self._session, run, self._failing, release=self._releases.is_left, executor=self._executor
            )
            yield without_window(number, done, time.monotonic() - began)
        if (error := self._failing.error()) is not None:
            raise error

    def _cycles(self, first: int, end: int | None) -> Generator[CycleOutcome, None, tuple[int, int | None]]:
        number, replanned, sound, pauses = first, first, True, PausePolicy()
        while True:
            error, number = self._fill(number, end, ahead=sound)
            if error is not None and not self._windows:
                if not self._writers.stopping:
                    run, began = self._identify(number), time.monotonic()
                    if drained := drained_after(self._session, run, error, executor=self._executor):
                        yield without_window(number, drained, time.monotonic() - began)
                raise error
            outcome = self._finish(self._windows[0])
            self._windows.popleft()
            yield outcome
            if outcome.closed.asks_for_compaction:
                self._maintain()
            # A window's missing ranges are for a cycle opened from then on: the open ones do not know of them.
            current = outcome.number >= replanned
            replanned, sound = (replanned, current) if outcome.whole else (number, False)
            pauses.note(outcome)
            # A cycle that was over before, that of a deleted run with the same id, is none of the most.
            end = end + 1 if end is not None and outcome.opened.finished else end
            if self._windows:
                continue
            if outcome.number + 1 == end or self._last or (outcome.final and current) or pauses.over:
                return number, end
            self._pause(pauses.pause(outcome))

    def _fill(self, number: int, end: int | None, *, ahead: bool) -> tuple[LakecommitError | None, int]:
        """Open the next cycle, and those allowed besides it; return the number of the next one, and the error that kept
        one from being opened.
        """
        while not self._windows or (ahead and number != end and self._leaves_more()):
            if not self._windows:
                self._let_others_go_first()
            try:
                self._begin(number)
            except LakecommitError as e:
                return e, number
            number += 1
        return None, number

    def _leaves_more(self) -> bool:
        """Return True if there is room for one more window, something to read, and its claim lasts until its turn."""
        newest = self._windows[-1]
        more = newest.writing is not None and newest.writing.has_jobs and newest.opened.plan.left > 0
        in_time = self._took * self._at_once < self._session.landing.window.completion_timeout.total_seconds() / 2
        free = len(self._windows) < self._at_once and not self._last
        return more and in_time and free and not self._writers.stopping and not self._session.yields()

    def _let_others_go_first(self) -> None:
        logged = ""
        while not self._writers.stopping and (why := self._session.yields()):
            if not logged:
                self._log(f"{why}: no window opens until that is landed")
            logged = why
            self._pause(YIELD_SECONDS)

    def _begin(self, number: int) -> None:
        """Open or continue the n-th cycle, and begin its jobs."""
        self._go_on_or_stop()
        run, began = self._identify(number), time.monotonic()
        starting = in_thread(self._engine.start, "engine") if self._early else None
        self._releases.begin()
        try:
            opened = open_cycle(self._session, run, release=self._releases, logged=self._failing.names)
        except LakecommitError:
            if starting:
                wait([starting])
            # Its START may be in the log although it could not be read back.
            abandon([cycle_id_of(self._session, run)])
            raise
        self._releases.done()
        self._releases.take_up(opened.ticket.commit_id)
        dead = self._releases.dead
        window = OpenWindow(number=number, run=run, opened=opened, released=len(dead))
        window.seconds["open"] = time.monotonic() - began
        self._windows.append(window)
        for commit_id in dead:
            self._log(f"cycle {commit_id} belongs to a run that has ended: freed its claims, kept its reported slices")
        for line in opened.lines(number):
            self._log(line)
        if not opened.finished:
            self._write(window, starting.result if starting else self._engine.start)

    def _write(self, window: OpenWindow, start: Callable[[], None]) -> None:
        def started() -> None:
            began = time.monotonic()
            start()
            window.seconds["spark"] = time.monotonic() - began

        try:
            window.writing = self._writers.begin(window.opened, started)
        except LakecommitError as e:
            window.error = e

    def _finish(self, window: OpenWindow) -> CycleOutcome:
        """Wait for a window's jobs, and close its cycle.

        :raises LakecommitError: an error of `close_cycle`, or the engine cannot run jobs at all; never the failure of a
            job
        """
        opened, number, writing = window.opened, window.number, window.writing
        if opened.finished:
            return window.ended_before()
        try:
            if writing is None:
                raise window.error or SparkJobError("LC6213", f"cycle {number} did not begin")
            writing.wait()
            if self._gave_up:
                self._go_on_or_stop()
            written = writing.written()
        except LakecommitError:
            if not self._writers.stopping:
                # The run cannot continue; reports of others are published anyway. This error matters more.
                with suppress(LakecommitError):
                    close_cycle(self._session, window.run, opened.ticket, executor=self._executor)
            raise
        if writing.has_jobs:
            window.seconds["write"] = self._took = writing.seconds
        # A commit that may be the run's last, or its only way to continue, skips no table.
        if opened.plan.deferred or not (opened.plan.left or self._goes_on):
            self._failing.try_all()
        began = time.monotonic()
        closed = close_cycle(self._session, window.run, opened.ticket, executor=self._executor, failing=self._failing)
        if closed.failed:
            self._releases.leave(opened.ticket.commit_id)
        window.seconds["close"] = time.monotonic() - began
        if self._writers.stopping:
            self._again += closed.missing
        return window.outcome(written, closed)

    def _let_end(self) -> None:
        """Before the run ends with an error, let the other open windows report their work."""
        under_way = [w.writing for w in self._windows if w.writing is not None and w.writing.has_jobs]
        if len(under_way) > 1 and not self._writers.stopping:
            self._log(f"{len(under_way) - 1} windows are still being written; the next run publishes their slices")
        for writing in under_way:
            writing.let_end()
        # Their work is in the log; the next run or attempt opens cycles again.
        self._releases.end_with(self._windows)
        self._windows.clear()

    def stop(self, reason: str = "the run was stopped", grace: float = 0.0) -> None:
        """Stop the running jobs and open no further cycle; returns at once. For signal handlers.

        :param reason: for logs
        :param grace: seconds for tasks to report what they have read, which is then published; without it, slices in
            progress are lost
        """
        self._writers.stopping = True
        if not grace:
            self._give_up()
        elif self._early_end is not None:
            self._early_end.request(reason, grace)

    def _give_up(self) -> None:
        self._gave_up = True
        self._engine.stop()

    def report_interrupted(self) -> None:
        """After an interruption, log what is saved and what will be read again."""
        tickets = [ticket for w in list(self._windows) if not w.opened.finished for ticket in w.opened.groups]
        for ticket in tickets:
            self._writers.saved(ticket, logged=True)
        self._log(
            "the next run publishes the reported slices"
            if tickets
            else "no window was being written; rows in the tables stay, and the next run continues from there"
        )

    def _go_on_or_stop(self) -> None:
        if not self._writers.stopping:
            return
        message = f"landing {self._session.landing.name} was stopped"
        if self._gave_up or not self._again:
            self.report_interrupted()
            raise SparkJobError("LC6214", message)
        raise SparkJobError(
            "LC6215", f"{message}: the records read so far are published, the next run reads {'; '.join(self._again)}"
        )

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._writers.stopping and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
