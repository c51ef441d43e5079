# SPDX-License-Identifier: Apache-2.0
"""Retries for a schema that a registry may not have yet.

A replica or cache denies for some seconds a schema that a producer has just registered.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from airflow_provider_lakecommit.formats.registry.schema_source import (
    AbsentKindError,
    SchemaKey,
    UnknownSchemaError,
    key_text,
)

MOST_WAITS, WITHIN = 6, 600.0
"""At most so many consecutive waits in so many seconds; waits for several keys overlap."""
_SHORTEST, _LONGEST = 0.25, 1.0
"""Seconds between two requests."""

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class UnknownWait:
    """Waits for missing schemas, once per key and within :data:`MOST_WAITS`: a topic may be full of unknown keys.

    :param seconds: longest wait for a key; 0 for none
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waited: set[SchemaKey] = set()
        self._since, self._left, self._end = float("-inf"), 0.0, 0.0
        self._lock = threading.Lock()

    def asked(self, key: SchemaKey, request: Callable[[], T]) -> T:
        """Return the answer, retrying while the schema is unknown."""
        try:
            return request()
        except AbsentKindError:
            raise
        except UnknownSchemaError as e:
            if not (end := self._until(key)):
                raise
            unknown = e
        began, pause = time.monotonic(), _SHORTEST
        _LOG.warning("%s; retrying for %.3g s, in case it is new", unknown, max(0.0, end - began))
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST)
            try:
                found = request()
            except UnknownSchemaError as e:
                unknown = e
                continue
            _LOG.warning("the registry has %s after %.2g s", key_text(key), time.monotonic() - began)
            return found
        raise unknown

    def _until(self, key: SchemaKey) -> float:
        now = time.monotonic()
        with self._lock:
            if self._seconds <= 0 or key in self._waited:
                return 0.0
            if now - self._since >= WITHIN:
                self._since, self._left = now, MOST_WAITS * self._seconds
            already = max(now, self._end)
            more = min(now + self._seconds - already, self._left)
            if already + more <= now:
                return 0.0
            self._waited.add(key)
            self._left -= more
            self._end = already + more
            return self._end
