# SPDX-License-Identifier: Apache-2.0
"""The parts that :mod:`bench.soak` runs: broker, REST catalog, Spark Connect server, schema registry, a live Airflow,
and `lakecommit land --follow` processes that are started again whenever they end.

Contract: everything is below one folder. :meth:`World.stop` may be called at any time, by any thread; after it nothing
that was started here runs, and nothing more is started.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog, load_catalog

from bench.soak_topics import PARTITIONS, Topic, topics_of
from dev.airflow_client import AirflowAnswerError
from dev.airflow_stack import WITH_TRIGGERER, Airflow
from dev.paths import CHECKOUT
from dev.processes import Children, Process, StoppingError, tail
from dev.servers.connect import ConnectServer
from dev.servers.kafka import Broker
from dev.servers.rest_catalog import RestCatalogServer
from dev.servers.server import Server
from tests.fakes.registry import FakeRegistry

__all__ = ["CONTROL", "World"]

CONTROL = "soak-control"
LOOK_SECONDS = 0.5
DAG_SECONDS = 300.0
SUBMITTED = 4
"""One of so many scheduled landings has a group of tasks in place of one task."""
SUBMIT = {20: "spark_default"}
"""Landings whose jobs are started by spark-submit; all others use the Spark Connect server."""
PLAIN_DAG = """
import datetime

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import {kind}
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.maintenance import MaintainTableOperator
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import StallPolicy
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

declared = {kind}.from_dict({declared!r})

with DAG(
    {dag!r},
    schedule=datetime.timedelta(seconds={period}),
    start_date={start!r},
    catchup=False,
    max_active_runs=1,
    default_args={{"retries": 2, "retry_delay": datetime.timedelta(seconds=10)}},
):
    {body}
