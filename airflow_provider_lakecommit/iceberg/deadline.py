# SPDX-License-Identifier: Apache-2.0
"""A deadline for library calls that have none: a database driver waits forever for a server that hangs.

Contract: :func:`within` returns or raises the call's result, an interrupt of the process included, or raises
``TimeoutError`` at the deadline. Its own thread makes the call, so the caller can be interrupted wherever the call
hangs.

Failure story: a thread cannot be stopped. An abandoned call may still complete, so its outcome is unknown; its thread
is a daemon and does not keep the process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call.

    :raises TimeoutError: it has none by then
    """
    call_in_thread = _ThreadedCall(call)
    thread = threading.Thread(target=copy_context().run, args=(call_in_thread.run,), name="answer", daemon=True)
    thread.start()
    return call_in_thread.answer(seconds)


class _ThreadedCall(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as e:  # raised in the caller, of any kind
            self._error = e
        finally:
            self._done.set()

    def answer(self, seconds: float) -> T:
        if not self._done.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._result[0]
