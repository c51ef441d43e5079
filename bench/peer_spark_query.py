# SPDX-License-Identifier: Apache-2.0
"""The query of :mod:`bench.peer_spark`: runs in the other Spark's environment, and imports nothing of ours."""

from __future__ import annotations

import os
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

DDL = (
    "id BIGINT, customer_id BIGINT, ts BIGINT, amount DECIMAL(12,2), status STRING, country STRING, "
    "address STRUCT<street: STRING, city: STRING, zip: STRING>, items ARRAY<STRUCT<sku: STRING, qty: INT>>, note STRING"
)


def main() -> None:
    """Run the query, and say when it has ended."""
    given = {key.removeprefix("PEER_"): value for key, value in os.environ.items() if key.startswith("PEER_")}
    catalog = f"spark.sql.catalog.{given['CATALOG']}"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", given["JARS"])
        .config("spark.driver.memory", "3g")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={given['LOG4J']}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.local.dir", given["PLACE"])
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog")
        .config(f"{catalog}.uri", given["URI"])
        .config(f"{catalog}.warehouse", given["WAREHOUSE"])
        .getOrCreate()
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["BOOTSTRAP"])
        .option("subscribe", given["TOPIC"])
        .option("startingOffsets", "earliest")
        .load()
    )
    (
        _rows(records, given.get("AVRO", ""))
        .writeStream.format("iceberg")
        .outputMode("append")
        # The table wants an id; what comes out of JSON may lack one.
        .option("check-nullability", "false")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{given['PLACE']}/checkpoint")
        .toTable(f"{given['CATALOG']}.{given['TABLE']}")
        .awaitTermination()
    )
    print(f"ended {int(time.time() * 1000)}", flush=True)
    spark.stop()


def _rows(records: DataFrame, avro: str) -> DataFrame:
    """What the values become; those of Avro are behind five bytes that name their schema."""
    if avro:
        payload = f.expr("substring(value, 6)")
        return records.select(from_avro(payload, avro, {"mode": "FAILFAST"}).alias("r")).select("r.*")
    rows = records.select(f.from_json(f.col("value").cast("string"), DDL).alias("r")).select("r.*")
    return rows.withColumn("ts", f.timestamp_millis("ts"))


if __name__ == "__main__":
    main()
