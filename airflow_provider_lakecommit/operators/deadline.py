# SPDX-License-Identifier: Apache-2.0
"""A task ends its work by itself shortly before Airflow cuts it off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

__all__ = ["MARGIN", "before_deadline"]

MARGIN = timedelta(seconds=15)
"""What publishing what was read may take; of a short timeout no more than a fifth."""


@contextmanager
def before_deadline(timeout: timedelta | None, end: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, watch the time.

    :param timeout: the task's ``execution_timeout``
    :param end: ends the work early; gets why
    """
    if timeout is None:
        yield
        return
    left = timeout - min(MARGIN, timeout / 5)
    timer = threading.Timer(left.total_seconds(), end, (f"its execution_timeout of {timeout} is near",))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
