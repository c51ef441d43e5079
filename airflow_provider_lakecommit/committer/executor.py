# SPDX-License-Identifier: Apache-2.0
"""Work on tables for callers that have no event loop: an Airflow task, the command line.

Contract: :meth:`CommitterThread.run_exclusive` does a call alone on a table; see
:mod:`~airflow_provider_lakecommit.committer.blocking_pool` for the order and the threads.

Failure story: the loop runs in its own thread, so that a signal or a task's timeout reaches the caller at once, even if
a call hangs, and never a callback of the loop, which would swallow it. An interrupted caller waits only briefly for
running work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Future
from typing import Any, Generic, Self, TypeVar

from airflow_provider_lakecommit.committer.blocking_pool import BlockingPool, ExitError

GRACE = 5.0
"""Seconds for running work to end when the committer is closed."""
INTERRUPTED = 1.0
"""The same for an interrupted caller, which must end soon."""

T = TypeVar("T")


class _Call(Generic[T]):
    """Work for the loop that its caller can cancel at any moment, even before it has a future."""

    def __init__(self, work: Callable[[BlockingPool], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def run(self, pool: BlockingPool) -> T:
        if self._cancelled:
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        return await self._work(pool)

    def cancel(self) -> None:
        """Cancel the work, in the loop's thread."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


class CommitterThread:
    """A pool of threads in a loop of its own. A context manager.

    :param grace: seconds for running work to end at the end of the block
    """

    def __init__(self, *, grace: float = GRACE) -> None:
        self._grace = grace
        self._ready: Future[tuple[asyncio.AbstractEventLoop, BlockingPool, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._serve, name="lakecommit-committer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        loop, _pool, leave = self._ready.result()
        if kind is not None and not issubclass(kind, Exception):
            self._grace = min(self._grace, INTERRUPTED)
        loop.call_soon_threadsafe(leave.set)
        # The wait of a close, and the loop's own work. The rest ends with the process.
        self._thread.join(2 * self._grace + 1)

    def run(self, work: Callable[[BlockingPool], Coroutine[Any, Any, T]]) -> T:
        """Run *work* in the loop, and wait for it. An exception that reaches the waiting caller cancels it."""
        loop, pool, _ = self._ready.result()
        call = _Call(work)
        try:
            return asyncio.run_coroutine_threadsafe(call.run(pool), loop).result()
        except BaseException:
            loop.call_soon_threadsafe(call.cancel)
            raise

    def run_exclusive(self, table: Hashable, call: Callable[[], T]) -> T:
        """:meth:`BlockingPool.run`, waited for; whatever ended the call is raised as it was."""
        try:
            return self.run(lambda pool: pool.run(table, call))
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
        pool = BlockingPool()
        self._ready.set_result((asyncio.get_running_loop(), pool, leave))
        await leave.wait()
        await pool.drain(self._grace)
