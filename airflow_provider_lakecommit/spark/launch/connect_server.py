# SPDX-License-Identifier: Apache-2.0
"""What a Spark Connect server should be started with to serve landings."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["PRELOAD", "SERVER_SETTINGS"]

SERVER_SETTINGS: Mapping[str, str] = {
    # Landings take turns task by task. In the default mode the oldest window goes first, however big it is.
    "spark.scheduler.mode": "FAIR",
    # Work whose task died goes on alone for that long, so that the task's next attempt finds it.
    "spark.connect.execute.manager.detachedTimeout": "30m",
    # A landing's session, and with it its Python workers, stays between its runs.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.log.level": "WARN",
}
"""Server settings that count for landings; each has a default under which landings work, but worse."""

PRELOAD: Mapping[str, str] = {"spark.python.daemon.module": "airflow_provider_lakecommit.spark.daemon"}
"""For a server in whose Python this package is installed: new workers have the libraries loaded."""
