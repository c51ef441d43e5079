# SPDX-License-Identifier: Apache-2.0
"""A Spark task's environment: its host, libraries and clock, and whether it can use a table's storage.

Contract: a probe writes one small file of a table under a unique name, reads it, deletes it, and reports its progress;
it raises nothing and reveals no secret. Storage settings are the table's, from the file shipped with a job.

Failure story: a probe that dies between writing and deleting leaves one file of a few bytes, which is in no snapshot.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pyiceberg.io import FileIO

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.iceberg import GuardedFileIO, trouble_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from airflow_provider_lakecommit.spark.job import Secrets

LIBRARIES = ("airflow-provider-lakecommit", "pyspark", "pyarrow", "pyiceberg", "confluent-kafka", "fastavro")
RESULT = "seen string"
_CONTENT = b"lakecommit probe: may be deleted\n"


def try_storage(io: FileIO, path: str) -> str:
    """Write, read and delete a file; return the error, or an empty text."""
    step = "writing"
    try:
        with io.new_output(path).create() as out:
            out.write(_CONTENT)
        step = "reading"
        with io.new_input(path).open() as found:
            if found.read() != _CONTENT:
                return f"reading {path}: the content differs"
        step = "deleting"
        io.delete(path)
        if io.new_input(path).exists():
            return f"deleting {path}: it still exists"
    except Exception as e:  # any error of the storage
        return f"{step} {path}: {trouble_of(io, e)}"
    return ""


def local_view() -> dict[str, Any]:
    """Return host, clock (seconds since the epoch) and versions of this process."""
    return {
        "host": socket.gethostname(),
        "time": time.time(),
        "versions": {"python": ".".join(map(str, sys.version_info[:3])), **{n: _version(n) for n in LIBRARIES}},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        # Spark's Python workers import pyspark from Spark itself.
        return str(getattr(sys.modules.get(name), "__version__", "not installed"))


def run_probe(spark: SparkSession, paths: Mapping[str, str], read_secrets: Callable[[], Secrets]) -> dict[str, Any]:
    """Return one task's :func:`local_view`, with ``storage``: its errors, or nothing.

    :param paths: path of the file, by table
    :raises SparkJobError: the task did not answer
    """
    try:
        rows = spark.range(0, 1, 1, 1).mapInArrow(_task(dict(paths), read_secrets), RESULT).collect()
    except Exception as e:
        lines = [line.strip() for line in str(e).splitlines() if line.strip()]
        raise SparkJobError(
            "LC5027", f"cannot run a Spark task: {type(e).__name__}: {' … '.join(lines[:1] + lines[-1:])}"
        ) from e
    found: dict[str, Any] = json.loads(rows[0]["seen"])
    return found


def _task(
    paths: dict[str, str], read_secrets: Callable[[], Secrets]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from airflow_provider_lakecommit.spark import probe as here

        for _ in batches:
            observed, secrets = here.local_view(), read_secrets()
            tried = (here.try_storage(GuardedFileIO(secrets.io_of(t)), path) for t, path in paths.items())
            observed["storage"] = secrets.without("; ".join(trouble for trouble in tried if trouble))
            yield pa.RecordBatch.from_pydict({"seen": [json.dumps(observed)]})

    return run
