# SPDX-License-Identifier: Apache-2.0
"""A daemon of Python workers that loads the heavy libraries before it forks workers.

Contract: set as `spark.python.daemon.module`, it is pyspark's own daemon with :data:`LIBRARIES` loaded. Spark ends
workers that were idle for a minute; new ones are forks of the daemon, which saves seconds of processor time before
their first record. This package itself is not kept: workers import it from their session's path. Spark keeps the daemon
of each session, some 100 MB. So a daemon without workers ends after a while, and the next task gets another one.

Failure story: a missing library is left to the job that needs it. Forks of a process with threads may hang, so
libraries are configured to start no threads when loaded, and the daemon fails if one did.
"""

from __future__ import annotations

import importlib
import os
import runpy
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Settings of numpy's and Arrow's libraries, whose threads are not needed."""

IDLE_SECONDS, CHECKS = 600.0, 10
"""How long a daemon stays without workers, and how often it checks that."""

PACKAGE = "airflow_provider_lakecommit"
LIBRARIES = (
    "pyspark.worker",
    "numpy",
    "pyarrow.compute",
    "pyarrow.parquet",
    "confluent_kafka.admin",
    "fastavro",
    "pyiceberg.io.pyarrow",
    "pyiceberg.manifest",
)


def preload() -> None:
    """Load the libraries, and unload this package.

    :raises RuntimeError: one of them has started a thread
    """
    for name, value in THREADLESS.items():
        os.environ.setdefault(name, value)
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    if (threads := _threads()) > 1:
        raise RuntimeError(f"loading {', '.join(LIBRARIES)} started {threads - 1} threads: run pyspark.daemon instead")
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def end_when_idle(seconds: float = IDLE_SECONDS) -> None:
    """Have this process end when it had no children for so long. A timer, which forks do not inherit, checks it."""
    idle = 0

    def check(*_: object) -> None:
        nonlocal idle
        idle += 1
        with suppress(ChildProcessError):
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            idle = 0
        if idle > CHECKS:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds / CHECKS, seconds / CHECKS)


def _threads() -> int:
    """Return the number of this process's threads, with those of libraries if the system reports them."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


if __name__ == "__main__":
    preload()
    end_when_idle()
    runpy.run_module("pyspark.daemon", run_name="__main__")
