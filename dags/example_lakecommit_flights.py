# SPDX-License-Identifier: Apache-2.0
"""Flights that left New York in 2013, from a topic of JSON events into a table that is made on the first run.

`make demo` runs this Dag on real parts; after `make up` it is in the Airflow of the local stack, with its topic filled.
Which Spark runs its jobs may be chosen when it is triggered: the type of the connection decides.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import DAG, Param

from airflow_provider_lakecommit.landing import Columns, Landing, Window
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

NAMESPACE = os.environ.get("LAKECOMMIT_FLIGHTS_NAMESPACE", "nyc")
SPARK = os.environ.get("LAKECOMMIT_FLIGHTS_SPARK", "spark_default")

# [START howto_landing_create]
flights = Landing(
    name="flights",
    topics="flights",
    table=f"{NAMESPACE}.flights",
    dead_letter_table=f"{NAMESPACE}.flights_dead",
    create={
        "schema": [
            {"name": "year", "type": "int", "required": True},
            {"name": "month", "type": "int", "required": True},
            {"name": "day", "type": "int", "required": True},
            {"name": "dep_time", "type": "int"},
            {"name": "sched_dep_time", "type": "int", "required": True},
            {"name": "dep_delay", "type": "int"},
            {"name": "arr_time", "type": "int"},
            {"name": "sched_arr_time", "type": "int", "required": True},
            {"name": "arr_delay", "type": "int"},
            {"name": "carrier", "type": "string", "required": True},
            {"name": "flight", "type": "int", "required": True},
            {"name": "tailnum", "type": "string"},
            {"name": "origin", "type": "string", "required": True},
            {"name": "dest", "type": "string", "required": True},
            {"name": "air_time", "type": "double"},
            {"name": "distance", "type": "double", "required": True},
            {"name": "hour", "type": "int", "required": True},
            {"name": "minute", "type": "int", "required": True},
            {"name": "time_hour", "type": "timestamptz", "required": True},
            {"name": "kafka_partition", "type": "int", "required": True},
            {"name": "kafka_offset", "type": "long", "required": True},
        ],
        "partition_by": ["month(time_hour)"],
    },
    columns=Columns(metadata=True),
    # Small on purpose: a slice is what a killed job loses at most, per core.
    window=Window(slice_records=12_000),
)
# [END howto_landing_create]

with DAG(
    "example_lakecommit_flights",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    params={
        "spark_conn_id": Param(
            SPARK,
            type="string",
            examples=["spark_default", "spark_connect_default"],
            description="Connection of type spark (spark-submit) or spark_connect (a warm server).",
        )
    },
    doc_md=__doc__,
    tags=["lakecommit"],
):
    KafkaToIcebergTaskGroup("land", landing=flights, spark_conn_id="{{ params.spark_conn_id }}")
