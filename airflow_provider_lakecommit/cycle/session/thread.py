# SPDX-License-Identifier: Apache-2.0
"""Run work in a thread without waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run it concurrently; without a waiting caller it ends with the process."""
    ended: Future[T] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as e:
            ended.set_exception(e)

    threading.Thread(target=run, name=name, daemon=True).start()
    return ended
