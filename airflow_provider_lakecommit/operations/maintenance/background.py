# SPDX-License-Identifier: Apache-2.0
"""Small compactions of a landing run, in their own thread, concurrently with the windows.

Contract: a table with `compact` whose debt reaches a fifth of its limit after a commit gets tiered compactions of a
bounded size until it is below that. So a table that gets a file every two seconds has a bounded number of files, and
each row is rewritten a few times in all. Windows do not wait for it. A process compacts one landing at a time, which
bounds its memory.

Failure story: errors are logged, and the next commit tries again. A run that ends waits for the running compaction, and
begins no further one.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.iceberg import debt_of
from airflow_provider_lakecommit.operations.maintenance.compact import compact

MOST_BYTES = 256 << 20
_ONE_AT_A_TIME = Lock()


class RunCompaction:
    """The compactions of one landing's tables; a context manager that waits for the thread.

    :param log: takes a line for each compaction, and for errors
    """

    def __init__(self, session: LandingSession, log: Callable[[str], None]) -> None:
        self._session, self._log = session, log
        self._thread: Thread | None = None
        self._over = Event()

    def __enter__(self) -> RunCompaction:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def begin(self) -> None:
        """Start to compact the tables that are due, unless that is running. Returns at once."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._run, name="compaction")
            self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                with _ONE_AT_A_TIME:
                    if not self._pass() or self._over.is_set():
                        return
        except Exception as e:
            # If the thread died silently, the table would grow.
            self._log(f"WARNING: could not compact: {type(e).__name__}: {e}")

    def _pass(self) -> bool:
        """Compact each table that is due once; return True if that changed something."""
        changed = False
        due = [name for name in self._session.landing.tables if self._is_due(name)]
        for done in compact(self._session, write=True, most_bytes=MOST_BYTES, tiered=True, tables=due):
            n = done.numbers
            if done.error:
                self._log(f"WARNING: {done.error}")
            elif done.snapshots:
                changed = True
                self._log(f"{done.table}: compacted {n.files_in} files into {n.files_out}")
        return changed

    def _is_due(self, name: str) -> bool:
        table = self._session.tables.find(name)
        if table is None:
            return False
        debt = debt_of(table.metadata, self._session.landing.branch, self._session.landing.maintain)
        return debt is not None and debt.due
