# SPDX-License-Identifier: Apache-2.0
"""Submit work on tables, and await it. Table locks, threads and interceptors are behind it.

Contract: callers know two operations on a table, :meth:`Committer.run_exclusive` (alone) and
:meth:`Committer.run_shared` (alongside other readers), and await them. A step between submission and call, such as an
audit before the commit, is an *interceptor*: it gets the table's task and the next step while the task has the table,
and may take its time or refuse. Callers do not notice it.

Failure story: see :mod:`~airflow_provider_lakecommit.iceberg.ledger.table_locks` and
:mod:`~airflow_provider_lakecommit.iceberg.ledger.blocking_pool`. :class:`CommitterThread` serves callers without a
loop: its loop runs in its own thread, so that a signal or a task's timeout reaches the caller at once, even if a call
hangs, and never a callback of the loop, which would swallow it. An interrupted caller waits only briefly for running
work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Self, TypeVar

from airflow_provider_lakecommit.iceberg.ledger.blocking_pool import BlockingPool, ExitError
from airflow_provider_lakecommit.iceberg.ledger.table_locks import TableLocks

GRACE = 5.0
"""Seconds for running work to end when the committer is closed."""
INTERRUPTED = 1.0
"""The same for an interrupted caller, which must end soon."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """The submitted work. ``about`` is for interceptors: the request of a commit, for example."""

    table: Hashable
    exclusive: bool
    about: object = None


Interceptor = Callable[[TableTask, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Awaited with the task and the next step. It awaits that step and returns its result, or refuses."""

INTERCEPTORS: tuple[Interceptor, ...] = ()
"""Interceptors of every task of every committer, outermost first: the only place to add one."""


class Committer:
    """Work on many tables at once, in order for each of them. Made while its event loop runs.

    :param interceptors: interceptors of each task, outermost first; :data:`INTERCEPTORS` by default
    :param pool: the threads for blocking calls
    """

    def __init__(self, *, interceptors: Sequence[Interceptor] | None = None, pool: BlockingPool | None = None) -> None:
        self.table_locks = TableLocks()
        self.pool = pool or BlockingPool()
        self._interceptors = INTERCEPTORS if interceptors is None else tuple(interceptors)

    async def run_exclusive(self, table: Hashable, call: Callable[[], T], *, about: object = None) -> T:
        """Do a blocking call alone on a table, after all work submitted for it before.

        :param table: identifies the table in this process; callers of one table pass equal names
        :raises ClosedError: shutting down; only the table shows whether a begun call did its work
        """
        task = TableTask(table=table, exclusive=True, about=about)
        return await self.table_locks.exclusive(table, partial(self._do, task, call))

    async def run_shared(self, table: Hashable, call: Callable[[], T], *, about: object = None) -> T:
        """Do the same with a call that changes nothing, alongside other such calls."""
        task = TableTask(table=table, exclusive=False, about=about)
        return await self.table_locks.shared(table, partial(self._do, task, call))

    async def close(self, grace: float = GRACE) -> frozenset[Hashable]:
        """Let running work end within *grace* seconds, then abandon it; return tables with work that continues."""
        return await self.table_locks.close(grace, self.pool.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, task: TableTask, call: Callable[[], T]) -> T:
        way: Callable[[], Awaitable[Any]] = partial(self.pool.run, task.table, call)
        for interceptor in reversed(self._interceptors):
            way = partial(interceptor, task, way)
        result: T = await way()
        return result


class _Call(Generic[T]):
    """Work for the loop that its caller can cancel at any moment, even before it has a future."""

    def __init__(self, work: Callable[[Committer], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self, committer: Committer) -> T:
        if self._cancelled:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work(committer)

    def cancel(self) -> None:
        """Cancel the work, in the loop's thread."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


class CommitterThread:
    """A committer for callers that have no event loop: an Airflow task, the command line. A context manager.

    :param make: makes the committer, in its loop
    :param grace: as for :meth:`Committer.close`
    """

    def __init__(self, make: Callable[[], Committer] = Committer, *, grace: float = GRACE) -> None:
        self._make = make
        self._grace = grace
        self._ready: Future[tuple[asyncio.AbstractEventLoop, Committer, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._serve, name="lakecommit-committer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        loop, _committer, leave = self._ready.result()
        if kind is not None and not issubclass(kind, Exception):
            self._grace = min(self._grace, INTERRUPTED)
        loop.call_soon_threadsafe(leave.set)
        # Both waits of a close, and the loop's own work. The rest ends with the process.
        self._thread.join(2 * self._grace + 1)

    def run(self, work: Callable[[Committer], Coroutine[Any, Any, T]]) -> T:
        """Run *work* in the loop, and wait for it. An exception that reaches the waiting caller cancels it."""
        loop, committer, _ = self._ready.result()
        call = _Call(work)
        try:
            return asyncio.run_coroutine_threadsafe(call.run(committer), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(call.cancel)
            raise

    def run_exclusive(self, table: Hashable, call: Callable[[], T], *, about: object = None) -> T:
        """:meth:`Committer.run_exclusive`, waited for; whatever ended the call is raised as it was."""
        try:
            return self.run(lambda committer: committer.run_exclusive(table, call, about=about))
        except ExitError as e:
            raise e.__cause__ or e from None

    def _serve(self) -> None:
        try:
            asyncio.run(self._stay())
        except BaseException as e:
            if self._ready.done():
                raise
            self._ready.set_exception(e)

    async def _stay(self) -> None:
        leave = asyncio.Event()
        committer = self._make()
        self._ready.set_result((asyncio.get_running_loop(), committer, leave))
        await leave.wait()
        await committer.close(self._grace)
