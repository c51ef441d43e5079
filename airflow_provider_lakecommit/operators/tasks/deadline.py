# SPDX-License-Identifier: Apache-2.0
"""A task ends its work by itself shortly before Airflow cuts it off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

__all__ = ["KILL_GRACE", "MARGIN", "before_deadline"]

KILL_GRACE = 3.0
"""Seconds that Spark tasks have to report what they have read when a task is killed: Airflow waits five in all."""
MARGIN = timedelta(seconds=15)
"""What reporting and publishing what was read may take; of a short timeout no more than a fifth."""


@contextmanager
def before_deadline(timeout: timedelta | None, end: Callable[[str, float], None]) -> Iterator[None]:
    """While the block runs, watch the time.

    :param timeout: the task's ``execution_timeout``
    :param end: ends the work early; gets why, and how many seconds Spark tasks have for it
    """
    if timeout is None:
        yield
        return
    margin = min(MARGIN, timeout / 5)
    why = f"its execution_timeout of {timeout} is near"
    timer = threading.Timer((timeout - margin).total_seconds(), end, (why, margin.total_seconds() / 2))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
