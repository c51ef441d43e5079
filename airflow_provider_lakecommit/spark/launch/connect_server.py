# SPDX-License-Identifier: Apache-2.0
"""Recommended settings of a Spark Connect server for landings."""

from __future__ import annotations

from collections.abc import Mapping

SERVER_SETTINGS: Mapping[str, str] = {
    # Landings share processors task by task. In the default mode the oldest window goes first, whatever its size.
    "spark.scheduler.mode": "FAIR",
    # Work of a dead task continues for this long, so that the task's next attempt finds it.
    "spark.connect.execute.manager.detachedTimeout": "30m",
    # A landing's session, with its Python workers, stays between its runs.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.log.level": "WARN",
}
"""Server settings that matter for landings, which also work with the defaults, but slower."""

PRELOAD: Mapping[str, str] = {"spark.python.daemon.module": "airflow_provider_lakecommit.spark.daemon"}
"""For a server whose Python has this package installed: new workers have the libraries loaded."""