"""
LAND = 'KafkaToIcebergOperator(task_id="land", landing=declared, spark_conn_id={spark!r})'
GROUP = 'KafkaToIcebergTaskGroup("land", landing=declared, spark_conn_id={spark!r})'
MAINTAIN = (
    'MaintainTableOperator(task_id="maintain", landing=declared, snapshots_older_than="20m", keep_snapshots=20, '
    'files_older_than="40m")'
)
SENSOR = 'StalledCommitSensor(task_id="sensor", landing=declared, on_stall="wait") >> '


class World:
    """Everything that runs during the soak.

    :param folder: where all of it is
    :param period: shortest seconds between two runs of a scheduled landing; the longest are twice that
    """

    def __init__(self, folder: Path, landings: int, period: float) -> None:
        self.folder, self.period = folder, period
        self.topics: list[Topic] = topics_of(landings)
        self.broker = Broker(folder / "kafka")
        self.catalog = RestCatalogServer(folder / "catalog")
        self.connect = ConnectServer(folder / "connect", cores=4)
        self.children = Children(folder / "processes")
        self.registry = FakeRegistry()
        self.restarts: Counter[str] = Counter()
        self.troubles: list[str] = []
        self._follows: dict[str, int] = {}
        self._airflow: Airflow | None = None
        self._stack = ExitStack()
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self, log: Callable[[str], None]) -> None:
        """Start everything and wait until it can be used."""
        for server in (self.broker, self.catalog, self.connect):
            log(f"starting the {server.name}")
            self._started(server)
        self._stack.enter_context(self.registry.running())
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for made in admin.create_topics([NewTopic(t.name, PARTITIONS, 1) for t in self.topics]).values():
            made.result(60)
        for topic in self.topics:
            self.spec(topic).write_text(json.dumps(self._spec_of(topic)))
        self._write_dags()
        log("starting Airflow")
        self.airflow.migrate()
        self.airflow.start()
        for path in sorted(self._dags_folder.glob("*.py")):
            self.airflow.client.await_dag(path.stem, DAG_SECONDS)
        for topic in self.topics:
            if topic.role == "continuous":
                self._follow(topic.stem)
        threading.Thread(target=self._supervise, daemon=True).start()

    def stop(self) -> None:
        """End everything."""
        self._stopping.set()
        try:
            self.children.stop(20.0)
        finally:
            # A server that is just being started is waited for: then its process id is known.
            with self._lock:
                for server in (self.connect, self.catalog, self.broker):
                    server.stop()
                self._stack.close()

    def outage(self, server: Server, seconds: float, *, kill: bool = False) -> None:
        """Have a server away for so long."""
        server.kill() if kill else server.stop()
        self._stopping.wait(seconds)
        self._started(server)
        self.restarts[server.name] += 1

    def revive(self, part: str) -> None:
        """SIGKILL for a part of Airflow and all that it runs; start it again."""
        self.airflow.kill(part)
        self.airflow.start()
        self.restarts[part] += 1

    def _started(self, server: Server) -> None:
        with self._lock:
            if self._stopping.is_set():
                raise StoppingError(f"the {server.name} is not started: everything is being stopped")
            server.start()

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def airflow(self) -> Airflow:
        """Its Airflow; the broker's address must be known."""
        if self._airflow is None:
            registry = {"conn_type": "http", "host": "127.0.0.1", "port": int(self.registry.url.rpartition(":")[2])}
            self._airflow = Airflow(
                self.folder / "airflow",
                self.children,
                connections={
                    "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": self.broker.bootstrap}},
                    "iceberg_default": {"conn_type": "iceberg", "extra": self.catalog_properties},
                    "spark_default": {"conn_type": "spark", "host": "local[1]"},
                    "spark_connect_default": {
                        "conn_type": "spark_connect",
                        "host": "127.0.0.1",
                        "port": self.connect.port,
                    },
                    "schemas": registry,
                },
                settings=_airflow_settings(self._dags_folder),
                deployment="soak",
                parts=WITH_TRIGGERER,
            )
        return self._airflow

    @property
    def catalog_properties(self) -> dict[str, str]:
        """Properties and name of the catalog."""
        return {"name": "lake", **self.catalog.properties}

    @property
    def warehouse(self) -> Path:
        """Where the files of the tables are."""
        return self.folder / "catalog" / "warehouse"

    @cached_property
    def lake(self) -> Catalog:
        """The catalog as an independent client has it."""
        return load_catalog(**self.catalog_properties)

    def spec(self, topic: Topic) -> Path:
        """Return the YAML spec of a topic's landing, or of the set that has it."""
        folder = self.folder / "specs"
        folder.mkdir(exist_ok=True)
        return folder / f"{'shop' if topic.role == 'set' else topic.stem}.yaml"

    def dags(self) -> list[str]:
        """Return the DAGs that land."""
        found = [t.stem for t in self.topics if t.role == "scheduled"]
        return [*found, "shop"] if self._in_set else found

    def dag_of(self, topic: Topic) -> str | None:
        """Return the DAG that lands a topic."""
        return {"scheduled": topic.stem, "set": "shop"}.get(topic.role)

    def follows(self) -> dict[str, str]:
        """Return the continuous landings, with the name of the process of each."""
        return {stem: _follow_name(stem, number) for stem, number in dict(self._follows).items()}

    def strays(self) -> list[Process]:
        """Return what earlier processes of continuous landings have left running."""
        return [
            process
            for stem, newest in dict(self._follows).items()
            for number in range(newest)
            for process in self.children.family(_follow_name(stem, number))
        ]

    # -- declarations ---------------------------------------------------------------------------------------------

    @property
    def _dags_folder(self) -> Path:
        return self.folder / "dags"

    @property
    def _in_set(self) -> list[Topic]:
        return [t for t in self.topics if t.role == "set"]

    def _declared(self, topic: Topic) -> dict[str, Any]:
        """Return what declares a topic's landing, or the set that has it."""
        if topic.role != "set":
            return {"name": topic.stem, "topics": topic.name, "table": topic.table, **_shared(), **topic.options()}
        overrides = [{"table": each.table.replace(".", r"\."), **each.options()} for each in self._in_set]
        return {
            "name": "shop",
            "topics_pattern": r"set\.(?P<what>.*)",
            "table": "soak.{what}",
            "missing_table": "create",
            "defaults": _shared(),
            "overrides": overrides,
        }

    def _spec_of(self, topic: Topic) -> dict[str, Any]:
        spark = {"remote": self.connect.url} if topic.number == 7 else {"master": "local[1]"}
        return {
            **self._declared(topic),
            "kafka": {"bootstrap.servers": self.broker.bootstrap},
            "registry": {"url": self.registry.url},
            "catalog": self.catalog_properties,
            "spark": spark,
        }

    def _write_dags(self) -> None:
        self._dags_folder.mkdir()
        start = datetime.now(UTC) - timedelta(days=1)
        for topic in self.topics:
            if topic.role == "scheduled":
                spark = SUBMIT.get(topic.number, "spark_connect_default")
                shape = GROUP if topic.number % SUBMITTED == 1 else LAND
                sensor = SENSOR if topic.number % 10 == 8 and shape is LAND else ""
                self._write_dag(topic.stem, topic, sensor + shape.format(spark=spark), start)
                if topic.number % 5 == 3:
                    # Not before the table is there.
                    later = start + timedelta(days=1, seconds=2 * self.period)
                    self._write_dag(f"{topic.stem}_maintain", topic, MAINTAIN, later, times=3)
        if self._in_set:
            self._write_dag("shop", self._in_set[0], GROUP.format(spark="spark_connect_default"), start)

    def _write_dag(self, dag: str, topic: Topic, body: str, start: datetime, times: int = 1) -> None:
        period = times * self.period * (1 + topic.number % 6 / 5)
        # Their first runs are spread over a period.
        offset = timedelta(seconds=self.period * (topic.number % 20) / 20)
        text = PLAIN_DAG.format(
            kind="LandingSet" if topic.role == "set" else "Landing",
            declared=self._declared(topic),
            dag=dag,
            period=period,
            start=start + offset,
            body=body,
        )
        (self._dags_folder / f"{dag}.py").write_text(text)

    # -- the continuous landings ----------------------------------------------------------------------------------

    def _follow(self, stem: str) -> None:
        number = self._follows.get(stem, -1) + 1
        command = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", "land"]
        command += [str(self.folder / "specs" / f"{stem}.yaml"), "--follow", "--window-age", "30s"]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "SPARK_LOCAL_IP": "127.0.0.1"}
        self.children.start(_follow_name(stem, number), command, env=environment, cwd=self.folder)
        self._follows[stem] = number

    def _supervise(self) -> None:
        """Start a continuous landing again whenever it has ended."""
        while not self._stopping.wait(LOOK_SECONDS):
            for stem, name in self.follows().items():
                if self.children.pid(name) is not None:
                    continue
                self.restarts[f"follow {stem}"] += 1
                if (code := self.children.exit_code(name)) not in (-9, None):
                    last = tail(self.children.log(name), 3)
                    self.troubles.append(f"{time.strftime('%H:%M:%S')} {name} ended with {code}: {last[-600:]}")
                with suppress(StoppingError):
                    self._follow(stem)

    def trigger(self, dag: str) -> None:
        """Have a DAG run once more; where it cannot now, its schedule does."""
        with suppress(AirflowAnswerError, OSError):
            self.airflow.client.trigger(dag, f"last-{time.time_ns()}")


def _follow_name(stem: str, number: int) -> str:
    return f"follow-{stem}.{number}"


def _shared() -> dict[str, Any]:
    """Return the options that all landings have."""
    return {
        "window": {"completion_timeout": 1200, "slice_records": 500},
        "maintain": {"max_files": 40, "max_snapshots": 60},
        "connections": {"control_topic": CONTROL, "registry": "schemas"},
    }


def _airflow_settings(dags: Path) -> dict[str, str]:
    bundle = {
        "name": "soak",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(dags)},
    }
    return {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "3",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "90",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "240",
        "AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": CONTROL,
        "PYTHONPATH": str(CHECKOUT),
    }
