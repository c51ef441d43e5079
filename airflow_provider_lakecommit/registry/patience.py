# SPDX-License-Identifier: Apache-2.0
"""A question that somebody waits for, but not for ever, and not without a word.

Contract: :func:`answered` asks in a thread of its own and gives its answer or its error. What is waited for is logged
when it has taken :data:`SAID_AFTER` seconds, and again each time that has doubled. An HTTP client's own timeout is for
each piece of an answer: a server that sends a byte now and then holds whoever reads it for ever. This one is for all.

:class:`UnknownWait` is for what a registry has not heard of yet. One that follows another, or keeps answers, says for
some seconds that it has no schema which a producer has just registered and writes by.

Failure story: who gives up leaves the thread behind: it is a daemon, and ends when its connection is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, TypeVar

from airflow_provider_lakecommit.registry.schemas import AbsentKindError, SchemaKey, UnknownSchemaError, told

__all__ = ["SAID_AFTER", "UnknownWait", "answered", "longest"]

SAID_AFTER = 5.0
"""Seconds after which it is said what is waited for."""

MOST_WAITS, WITHIN = 6, 600.0
"""As long as so many keys, one after the other, something unknown is waited for in so many seconds; what is met
meanwhile is waited for at the same time.
"""
_SHORTEST, _LONGEST = 0.25, 1.0
"""Seconds between two questions."""

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


def answered(ask: Callable[[], T], what: str, seconds: float) -> T:
    """The answer.

    :param what: is waited for, without a secret
    :raises TimeoutError: there was none within *seconds*; else whatever *ask* raises
    """
    future: Future[T] = Future()
    threading.Thread(target=_fill, args=(future, ask), name="lakecommit-registry", daemon=True).start()
    began, said = time.monotonic(), SAID_AFTER
    while (left := began + seconds - time.monotonic()) > 0:
        waited = time.monotonic() - began
        try:
            return future.result(min(left, max(0.0, said - waited)))
        except NotYetError:
            if future.done():
                # Just now; or what it says is an error of that kind itself.
                return future.result()
        if time.monotonic() - began >= said:
            _LOG.warning("waiting for %s: %.0f s so far, %.0f s at most", what, said, seconds)
            said *= 2
    raise TimeoutError(f"no whole answer within {seconds:g} s")


class UnknownWait:
    """Waits for what a registry may hear of, once for each key, and not more than :data:`MOST_WAITS` allows: a topic
    may be full of keys that no registry has ever had. Several threads may ask.

    :param seconds: how long it waits at most for a key; 0 is not at all
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waited: set[SchemaKey] = set()
        self._since, self._left, self._end = float("-inf"), 0.0, 0.0
        self._lock = threading.Lock()

    def asked(self, key: SchemaKey, ask: Callable[[], T]) -> T:
        """The answer.

        :raises UnknownSchemaError: there was none within that time; else whatever *ask* raises
        """
        try:
            return ask()
        except AbsentKindError:
            raise
        except UnknownSchemaError as e:
            if not (end := self._until(key)):
                raise
            unknown = e
        began, pause = time.monotonic(), _SHORTEST
        _LOG.warning(
            "%s; it is asked again for %.3g s, in case it has not heard of that yet", unknown, max(0.0, end - began)
        )
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST)
            try:
                found = ask()
            except UnknownSchemaError as e:
                unknown = e
                continue
            _LOG.warning("the registry has heard of %s after %.2g s", told(key), time.monotonic() - began)
            return found
        raise unknown

    def _until(self, key: SchemaKey) -> float:
        """When a wait for that ends; 0 if there is none."""
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


def longest(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> float:
    """Seconds that the client may take for one question by its settings, all of its attempts together."""
    found = {
        key: settings[key] if isinstance(settings.get(key), int | float) else value for key, value in defaults.items()
    }
    attempts = (max(0, int(found["max.retries"])) + 1) * len(str(settings.get("url", "")).split(","))
    return float(attempts * (found["timeout"] + found["retries.max.wait.ms"] / 1000))


def _fill(future: Future[T], ask: Callable[[], T]) -> None:
    try:
        future.set_result(ask())
    except BaseException as e:
        future.set_exception(e)
