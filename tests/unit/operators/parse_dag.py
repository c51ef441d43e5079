# SPDX-License-Identifier: Apache-2.0
"""Parses a DAG file as Airflow does, without I/O, and prints what that loads beyond Airflow's SDK.

Run by `test_parse_time.py` in a process that has loaded nothing but the SDK.
"""

from __future__ import annotations

import runpy
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

import airflow.sdk
import airflow.sdk.configuration

HEAVY = {"pyspark", "py4j", "pyiceberg", "confluent_kafka", "pyarrow", "fastavro"}


def refuse(*_: object) -> NoReturn:
    raise RuntimeError("a DAG was parsed with I/O")


def main(arguments: Sequence[str]) -> int:
    """:param arguments: path of the file"""
    loaded = set(sys.modules)
    socket.socket.connect = refuse  # type: ignore[method-assign, assignment]
    airflow.sdk.BaseHook.get_connection = refuse  # type: ignore[method-assign, assignment]
    runpy.run_path(arguments[0])
    print(sorted(HEAVY & {name.partition(".")[0] for name in set(sys.modules) - loaded}))
    return 0
