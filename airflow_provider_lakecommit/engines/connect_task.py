# SPDX-License-Identifier: Apache-2.0
"""What a Spark Connect server is given to run, as bytes: the tasks of a window job with their connection settings.

Contract: :func:`command` needs no pyspark, and its bytes are the same for the same job whatever Python made them: they
name one function of this package and its two arguments. The server keeps them in memory with the operation; Spark shows
the first eight bytes of them and writes none to its plans, its event log or its page.
"""

from __future__ import annotations

import pickle
import zlib
from functools import partial
from typing import Any

from airflow_provider_lakecommit.spark.job import RESULT, Secrets, WindowJob, tasks

__all__ = ["command", "unpack"]

PROTOCOL = 4
"""Of pickle: the one that every Python reads on which Spark runs today."""


class _Call:
    """Pickled, it becomes what :func:`unpack` returns to whoever loads it."""

    def __init__(self, *packed: bytes) -> None:
        self._packed = packed

    def __reduce__(self) -> Any:
        return unpack, self._packed


def command(job: WindowJob, secrets: Secrets) -> bytes:
    """The function of a `mapInArrow` and its type of result, in the form in which Python workers load them.

    :raises SpecError: a setting is a function
    """
    packed = (zlib.compress(text.encode()) for text in (job.to_json(), secrets.to_json()))
    return pickle.dumps(_Call(*packed), PROTOCOL)


def unpack(job: bytes, secrets: bytes) -> tuple[Any, Any]:
    """In a Python worker: the function and its type of result."""
    from pyspark.sql import types

    kinds = {"string": types.StringType, "long": types.LongType, "double": types.DoubleType}
    fields = (field.split() for field in RESULT.split(", "))
    result = types.StructType([types.StructField(name, kinds[kind]()) for name, kind in fields])
    read_secrets = partial(Secrets.from_json, zlib.decompress(secrets).decode())
    return tasks(zlib.decompress(job).decode(), read_secrets), result
