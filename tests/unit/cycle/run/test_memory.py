# SPDX-License-Identifier: Apache-2.0
"""The memory of a process that follows."""

from __future__ import annotations

import re
import subprocess
import sys

PROGRAM = """
import ctypes, sys, threading
from airflow_provider_lakecommit.cycle.run.follow import bound_arenas

if sys.argv[1] == "bound":
    bound_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
everybody = threading.Barrier(13)

def work():
    libc.malloc(3000)
    everybody.wait()

threads = [threading.Thread(target=work) for _ in range(12)]
for thread in threads:
    thread.start()
everybody.wait()
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def arenas(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return len(re.findall(r"<heap nr=", done.stdout))


def test_threads_of_a_follow_share_arenas() -> None:
    assert arenas("free") > 4
    assert arenas("bound") <= 2
