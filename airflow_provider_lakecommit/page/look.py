# SPDX-License-Identifier: Apache-2.0
"""A cached query to Airflow's database for many requests.

Contract: reads only. A caller gets a result that is at most a number of seconds old; the same object, as long as
nothing changed, so that derived values can be cached too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow.utils.session import create_session

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Found = TypeVar("Found")


class DatabaseLook(Generic[Found]):
    """One query, for any thread.

    :param ask: runs it
    :param seconds: how long a result is valid
    """

    def __init__(self, ask: Callable[[Session], Found], seconds: float) -> None:
        self._ask, self._seconds = ask, seconds
        self._lock = threading.Lock()
        self._next = float("-inf")
        self._found: list[Found] = []

    def __call__(self) -> Found:
        with self._lock:
            if time.monotonic() >= self._next:
                with create_session() as session:
                    found = self._ask(session)
                if self._found != [found]:
                    self._found = [found]
                self._next = time.monotonic() + self._seconds
            return self._found[0]
