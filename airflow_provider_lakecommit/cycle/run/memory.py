# SPDX-License-Identifier: Apache-2.0
"""The memory of a process that runs for days.

Contract: :func:`bound_arenas` only changes how the C library keeps freed memory. glibc gives each thread its own arena,
up to eight per processor, and returns little of them. Every window reads and writes a megabyte of table metadata in
several threads, so that arenas grew by some 10 MB a minute, mostly unused.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8
ARENAS = 2


def bound_arenas() -> None:
    """Limit new threads to :data:`ARENAS` arenas; other C libraries than glibc are unchanged."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
