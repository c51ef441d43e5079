# SPDX-License-Identifier: Apache-2.0
"""Waiting for something that another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PATIENCE", "until"]

POLL_SECONDS = 0.05
PATIENCE = 600.0


def until(
    holds: Callable[[], bool], timeout: float = PATIENCE, what: str = "what was waited for", pause: float = POLL_SECONDS
) -> None:
    """Return when it holds.

    :param timeout: seconds; ``look`` those between two looks
    :raises AssertionError: it does not come to hold in time
    """
    end = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {timeout:.0f} s")
        time.sleep(pause)
