# SPDX-License-Identifier: Apache-2.0
"""The memory of a process that goes on for days.

Contract: :func:`bound_arenas` changes how the C library keeps freed memory, and nothing else. glibc gives each thread
an arena of its own, up to eight for each processor, and gives little of them back. Every window reads and writes table
metadata of a megabyte in several threads, so that arenas grew by some 10 MB a minute, with little in use in them.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["bound_arenas"]

M_ARENA_MAX = -8
ARENAS = 2


def bound_arenas() -> None:
    """Have new threads share :data:`ARENAS` arenas; other C libraries than glibc are left as they are."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
