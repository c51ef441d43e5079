# SPDX-License-Identifier: Apache-2.0
"""Work that may be interrupted at any time and still leaves nothing running.

Contract: the work runs in a thread of its own and is never cut off between starting a process and noting its id, as an
exception out of a signal handler would. *stop* is called exactly once, however the work ends, and is never interrupted
itself: from the first SIGINT, SIGTERM or SIGHUP on, and while stopping, signals are ignored. The answer to a signal is
128 + its number, as a shell has it.

The thread of an interrupted work may still hang in a client's call: the caller ends with :func:`leave`.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Event = signal.Signals | int | BaseException


def run(work: Callable[[], int], stop: Callable[[], None]) -> int:
    """The work's answer, or 128 + the number of the signal that interrupted it.

    :param stop: called from another thread than *work*
    :raises BaseException: what the work or the stop raised
    """
    # Of all queues only this one may be filled by a signal handler.
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def attend() -> None:
        try:
            events.put(int(work()))
        except BaseException as error:
            events.put(error)

    def note(number: int, _frame: FrameType | None) -> None:
        events.put(signal.Signals(number))

    before = {s: signal.signal(s, note) for s in SIGNALS}
    try:
        threading.Thread(target=attend, daemon=True).start()
        event = events.get()
        for s in SIGNALS:
            signal.signal(s, signal.SIG_IGN)
        stop()
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
    if isinstance(event, BaseException):
        raise event
    return 128 + event if isinstance(event, signal.Signals) else event


def leave(code: int) -> NoReturn:
    """End this process now, without waiting for threads that hang in a library."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
