# SPDX-License-Identifier: Apache-2.0
"""A daemon of Python workers that has the heavy libraries loaded before it makes workers.

Contract: named as `spark.python.daemon.module`, it is pyspark's own daemon with :data:`LIBRARIES` loaded. Spark ends
workers that were idle for a minute; new ones are copies of the daemon, so they need seconds less of processor time
before their first record. This package itself is not kept: workers take it from where their session has it.

Failure story: a library that is missing is left to the job that needs it. Copies of a process with threads may hang, so
libraries that start threads of their own when they are loaded are told not to, and the daemon ends with an error when
one did.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import threading
from contextlib import suppress
from pathlib import Path

__all__ = ["LIBRARIES", "preload"]

THREADLESS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""For numpy's and Arrow's libraries; neither is used for what it would start threads for."""

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
    """Load the libraries, and forget this package.

    :raises RuntimeError: one of them has started a thread
    """
    for name, value in THREADLESS.items():
        os.environ.setdefault(name, value)
    for library in LIBRARIES:
        with suppress(ImportError):
            importlib.import_module(library)
    if (threads := _threads()) > 1:
        raise RuntimeError(f"loading {', '.join(LIBRARIES)} has started {threads - 1} threads: run pyspark.daemon")
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def _threads() -> int:
    """Of this process, those of libraries too where the system tells."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()


if __name__ == "__main__":
    preload()
    runpy.run_module("pyspark.daemon", run_name="__main__")
