# SPDX-License-Identifier: Apache-2.0
"""A question that somebody waits for, but not for ever, and not without a word.

Contract: :func:`answered` asks in a thread of its own and gives its answer or its error. What is waited for is logged
when it has taken :data:`SAID_AFTER` seconds, and again each time that has doubled. An HTTP client's own timeout is for
each piece of an answer: a server that sends a byte now and then holds whoever reads it for ever. This one is for all.

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

__all__ = ["SAID_AFTER", "answered", "longest"]

SAID_AFTER = 5.0
"""Seconds after which it is said what is waited for."""

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
