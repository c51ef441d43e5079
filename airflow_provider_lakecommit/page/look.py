# SPDX-License-Identifier: Apache-2.0
"""A question to Airflow's database that many requests ask, and that is asked now and then.

Contract: reads only. Who asks gets what was found at most so many seconds ago; the same object, as long as nothing
changed, so that what was made of it can be kept too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow.utils.session import create_session

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["DatabaseLook"]

Found = TypeVar("Found")


class DatabaseLook(Generic[Found]):
    """One question, for any thread.

    :param ask: asks it
    :param seconds: for which an answer holds
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
