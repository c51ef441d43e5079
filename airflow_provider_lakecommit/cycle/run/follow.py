# SPDX-License-Identifier: Apache-2.0
"""Continuous mode: a run that waits for the next window instead of ending.

Contract: :class:`Follow` has the interface of the loop that it drives
(:class:`~airflow_provider_lakecommit.cycle.run.loop.LandingRunner`) and yields cycles once they are closed. Between
them it checks the ends of the source, rarely while nothing arrives, and opens the next window when
:mod:`~airflow_provider_lakecommit.cycle.run.next_window` says so. Without new records a cycle is opened only every few
minutes. While it is behind, windows follow at once, each as large as the backlog or the landing's limits allow. It ends
when it is stopped, when its time is over, ``over`` returns True, or a later run of its DAG has taken over
(:mod:`~airflow_provider_lakecommit.cycle.run.successor`): it then opens no window, and finishes the open ones.

Failure story: it waits for transient errors to pass (:mod:`~airflow_provider_lakecommit.cycle.run.pauses`); errors
that need an operator end it, like any run. If commits fail for one table while others continue, it does not end;
missing rows of a table are an error at its end. A killed run leaves what any killed run leaves, and any next run
continues from there. Nothing grows with the number of windows.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

from airflow_provider_lakecommit.core import Cycle
from airflow_provider_lakecommit.cycle.run.interval import Interval, WindowLog, had_trouble
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run.next_window import FollowOptions, Pace, ahead_of, is_full
from airflow_provider_lakecommit.cycle.run.pauses import Troubles
from airflow_provider_lakecommit.cycle.run.successor import Successor
from airflow_provider_lakecommit.cycle.run.upkeep import Upkeep
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.session.progress import LOG_SECONDS, Progress
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.iceberg import CommitterThread, Tables
from airflow_provider_lakecommit.spark import Engine

DEFERRED_SECONDS = 30.0
"""Seconds before the next window after the loop found none."""
CHECK_SECONDS = 10.0
"""Seconds between two checks for the end."""
STEP_SECONDS = 0.25
HELD_UP_CHECKS = 3
_M_ARENA_MAX = -8
ARENAS = 2
"""Arenas of glibc in a process that runs for days."""


class Follow:
    """One run in continuous mode.

    :param identify: returns the identity of the run's n-th cycle
    :param log: the session's log, too
    :param release: decides which open cycles are of dead processes, so that their claims end
    :param early: start the engine while the first cycle is opened
    :param progress: called regularly with the progress of writing; by default it is logged
    :param over: returns True to end the run before its time is over
    :param turns: take over from continuous runs of the same DAG, and end when a later one does
    :param maintain: as for :class:`LandingRunner`
    """

    def __init__(
        self,
        session: LandingSession,
        engine: Engine,
        identify: Callable[[int], RunIdentity],
        options: FollowOptions,
        log: WindowLog,
        *,
        release: Callable[[Cycle], bool] = lambda _: False,
        early: bool = False,
        progress: tuple[Callable[[Progress], None], float] | None = None,
        over: Callable[[], bool] = lambda: False,
        turns: bool = False,
        maintain: Callable[[], None] = lambda: None,
    ) -> None:
        self._session, self._options, self._log = session, options, log
        self._successor = Successor(session, log.write, engine.start, turns=turns)
        self._identify = identify
        self._next, self._newest = 0, -1
        self._closing = ExitStack()
        self._executor = self._closing.enter_context(CommitterThread())
        self._runner = LandingRunner(
            session,
            engine,
            self._identify_next,
            release=release,
            executor=self._executor,
            early=early,
            progress=progress or (lambda line: log.write(str(line)), LOG_SECONDS),
            maintain=maintain,
        )
        self._run_is_over = over
        self._upkeep = Upkeep(session, self._executor, options.keep_snapshots)
        self._troubles = Troubles()
        self._age = options.window_age.total_seconds()
        now = time.monotonic()
        self._pace = Pace.after(now, self._age)
        self._interval, self._logged_at, self._checked_at = Interval(), now, now
        self._ahead = self._held_up = 0
        life = options.lifetime
        self._until = None if life is None else now + life.total_seconds()
        self._ended = False

    @property
    def tables(self) -> Tables:
        """Return the catalog of the landing."""
        return self._session.tables

    @property
    def under_way(self) -> bool:
        """Return True if a cycle is open."""
        return self._runner.under_way

    def stop(self, reason: str = "the run was stopped", grace: float = 0.0) -> None:
        """Stop the running jobs and open no further cycle; returns at once. For signal handlers.

        :param grace: seconds for tasks to report what they have read, which is then published
        """
        self._runner.stop(reason, grace)

    def report_interrupted(self) -> None:
        """After an interruption, log what is saved and what will be read again."""
        self._runner.report_interrupted()

    def cycles(self, first: int = 0, most: int | None = None) -> Iterator[CycleOutcome]:
        """Yield cycles until the run is over, each once it is closed.

        :param first: number of the first one
        :param most: end after so many
        :raises LakecommitError: an error that needs an operator, or does not pass
        """
        self._next = first
        count = 0
        with self._closing:
            for count, outcome in enumerate(self._cycles(), 1):
                yield outcome
                self._log.end(trouble=had_trouble(outcome))
                if count == most:
                    break
            self._log.quiet = False
            self._log_interval(time.monotonic())
            yield from self._last_try(tries=count != most)

    def _identify_next(self, number: int) -> RunIdentity:
        """Return an identity for the loop, which calls this when it opens a cycle."""
        self._newest = max(self._newest, number)
        return self._successor.in_turn(self._identify(number))

    def _last_try(self, *, tries: bool) -> Iterator[CycleOutcome]:
        """Retry tables that commits fail for; a later continuous run has its own retry."""
        try:
            yield from self._runner.last_try(self._next, tries=tries and not self._successor.found)
        except LakecommitError as e:
            if self._successor.found:
                # A retry would take over from that run.
                raise TableError("LC6212", f"{e}: run {self._successor.found} continues with it") from e
            raise

    def _cycles(self) -> Iterator[CycleOutcome]:
        while True:
            newest: CycleOutcome | None = None
            try:
                for newest in self._runner.cycles(self._next, goes_on=True):
                    self._closed(newest)
                    yield newest
                    if self._over():
                        self._runner.open_no_more()
            except LakecommitError as e:
                # Numbers of cycles that were opened and not closed are not used again.
                self._next = max(self._next, self._newest + 1)
                self._put_off(e)
                if self._over():
                    raise
                continue
            if newest is not None and newest.deferred:
                self._rest(DEFERRED_SECONDS)
            else:
                self._log.quiet = True
                self._wait_for_a_window(newest)
            if self._over():
                return

    def _closed(self, outcome: CycleOutcome) -> None:
        self._next = outcome.number + 1
        self._successor.closed(outcome)
        self._ended = self._ended or self._successor.has_begun()
        if outcome.progress or (outcome.whole and not outcome.deferred):
            self._troubles.passed()
        now, since = time.monotonic(), (self._session.now() - outcome.opened.plan.requested_at).total_seconds()
        planned = now - max(0.0, since)
        table = self._session.landing.table
        self._interval.add(outcome, table, youngest=now - planned, oldest=now - self._pace.clean)
        self._pace = Pace.after(planned, self._age)
        self._now_and_then(now)

    def _wait_for_a_window(self, newest: CycleOutcome | None) -> None:
        if self._successor.is_due:
            return
        ends, limits = newest.opened.plan.ends if newest is not None else {}, self._session.landing.window
        self._rest(self._pace.first_check(time.monotonic()))
        while not self._over():
            checked_at = time.monotonic()
            try:
                source = self._session.source.watermarks()
            except LakecommitError as e:
                self._put_off(e)
                continue
            self._ahead, self._held_up = ahead_of(ends, source.partitions)
            now = time.monotonic()
            full = is_full(
                self._ahead, self._upkeep.record_bytes, max_records=limits.max_records, max_bytes=limits.max_bytes
            )
            self._pace, seconds, opens = self._pace.saw(self._ahead, checked_at=checked_at, now=now, full=full)
            self._rest(seconds)
            if opens:
                return

    def _put_off(self, error: LakecommitError) -> None:
        """Wait for an error to pass.

        :raises LakecommitError: the error, if it is not transient
        """
        pause = self._troubles.pause(error, stopping=self._runner.stopping)
        if pause is None:
            raise error
        self._log.end(trouble=True)
        self._log.write(f"WARNING: continuing in {pause:.0f} s, after error {self._troubles.row} in a row: {error}")
        self._rest(pause)

    def _over(self) -> bool:
        now = time.monotonic()
        if now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            self._ended = self._ended or self._run_is_over() or self._successor.has_begun()
        return self._ended or self._runner.stopping or (self._until is not None and now >= self._until)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._over() and (left := until - time.monotonic()) > 0:
            self._now_and_then(time.monotonic())
            time.sleep(min(left, STEP_SECONDS))

    def _now_and_then(self, now: float) -> None:
        if now - self._logged_at >= self._options.interval.total_seconds():
            self._log_interval(now)
            self._upkeep.run()

    def _log_interval(self, now: float) -> None:
        # Offsets are read one after the other: only a lasting difference is held up.
        held_up = self._held_up if self._pace.idle >= HELD_UP_CHECKS else 0
        self._log.write(self._interval.line(now - self._logged_at, self._ahead, held_up))
        self._log.next_interval()
        self._interval, self._logged_at = Interval(blocked=self._interval.blocked, failed=self._interval.failed), now


def runner_of(
    session: LandingSession,
    engine: Engine,
    identify: Callable[[int], RunIdentity],
    follow: FollowOptions | None,
    log: WindowLog,
    **options: Any,
) -> LandingRunner | Follow:
    """Return the runner of the cycles: until caught up, or continuous.

    :param options: options of both
    """
    if follow is None:
        return LandingRunner(session, engine, identify, **options)
    bound_arenas()
    return Follow(session, engine, identify, follow, log, **options)


def bound_arenas() -> None:
    """Limit new threads to :data:`ARENAS` arenas; other C libraries than glibc are unchanged. Each thread has its own
    arena otherwise, which keeps freed memory: every window reads and writes a megabyte of table metadata in several
    threads, so that arenas grew by some 10 MB a minute, mostly unused.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)
