# SPDX-License-Identifier: Apache-2.0
"""The process behind :class:`dev.servers.engine.Engine`: runs in the engine's own environment, and imports nothing of
ours.

Every catalog has a name of its own, since a session keeps what it knows of a name; in statements it is called ``lake``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any


def session() -> Any:
    from pyspark.sql import SparkSession  # type: ignore[import-not-found,unused-ignore]

    return (
        SparkSession.builder.master("local[1]")
        .appName("engine")
        .config("spark.driver.extraClassPath", os.environ["ENGINE_JARS"] + "/*")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .getOrCreate()
    )


def configure(spark: Any, catalog: dict[str, str]) -> str:
    """The catalog's name in Spark, configured on first use: its own, because both engines file tables under it."""
    name = catalog["name"]
    prefix = f"spark.sql.catalog.{name}"
    if spark.conf.get(prefix, None) is None:
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".uri": f"jdbc:{catalog['uri'].replace(':///', ':')}?busy_timeout=30000",
            ".warehouse": catalog["warehouse"],
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            spark.conf.set(prefix + key, value)
    return name


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints goes to the log
    spark = session()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            name = configure(spark, request["catalog"])
            statement = re.sub(r"\blake\b", name, request["sql"])
            rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
            answer: dict[str, Any] = {"rows": rows}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {str(e)[:1500]}"}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
