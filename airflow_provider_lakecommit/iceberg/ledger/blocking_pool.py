# SPDX-License-Identifier: Apache-2.0
"""The threads for catalog calls: few, reused, and a hanging table takes none from the others.

Contract: a thread does a call of an event loop, and its result or error is returned or raised where it was awaited. At
most ``threads`` calls run at a time, at most ``per_table`` of one table. A call that has not returned after
``slow_after`` seconds *hangs*: it is no longer counted, so that another thread takes its place, up to ``most`` threads.
When it returns, excess threads end. Calls begin in order of arrival; calls of a table at its limit wait and delay no
other table.

Invariants: a thread cannot be stopped. A begun call is awaited, also by a cancelled caller, so that a turn is held
until its call is over; a call that has not begun is withdrawn at once.

Failure story: :meth:`BlockingPool.close` abandons hanging calls; the next attempt reads their outcome from the table.
The threads are daemons, so that a hanging call does not keep the process alive (as those of :mod:`concurrent.futures`
would). If the system gives no more threads, the pool uses those it has.

Everything but the calls themselves belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import ClosedError

THREADS = 8
"""Concurrent calls of the catalog."""
MOST = 128
"""Threads, including those of hanging calls."""
PER_TABLE = 2
"""Concurrent calls of one table, so that readers of a hanging table take no more."""
SLOW_AFTER = 1.0
"""Seconds after which a call counts as hanging. If all calls are slow, ``threads / slow_after`` of them begin each
second, as long as there may be more threads.
"""
WARN_AFTER = 30.0
"""Seconds between log lines about a hanging call."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


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
        per_table: int = PER_TABLE,
        slow_after: float = SLOW_AFTER,
        warn_after: float = WARN_AFTER,
        log: Callable[[str], None] = _log.warning,
    ) -> None:
        if not 1 <= threads <= most or per_table < 1:
            raise ValueError(f"threads={threads}, most={most}, per_table={per_table}: at least 1, and threads <= most")
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._most = most
        self._slow_after = slow_after
        self._warn_after = warn_after
        self._log = log
        self._queue = CallQueue(per_table)
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

    async def run(self, table: Hashable, call: Callable[[], T]) -> T:
        """Do a blocking call in a thread; a cancelled caller waits until a begun call is over.

        :raises ClosedError: the pool was closed before the call returned
        :raises RuntimeError: the system does not give a single thread
        """
        if self._closed:
            raise _closed_error(table)
        job = Call(table=table, do=call, context=copy_context(), done=self._loop.create_future())
        self._queue.add(job)
        try:
            self._begin()
        except RuntimeError:
            self._queue.withdraw(job)
            raise
        cancelled: asyncio.CancelledError | None = None
        while not job.done.done():
            try:
                await asyncio.wait([job.done])
            except asyncio.CancelledError as e:
                if not job.begun:
                    self._queue.withdraw(job)
                    self._begin()
                    raise
                cancelled = e
        if cancelled is None:
            result: T = job.done.result()
            return result
        if (error := job.done.exception()) and not isinstance(error, ClosedError):
            _log.warning("A catalog call for %s failed after it was cancelled: %s", table, error)
        raise cancelled

    def close(self) -> None:
        """Abandon all calls: their callers get :class:`ClosedError`, threads end when they return."""
        self._closed = True
        waiting = [*self._queue.ready, *(job for aside in self._queue.aside.values() for job in aside)]
        self._queue = CallQueue(self._queue.per_table)
        for job in (*waiting, *self._busy.values()):
            job.stop_timer()
            if not job.done.done():
                job.done.set_exception(_closed_error(job.table))
                # An exception without a caller would be logged as never retrieved.
                job.done.exception()
        for worker in (*self._idle, *self._busy):
            worker.inbox.put(None)
        self._idle.clear()
        self._busy.clear()

    # -- the threads --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Give waiting jobs to threads, up to the limit."""
        while self._queue.ready and self._counted < self._threads and (worker := self._worker()):
            job, _ = self._queue.ready.popitem(last=False)
            job.timer = self._loop.call_later(self._slow_after, self._hangs, worker)
            self._busy[worker] = job
            worker.inbox.put(job)

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
        self._queue.free(job.table)
        if len(self._idle) + self._counted < self._threads:
            self._idle.append(worker)
        else:
            worker.inbox.put(None)
        self._begin()


def _closed_error(table: Hashable) -> ClosedError:
    return ClosedError(
        "LC3006",
        f"{table}: the committer of this process abandoned its calls; the next attempt reads the result of this one "
        "from the table",
    )


class ExitError(RuntimeError):
    """A call ended with what no event loop may see: an exit of its thread, or a StopIteration. ``__cause__`` has it."""


@dataclass(eq=False, slots=True, kw_only=True)
class Call:
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


@dataclass(slots=True)
class CallQueue:
    """Waiting calls, in order; those of tables at their limit are passed over."""

    per_table: int
    ready: OrderedDict[Call, None] = field(default_factory=OrderedDict)
    aside: dict[Hashable, OrderedDict[Call, None]] = field(default_factory=dict)
    taken: Counter[Hashable] = field(default_factory=Counter)

    def add(self, call: Call) -> None:
        if self.taken[call.table] < self.per_table:
            self.taken[call.table] += 1
            self.ready[call] = None
        else:
            self.aside.setdefault(call.table, OrderedDict())[call] = None

    def free(self, table: Hashable) -> None:
        """Note that a ready or begun call of the table is over."""
        self.taken[table] -= 1
        if waiting := self.aside.get(table):
            call, _ = waiting.popitem(last=False)
            self.taken[table] += 1
            self.ready[call] = None
        self._forget(table)

    def withdraw(self, call: Call) -> None:
        if call in self.ready:
            del self.ready[call]
            self.free(call.table)
        elif call in (waiting := self.aside.get(call.table, OrderedDict())):
            del waiting[call]
            self._forget(call.table)

    def _forget(self, table: Hashable) -> None:
        if not self.aside.get(table, True):
            del self.aside[table]
        if not self.taken[table]:
            del self.taken[table]
