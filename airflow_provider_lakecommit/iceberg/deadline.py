# SPDX-License-Identifier: Apache-2.0
"""A deadline for calls of libraries that have none: a database driver waits for ever for a server that stands still.

Contract: :func:`within` gives what the call gives and raises what it raises, an interrupt of the process included, or
raises ``TimeoutError`` when the time is up. It is done by a thread of its own, so that the caller can be interrupted
whatever the call is stuck in.

Failure story: a thread cannot be stopped. A call that was given up may still come to its end, so what it was to do has
an unknown outcome; its thread is a daemon and does not keep the process from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

__all__ = ["within"]

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call.

    :raises TimeoutError: it has none by then
    """
    asked = _Asked(call)
    thread = threading.Thread(target=copy_context().run, args=(asked.run,), name="answer", daemon=True)
    thread.start()
    return asked.answer(seconds)


class _Asked(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as e:  # it is the caller's, whatever it is
            self._error = e
        finally:
            self._done.set()

    def answer(self, seconds: float) -> T:
        if not self._done.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._result[0]
