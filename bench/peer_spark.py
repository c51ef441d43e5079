# SPDX-License-Identifier: Apache-2.0
"""Spark Structured Streaming, Kafka to Iceberg, on the same topic into a table of the same catalog.

Contract: :func:`run_spark` runs one query with `Trigger.AvailableNow` in a process of its own, of the newest Spark that
Iceberg has a runtime for, and returns the seconds from when the first task takes its place in the topic to the end of
the query. What starts before, Spark itself, is not in them. The table is written as a user gets it, rows shuffled to
their partitions.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from dev.jars import fetch
from dev.servers import engine

__all__ = ["run_spark"]

SECONDS = 900
_TAKEN = re.compile(r"^(\d+) .*Seeking to offset", re.MULTILINE)
_ENDED = re.compile(r"^ended (\d+)$", re.MULTILINE)


def run_spark(
    kafka: Mapping[str, Any], settings: Mapping[str, str], topic: str, table: str, folder: Path, *, avro: str = ""
) -> float:
    """Land what the topic holds.

    :param settings: properties of the catalog, which is in SQLite
    :param avro: the schema of the records, where they are framed Avro
    :raises RuntimeError: the query failed
    """
    engine.ready()
    place = folder / f"spark-{uuid4().hex[:8]}"
    place.mkdir()
    log = place / "spark.log"
    log4j = place / "log4j2.properties"
    log4j.write_text(
        "rootLogger.level=info\nrootLogger.appenderRef.f.ref=f\nappender.f.type=File\nappender.f.name=f\n"
        f"appender.f.fileName={log}\nappender.f.layout.type=PatternLayout\n"
        "appender.f.layout.pattern=%d{UNIX_MILLIS} %p %c{1}: %m%n\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
    query = {
        "JARS": os.pathsep.join(f"{home}/*" for home in (engine.jars(), *fetch("stream", "avro").values())),
        "AVRO": avro,
        "LOG4J": log4j.as_uri(),
        "BOOTSTRAP": str(kafka["bootstrap.servers"]),
        "TOPIC": topic,
        "TABLE": table,
        "CATALOG": "lakecommit",
        "URI": f"jdbc:{settings['uri'].replace(':///', ':')}?busy_timeout=30000",
        "WAREHOUSE": settings["warehouse"],
        "PLACE": str(place),
    }
    done = subprocess.run(
        [str(engine.home() / "venv" / "bin" / "python"), str(Path(__file__).with_name("peer_spark_query.py"))],
        env={**environment, **{f"PEER_{key}": value for key, value in query.items()}, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    ended = _ENDED.search(done.stdout)
    if done.returncode or ended is None:
        raise RuntimeError(f"the query failed: {(done.stdout + done.stderr)[-3000:]}")
    taken = [int(millis) for millis in _TAKEN.findall(log.read_text(errors="replace"))]
    return (int(ended[1]) - min(taken)) / 1000
