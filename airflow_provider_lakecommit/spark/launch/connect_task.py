# SPDX-License-Identifier: Apache-2.0
"""The request to a Spark Connect server: the plan of a window job, with its tasks and connection settings as bytes; and
the results.

Contract: :func:`command` needs no pyspark, and gives the same bytes for the same job under any Python: they name one
function of this package and its two arguments. The server keeps them in memory with the operation; Spark shows their
first eight bytes and writes none to plans, event log or web UI.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from functools import partial
from typing import Any

from airflow_provider_lakecommit.spark.job import RESULT, Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.window import tasks

MAP_IN_ARROW = 207
"""Spark's number for a function from record batches to record batches."""
PROTOCOL = 4
"""The pickle protocol that every Python of a current Spark reads."""


class _Call:
    """Pickled, it loads as what :func:`unpack` returns."""

    def __init__(self, *packed: bytes) -> None:
        self._packed = packed

    def __reduce__(self) -> Any:
        return unpack, self._packed


def plan_of(job: WindowJob, secrets: Secrets) -> dict[str, Any]:
    """Return a plan with one row per slice, each its own task, for this package's function."""
    n = len(job.plan.slices)
    udf = {
        "output_type": {"unparsed": {"data_type_string": RESULT}},
        "eval_type": MAP_IN_ARROW,
        "command": command(job, secrets),
        "python_ver": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    return {
        "root": {
            "common": {"plan_id": 1},
            "map_partitions": {
                "input": {"common": {"plan_id": 0}, "range": {"start": 0, "end": n, "step": 1, "num_partitions": n}},
                "func": {
                    "function_name": f"lakecommit_{job.plan.landing}_{job.plan.lane}_{job.group}",
                    "deterministic": True,
                    "python_udf": udf,
                },
            },
        }
    }


def command(job: WindowJob, secrets: Secrets) -> bytes:
    """Return the function of a `mapInArrow` and its result type, serialized for Python workers.

    :raises SpecError: a setting is a function
    """
    packed = (zlib.compress(text.encode()) for text in (job.to_json(), secrets.to_json()))
    return pickle.dumps(_Call(*packed), PROTOCOL)


def unpack(job: bytes, secrets: bytes) -> tuple[Any, Any]:
    """Return the function and its result type, in a Python worker."""
    from pyspark.sql import types

    kinds = {"string": types.StringType, "long": types.LongType, "double": types.DoubleType}
    fields = (field.split() for field in RESULT.split(", "))
    result = types.StructType([types.StructField(name, kinds[kind]()) for name, kind in fields])
    read_secrets = partial(Secrets.from_json, zlib.decompress(secrets).decode())
    return tasks(zlib.decompress(job).decode(), read_secrets), result


def results_of(arrow: bytes) -> list[SliceResult]:
    """Return the tasks' results."""
    import pyarrow as pa

    with pa.ipc.open_stream(arrow) as reader:
        return [SliceResult.of(row) for row in reader.read_all().to_pylist()]
