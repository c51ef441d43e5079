# SPDX-License-Identifier: Apache-2.0
"""Many landings in one process: concurrent, with one committer, and independent of each other.

Contract: each landing's work runs in its own thread; a few begin at once, the others when one of these ends or takes
long. All commit through one committer, in turns per table. The result of each, or its exception, is kept by name.
Nothing runs any more when :meth:`ConcurrentLandings.run` has returned.

Failure story: a landing that fails or hangs affects no other. An interrupted caller returns after a moment: waiting
work does not begin, and hanging work is abandoned: when it comes back, its connections are closed, and its next step is
refused. Its earlier work is in tables and log, where the next attempt finds it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Self, TypeVar

from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import ClosedError
from airflow_provider_lakecommit.iceberg import BlockingPool, Committer, CommitterThread, ExitError

THREADS = 96
"""Concurrent landings, not counting slow ones. As many share each request to the brokers."""
MOST = 192
"""Concurrent landings, including slow ones."""
SLOW_AFTER = 5.0
"""Seconds after which a landing counts as slow."""

T = TypeVar("T")


class ConcurrentLandings:
    """Runs the landings of one call. A context manager.

    :param make: makes the committer, in its loop
    """

    def __init__(
        self,
        make: Callable[[], Committer] = Committer,
        *,
        threads: int = THREADS,
        most: int = MOST,
        slow_after: float = SLOW_AFTER,
    ) -> None:
        self.executor = CommitterThread(make)
        self._threads = threads
        self._most = most
        self._slow_after = slow_after
        self._open: dict[int, LandingSession] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        self.executor.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            self.executor.__exit__(kind, *rest)
        finally:
            with self._lock:
                self._closed = True
                left = list(self._open.values())
            for session in left:
                session.close()

    @contextmanager
    def session(self, make: Callable[[], LandingSession]) -> Iterator[LandingSession]:
        """Yield a session that is closed at the end of the block, or when everything is."""
        with make() as session:
            with self._lock:
                self._check()
                self._open[id(session)] = session
            try:
                yield session
            finally:
                with self._lock:
                    del self._open[id(session)]

    def run(self, works: Mapping[str, Callable[[], T]]) -> dict[str, T | BaseException]:
        """Run the works, each under its landing's name, and wait for all; return the result or exception of each.

        :raises BaseException: an interruption of the caller
        """
        ended: dict[str, T | BaseException] = {}

        async def one(pool: BlockingPool, name: str, work: Callable[[], T]) -> None:
            try:
                ended[name] = await pool.run(name, work)
            except ExitError as e:
                ended[name] = e.__cause__ or e
            except Exception as e:
                ended[name] = e

        async def every(_: Committer) -> None:
            # It has its own threads: a landing waits for tables, which must not wait for landings.
            pool = BlockingPool(threads=self._threads, most=self._most, slow_after=self._slow_after, log=_nobody)
            try:
                tasks = [asyncio.create_task(one(pool, name, work)) for name, work in works.items()]
                if tasks:
                    await asyncio.wait(tasks)
            finally:
                pool.close()

        self.executor.run(every)
        return {name: ended[name] for name in works}

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("LC6218", "this call has ended: the next attempt continues")


def _nobody(_: str) -> None:
    """Ignore the message: a hanging table call is already logged."""


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run it concurrently; without a waiting caller it ends with the process."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as e:
            ended.set_exception(e)

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended
