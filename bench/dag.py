# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.dag`: runs of a landing in a live Airflow on a warm Spark Connect server, above Airflow's own floor.

Contract: the floor is a DAG of the same shape (plan, one mapped write, commit, outcome) whose tasks do nothing; what a
landing's run takes longer is the landing's. The scheduler loads the libraries before it forks tasks, as it does unless
it is told not to (`[lakecommit] preload`; ``--without-preload`` tells it). The two take turns. Seconds are a run's own,
from its start to its end as Airflow tells them. The table is compared with the source in the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from bench.orders import BY_DAY, SCHEMA, produce, values
from bench.verify import verify
from dev.airflow_client import AirflowClient
from dev.airflow_stack import Airflow
from dev.paths import run_dir
from dev.processes import Children
from dev.servers.connect import ConnectServer
from dev.servers.kafka import Broker

RUN_SECONDS = 300.0
PARTITIONS = 8
DAGS = """
from datetime import datetime

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

UNSCHEDULED = {"schedule": None, "start_date": datetime(2026, 1, 1), "catchup": False}

with DAG("floor", **UNSCHEDULED):

    @task
    def plan():
        return [0]

    @task
    def write(group):
        return group

    @task(trigger_rule="all_done")
    def commit():
        return 0

    @task(trigger_rule="all_done")
    def outcome():
        return 0

    write.expand(group=plan()) >> commit() >> outcome()

with DAG("landing", **UNSCHEDULED):
    orders = Landing(name="orders", topics="orders", table="bench.orders", timestamps={"ts": "epoch_millis"})
    KafkaToIcebergTaskGroup("land", landing=orders, spark_conn_id="spark_connect_default")
"""


def main(arguments: list[str]) -> int:
    """Run and print; 1 when the table is not what was produced."""
    parser = argparse.ArgumentParser(prog="python -m bench.dag", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="of each window")
    parser.add_argument("--rounds", type=int, default=7, help="the first is not counted: it warms up")
    parser.add_argument("--without-preload", action="store_true", help="each task imports what it needs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder, ExitStack() as stack:
        place = Path(folder)
        broker = stack.enter_context(Broker(place / "kafka"))
        server = stack.enter_context(ConnectServer(place / "connect"))
        settings = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}/warehouse"}
        catalog = load_catalog("lakecommit", **settings)
        catalog.create_namespace("bench")
        catalog.create_table("bench.orders", SCHEMA, partition_spec=BY_DAY)
        client = _airflow(stack, place, broker, server, settings, preload=not options.without_preload).client
        for dag in ("floor", "landing"):
            client.await_dag(dag, RUN_SECONDS)
        total = options.records * options.rounds
        seconds: dict[str, list[float]] = {"floor": [], "landing": []}
        parts: list[dict[str, float]] = []
        for number in range(options.rounds):
            _fill(broker.bootstrap, number, options.records, total)
            for dag, taken in seconds.items():
                taken.append(_run(client, dag, f"run-{number}"))
            parts.append(client.seconds("landing", f"run-{number}"))
            print(
                f"round {number}: floor {seconds['floor'][-1]:.2f} s, landing {seconds['landing'][-1]:.2f} s",
                flush=True,
            )
        found = verify(settings, "bench.orders", total)
        median = {dag: statistics.median(taken[1:]) for dag, taken in seconds.items()}
        for task in parts[-1]:
            print(f"  {task}: {statistics.median(each[task] for each in parts[1:]):.2f} s")
        print(f"medians without the first: floor {median['floor']:.2f} s, landing {median['landing']:.2f} s, which is")
        print(f"{median['landing'] - median['floor']:.2f} s above the floor; the table: {found.wrong or 'row by row'}")
    return 1 if found.wrong else 0


def _airflow(
    stack: ExitStack, place: Path, broker: Broker, server: ConnectServer, catalog: dict[str, str], *, preload: bool
) -> Airflow:
    """An Airflow with the two DAGs and the connections that lead to the parts here."""
    dags = place / "dags"
    dags.mkdir()
    (dags / "bench_dags.py").write_text(DAGS)
    children = Children(place / "airflow-processes")
    stack.callback(children.stop)
    bundle = {
        "name": "bench",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(dags)},
    }
    airflow = Airflow(
        place / "airflow",
        children,
        connections={
            "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}},
            "iceberg_default": {"conn_type": "iceberg", "extra": {"name": "lakecommit", **catalog}},
            "spark_connect_default": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port},
        },
        settings={
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
            "AIRFLOW__LAKECOMMIT__PRELOAD": str(preload),
        },
        deployment="bench",
    )
    airflow.migrate()
    airflow.start()
    return airflow


def _fill(bootstrap: str, number: int, records: int, total: int) -> None:
    """The orders of one window."""
    if number == 0:
        produce(bootstrap, "orders", 0, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50})
    for i, value in enumerate(values(number * records, (number + 1) * records, total)):
        producer.produce("orders", value, partition=i % PARTITIONS)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("not all orders were delivered")


def _run(client: AirflowClient, dag: str, run: str) -> float:
    client.trigger(dag, run)
    state = client.await_run(dag, run, RUN_SECONDS)
    if state != "success":
        raise RuntimeError(f"{dag} {run} ended {state}")
    told: dict[str, Any] = client.run(dag, run)
    began, ended = (datetime.fromisoformat(told[key]) for key in ("start_date", "end_date"))
    return (ended - began).total_seconds()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
