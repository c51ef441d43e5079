# SPDX-License-Identifier: Apache-2.0
"""The tables that a run's commits fail for while others continue: when to retry each, and what to log.

Contract: kept in memory for one run; what a table lacks is in the control topic. A failed table is tried by the next
commit, and later after each further failure (:data:`PAUSES`, :data:`SPARE`); until then commits skip it, and retries
give up quickly. So an unresponsive table costs the others little time after the first, patient commit. If no table of
rows would be left, none is skipped. A table's problem is logged when it begins, changes and ends.

Failure story: a run that dies forgets all of it, and the next one tries every table at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, TableError, Terminal

PAUSES = (0.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before a table is retried after one, two, more failures in a row."""
SPARE = 4
"""A failed table is skipped for at least this multiple of its commit's duration, so that others get most of the time.
"""
_VARIES = re.compile(r"[0-9][0-9a-f-]*")
"""Parts that may differ in two texts of one error: numbers and ids."""


@dataclass(slots=True)
class _Trouble:
    """The failures of one table. ``times`` counts failed commits in a row; it is not retried before ``again``."""

    error: LakecommitError
    since: float
    times: int = 0
    again: float = 0.0


class FailingTables:
    """The failing tables of one run.

    :param data_tables: the tables of rows of the landing
    :param log: takes log lines about them
    """

    def __init__(self, data_tables: Collection[str], log: Callable[[str], None]) -> None:
        self._data_tables, self._log = data_tables, log
        self._troubles: dict[str, _Trouble] = {}
        self._fast_fail: frozenset[str] = frozenset()
        self._began = monotonic()
        self._last = False
        self.left_out: frozenset[str] = frozenset()
        """The tables that the newest commit skipped."""

    def __bool__(self) -> bool:
        return bool(self._troubles)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._troubles)

    def begin(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the tables that a commit skips, and those that it gives up quickly, as others wait."""
        self._began = now = monotonic()
        early = frozenset(name for name, t in self._troubles.items() if now < t.again)
        self.left_out = early if set(self._data_tables) - early else frozenset()
        self._fast_fail = frozenset[str]() if self._last else frozenset(self._troubles)
        self._last = False
        return self.left_out, self._fast_fail

    def try_all(self) -> None:
        """Make the next commit skip none and be patient, as nothing waits after it."""
        self._last = True
        for trouble in self._troubles.values():
            trouble.again = 0.0

    def note(self, failures: Mapping[str, Exception], done: Iterable[str], *, others: bool) -> None:
        """Record the results of a commit.

        :param failures: by table
        :param done: the tables that took it
        :param others: True if the other tables continue
        """
        for name in done:
            if (over := self._troubles.pop(name, None)) is not None:
                seconds = monotonic() - over.since
                self._log(f"WARNING: {name} accepts commits again, after {_commits(over.times)} in {seconds:.0f} s")
        for name, error in failures.items():
            if isinstance(error, LakecommitError):
                self._failed(name, error, others=others)

    def _failed(self, name: str, error: LakecommitError, *, others: bool) -> None:
        now, before = monotonic(), self._troubles.get(name)
        trouble = self._troubles[name] = before or _Trouble(error, now)
        if before is None or _VARIES.sub("#", str(before.error)) != _VARIES.sub("#", str(error)):
            more = "; other tables continue, the slices of this one are kept and retried" if others else ""
            self._log(f"WARNING: {name}: {error}{more}")
        trouble.error = error
        trouble.times += 1
        # The duration of a patient commit does not predict that of an impatient one.
        spare = SPARE * (now - self._began) if name in self._fast_fail else 0.0
        trouble.again = now + max(PAUSES[min(trouble.times, len(PAUSES)) - 1], spare)

    def lines(self) -> dict[str, str]:
        """Return each table's duration and cause of failure."""
        return {name: f"{_commits(t.times)}; the last error: {t.error}" for name, t in self._troubles.items()}

    def error(self) -> LakecommitError | None:
        """Return why the tables lack something that the run landed: the error of the first one by name."""
        if not self._troubles:
            return None
        name, first = next(iter(self._troubles.items()))
        more = [f"{other}: {t.error}" for other, t in self._troubles.items() if other != name]
        text = f"{'' if name in str(first.error) else f'{name}: '}{first.error}"
        kept = f"the next run publishes the slices that wait for {', '.join(self._troubles)}"
        kind = TableError if isinstance(first.error, Terminal) else CatalogError
        return kind("LC6241", "; ".join([text, *more, kept]))


def _commits(times: int) -> str:
    return "1 failed commit" if times == 1 else f"{times} failed commits in a row"
