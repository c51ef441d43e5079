# SPDX-License-Identifier: Apache-2.0
"""The threads for catalog calls: few, reused, and one call of a table at a time; a table that hangs stops no other.

Contract: a thread does a call of an event loop, and its result or error is returned or raised where it was awaited.
Calls of one table begin in order of arrival, each when the one before it is over, whether or not its caller still
waits. At most ``threads`` calls run at a time. A call that has not returned after ``slow_after`` seconds *hangs*: it is
no longer counted, so that another thread takes its place, up to ``most`` threads. When it returns, excess threads end.

Invariants: a thread cannot be stopped. A cancelled caller leaves at once, but a begun call holds its table until it
is over; a call that has not begun is withdrawn. A call that awaits another one of the same pool is refused, because
the two could wait for each other.

Failure story: :meth:`BlockingPool.close` abandons hanging calls; the next attempt reads their outcome from the table.
The threads are daemons, so that a hanging call does not keep the process alive (as those of :mod:`concurrent.futures`
would). If the system gives no more threads, the pool uses those it has.

Everything but the calls themselves belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import ClosedError

THREADS = 8
"""Concurrent calls of the catalog."""
MOST = 128
"""Threads, including those of hanging calls."""
SLOW_AFTER = 1.0
"""Seconds after which a call counts as hanging. If all calls are slow, ``threads / slow_after`` of them begin each
second, as long as there may be more threads.
"""
WARN_AFTER = 30.0
"""Seconds between log lines about a hanging call."""

T = TypeVar("T")

_log = logging.getLogger(__name__)
_inside: ContextVar[Call | None] = ContextVar("lakecommit_call", default=None)


class _Worker(threading.Thread):
    """Does one job after the other until it gets ``None`` or its loop is closed."""

    def __init__(self, number: int, came_back: Callable[[_Worker, Call], None]) -> None:
        super().__init__(name=f"lakecommit-catalog-{number}", daemon=True)
        self.inbox: SimpleQueue[Call | None] = SimpleQueue()
        self._came_back = came_back

    def run(self) -> None:
        while (job := self.inbox.get()) is not None:
            job.run()
            self._came_back(self, job)
            # An idle thread keeps nothing alive.
            del job


class BlockingPool:
    """Threads for the blocking calls of one event loop; made while it runs.

    :param log: takes a line for a call that has hung for ``warn_after`` seconds
    """

    def __init__(
        self,
        *,
        threads: int = THREADS,
        most: int = MOST,
        slow_after: float = SLOW_AFTER,
        warn_after: float = WARN_AFTER,
        log: Callable[[str], None] = _log.warning,
    ) -> None:
        if not 1 <= threads <= most:
            raise ValueError(f"threads={threads}, most={most}: at least 1, and threads <= most")
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._most = most
        self._slow_after = slow_after
        self._warn_after = warn_after
        self._log = log
        self._ready: OrderedDict[Call, None] = OrderedDict()
        # The calls that wait for their table, by each table with a ready or begun call.
        self._behind: dict[Hashable, deque[Call]] = {}
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Call] = {}
        self._begun = 0
        self._closed = False

    @property
    def size(self) -> int:
        """Return the number of threads."""
        return len(self._idle) + len(self._busy)

    @property
    def hanging(self) -> tuple[Hashable, ...]:
        """Return the tables of hanging calls."""
        return tuple(job.table for job in self._busy.values() if job.hangs)

    @property
    def tables(self) -> frozenset[Hashable]:
        """Return the tables with a begun or waiting call."""
        return frozenset(self._behind)

    async def run(self, table: Hashable, call: Callable[[], T]) -> T:
        """Do a blocking call in a thread, alone on a table, after all calls submitted for it before.

        :param table: identifies the table in this process; callers of one table pass equal names
        :raises ClosedError: the pool was closed before the call returned; only the table shows whether it did its work
        :raises RuntimeError: called by a call of this pool, or the system does not give a single thread
        """
        outer = _inside.get()
        if outer is not None and outer.pool is self and not outer.done.done():
            raise RuntimeError(f"a turn for {table} was requested inside a turn for {outer.table}: this can deadlock")
        if self._closed:
            raise _shutting_down(table)
        job = Call(pool=self, table=table, do=call, context=copy_context(), done=self._loop.create_future())
        job.context.run(_inside.set, job)
        if table in self._behind:
            self._behind[table].append(job)
        else:
            self._behind[table] = deque()
            self._ready[job] = None
        try:
            self._begin()
        except RuntimeError:
            self._withdraw(job)
            raise
        try:
            await asyncio.wait([job.done])
        except asyncio.CancelledError:
            if job.begun or job.done.done():
                job.done.add_done_callback(partial(_unheard, table))
            else:
                self._withdraw(job)
                self._begin()
            raise
        result: T = job.done.result()
        return result

    async def drain(self, grace: float) -> None:
        """Refuse calls that wait for their table; let the others end within *grace* seconds, then abandon them."""
        self._closed = True
        for table, behind in self._behind.items():
            while behind:
                _fail(behind.popleft(), _shutting_down(table))
        if pending := [job.done for job in (*self._ready, *self._busy.values())]:
            await asyncio.wait(pending, timeout=grace)
        self.close()

    def close(self) -> None:
        """Abandon all calls: their callers get :class:`ClosedError`, threads end when they return."""
        self._closed = True
        waiting = [*self._ready, *(job for behind in self._behind.values() for job in behind)]
        for job in (*waiting, *self._busy.values()):
            job.stop_timer()
            if not job.done.done():
                _fail(
                    job,
                    ClosedError(
                        "LC3006",
                        f"{job.table}: the committer of this process abandoned its calls; the next attempt reads the "
                        "result of this one from the table",
                    ),
                )
        for worker in (*self._idle, *self._busy):
            worker.inbox.put(None)
        for held in (self._ready, self._behind, self._idle, self._busy):
            held.clear()

    # -- the threads --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Give waiting jobs to threads, up to the limit."""
        while self._ready and self._counted < self._threads and (worker := self._worker()):
            job, _ = self._ready.popitem(last=False)
            job.timer = self._loop.call_later(self._slow_after, self._hangs, worker)
            self._busy[worker] = job
            worker.inbox.put(job)

    def _withdraw(self, job: Call) -> None:
        """Drop a call that has not begun."""
        if job in self._ready:
            del self._ready[job]
            self._free(job.table)
        else:
            self._behind[job.table].remove(job)

    def _free(self, table: Hashable) -> None:
        """Let the next call of a table begin, whose ready or begun call is over."""
        if behind := self._behind[table]:
            self._ready[behind.popleft()] = None
        else:
            del self._behind[table]

    @property
    def _counted(self) -> int:
        return sum(not job.hangs for job in self._busy.values())

    def _worker(self) -> _Worker | None:
        if self._idle:
            return self._idle.pop()
        if self.size >= self._most:
            return None
        self._begun += 1
        worker = _Worker(self._begun, self._came_back)
        try:
            worker.start()
        except RuntimeError as e:
            if not self.size:
                raise
            self._log(f"The committer continued with {self.size} threads: {e}")
            self._most = self.size
            return None
        return worker

    def _hangs(self, worker: _Worker) -> None:
        job = self._busy[worker]
        job.hangs = True
        job.timer = self._loop.call_later(self._warn_after, self._warn, worker, self._warn_after)
        self._begin()

    def _warn(self, worker: _Worker, seconds: float) -> None:
        job, hanging, room = self._busy[worker], len(self.hanging), max(0, self._most - self._threads)
        job.timer = self._loop.call_later(self._warn_after, self._warn, worker, seconds + self._warn_after)
        self._log(
            f"{job.table}: a catalog call has not returned for {seconds:g} s; other tables continue ({hanging} "
            f"calls hang now; more than {room} would delay other tables)"
        )

    def _came_back(self, worker: _Worker, job: Call) -> None:
        """Return a result, in a thread. A closed loop waits for nothing."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._over, worker, job)

    def _over(self, worker: _Worker, job: Call) -> None:
        job.settle()
        if self._busy.pop(worker, None) is None:
            return
        job.stop_timer()
        self._free(job.table)
        if len(self._idle) + self._counted < self._threads:
            self._idle.append(worker)
        else:
            worker.inbox.put(None)
        self._begin()


def _fail(job: Call, error: ClosedError) -> None:
    job.done.set_exception(error)
    # An exception without a caller would be logged as never retrieved.
    job.done.exception()


def _unheard(table: Hashable, done: asyncio.Future[Any]) -> None:
    """Log the failure of a call whose caller was cancelled."""
    if (error := done.exception()) is not None and not isinstance(error, ClosedError):
        _log.warning("A catalog call for %s failed after it was cancelled: %s", table, error)


def _shutting_down(table: Hashable) -> ClosedError:
    return ClosedError(
        "LC3038", f"{table}: the committer of this process is shutting down; the next attempt continues from here"
    )


class ExitError(RuntimeError):
    """A call ended with what no event loop may see: an exit of its thread, or a StopIteration. ``__cause__`` has it."""


@dataclass(eq=False, slots=True, kw_only=True)
class Call:
    pool: BlockingPool
    table: Hashable
    do: Callable[[], Any]
    context: Context
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    timer: asyncio.TimerHandle | None = None
    hangs: bool = False

    @property
    def begun(self) -> bool:
        return self.timer is not None

    def run(self) -> None:
        """Do the call, in a thread."""
        try:
            self.result = self.context.run(self.do)
        except BaseException as e:
            self.error = e

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def settle(self) -> None:
        """Pass the result on, in the loop."""
        if self.done.done():
            if self.error is not None:
                _log.warning("A catalog call for %s failed after it was abandoned: %s", self.table, self.error)
        elif self.error is None:
            self.done.set_result(self.result)
        elif isinstance(self.error, Exception) and not isinstance(self.error, StopIteration):
            self.done.set_exception(self.error)
        else:
            # A thread's exit must not reach the loop, and futures refuse StopIteration.
            error = ExitError(f"a call of {self.table} ended with {self.error!r}")
            error.__cause__ = self.error
            self.done.set_exception(error)
