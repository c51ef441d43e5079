# SPDX-License-Identifier: Apache-2.0
"""A daemon that ends when it had no workers for twenty seconds: a module for `spark.python.daemon.module`."""

from __future__ import annotations

import runpy

from airflow_provider_lakecommit.spark.daemon import end_when_idle

__all__ = ["BRIEF"]

BRIEF = {"spark.python.daemon.module": __name__, "spark.python.worker.reuse": "false"}

if __name__ == "__main__":
    end_when_idle(20.0)
    runpy.run_module("pyspark.daemon", run_name="__main__")
