# SPDX-License-Identifier: Apache-2.0
"""End a task's work shortly before Airflow kills it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

__all__ = ["KILL_GRACE", "MARGIN", "before_deadline"]

KILL_GRACE = 3.0
"""Seconds that Spark tasks have to report what they have read when a task is killed: Airflow waits five in total."""
MARGIN = timedelta(seconds=15)
"""Time to report and publish what was read; at most a fifth of a short timeout."""


@contextmanager
def before_deadline(timeout: timedelta | None, end: Callable[[str, float], None]) -> Iterator[None]:
    """Watch the time while the block runs.

    :param timeout: the task's ``execution_timeout``
    :param end: ends the work early; takes the reason, and the seconds that Spark tasks have
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
