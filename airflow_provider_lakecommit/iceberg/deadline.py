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
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call.

    :raises TimeoutError: it has none by then
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as e:  # raised in the caller, of any kind
            answer.set_exception(e)

    threading.Thread(target=copy_context().run, args=(run,), name="answer", daemon=True).start()
    if not wait([answer], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answer.result()
