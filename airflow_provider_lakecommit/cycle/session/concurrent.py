# SPDX-License-Identifier: Apache-2.0
"""Many landings in one process: side by side, through one committer, and none held up by another.

Contract: each landing's work is done by a thread of its own; a few begin at once, the others when one of these has
ended or takes long. All commit through one committer, in turns per table. How each ended is known by its name: its
result, or what it raised. Nothing runs any more when :meth:`ConcurrentLandings.run` has returned.

Failure story: a landing that fails or hangs is that landing's alone. Whoever is interrupted leaves after a moment: what
has not begun does not begin, and what hangs is let go of: when it comes back, its connections are closed, and its next
step is refused. What it had done by then is in tables and log, where the next attempt looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self, TypeVar

from airflow_provider_lakecommit.committer import BlockingPool, Committer, CommitterThread, ExitError
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import ClosedError

__all__ = ["MOST", "SLOW_AFTER", "THREADS", "ConcurrentLandings"]

THREADS = 96
"""Landings at a time, not counting slow ones. As many share each request to the brokers."""
MOST = 192
"""Landings at a time, including slow ones."""
SLOW_AFTER = 5.0
"""Seconds after which a landing takes long."""

T = TypeVar("T")


class ConcurrentLandings:
    """Where landings of one call work. A context manager.

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
        """A session that is closed at the end of the block, or when everything is."""
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
        """Do the works, each under the name of its landing, and wait for all of them; how each ended.

        :raises BaseException: what interrupts the caller
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
    """A call of a table that hangs is logged; that its landing waits for it is no news."""
