# SPDX-License-Identifier: Apache-2.0
"""Read a table until it is readable, within a bounded time: how an unknown outcome becomes known.

Contract: the outcome of a commit request is known only once the metadata has been read after it, whatever the catalog
answered. After a request, a failed read is retried with growing, jittered waits until the time is up; before that,
there is no outcome to find, and it fails at once. Clocks only bound the attempts. A catalog that refuses three requests
in a row (no right to it, an unsupported request, a full disk) gets no fourth one.

Failure story: if the table stays unreadable, :class:`CommitUnknownError` if a request was sent, else the
:class:`CatalogError` of the last read. Nothing is deleted; the next attempt checks again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.exceptions import BadRequestError, ForbiddenError, RESTError, UnauthorizedError
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import CatalogError, CommitRefusedError, CommitUnknownError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.catalog_errors import is_no_room

_NO_RIGHT = (ForbiddenError, UnauthorizedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits of a commit: at most ``seconds`` and ``requests``, and at most ``refusals`` refused requests in a row;
    waits double from ``first_wait`` on.
    """

    seconds: float = 120.0
    requests: int = 20
    refusals: int = 3
    first_wait: float = 0.1
    longest_wait: float = 10.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(slots=True, kw_only=True)
class OutcomeLookup:
    """The reads and waits of one commit."""

    tables: Tables
    identifier: str
    retry_policy: RetryPolicy
    requests: int = 0
    last_error: BaseException | None = None
    _refusals: int = 0
    _waits: int = 0
    _deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline = self.retry_policy.clock() + self.retry_policy.seconds

    def load(self) -> Table:
        """Return the present table.

        :raises CommitUnknownError: a request was sent and the table is unreadable
        :raises CatalogError: none was sent, and the table is unreadable
        :raises TableError: the table is missing
        """
        while True:
            try:
                return self.tables.load(self.identifier)
            except CatalogError as e:
                if not self.requests:
                    raise
                if self.wait():
                    continue
                raise CommitUnknownError(
                    "LC3019",
                    f"{self.requests} commit request(s) for {self.identifier} were sent and the table could not be "
                    f"read for {self.retry_policy.seconds:g} s since ({e}); the last request ended with "
                    f"{self._last_end()}. The snapshot may or may not be there; nothing was deleted, and the next "
                    "attempt checks again",
                ) from None

    def ended_with(self, error: BaseException) -> None:
        """Record the error of a request. It only decides how long to retry."""
        self.last_error = error
        # pyiceberg has no class for codes such as 405, 406 or 422.
        refused = isinstance(error, (*_NO_RIGHT, BadRequestError, NotImplementedError)) or type(error) is RESTError
        refused = refused or is_no_room(error)
        self._refusals = self._refusals + 1 if refused else 0

    def may_send(self) -> bool:
        """Return True if another request is within bounds; the first one always is."""
        if not self.requests:
            return True
        in_time = self.requests < self.retry_policy.requests and self.retry_policy.clock() < self._deadline
        return in_time and self._refusals < self.retry_policy.refusals

    def gave_up(self) -> CommitUnknownError:
        """Return the error of a commit that was sent and was not in the table at the last read."""
        remedy = "check that the catalog runs and can be written"
        if isinstance(self.last_error, _NO_RIGHT):
            remedy = "give the credentials of the connection the right to commit to this table"
        elif self.last_error is not None and is_no_room(self.last_error):
            remedy = "free space for the catalog's database and the tables' metadata, or make them writable"
        kind = CommitRefusedError if self._refusals else CommitUnknownError
        return kind(
            "LC3041",
            f"{self.requests} commit request(s) for {self.identifier} were sent and none was in the table at the "
            f"last check; the last one ended with {self._last_end()}: {remedy}. One may still be in flight; nothing "
            "was deleted, and the next attempt checks again",
        )

    def wait(self) -> bool:
        """Wait before the next read; return False if the time is up."""
        left = self._deadline - self.retry_policy.clock()
        if left <= 0:
            return False
        backoff = min(self.retry_policy.first_wait * 2.0**self._waits, self.retry_policy.longest_wait)
        self._waits += 1
        self.retry_policy.sleep(min(left, backoff * random.uniform(0.5, 1.0)))
        return True

    def _last_end(self) -> str:
        return self.tables.describe(self.last_error) if self.last_error else "no error"
