# SPDX-License-Identifier: Apache-2.0
"""The local stack: a Kafka broker, an Iceberg catalog, a warm Spark Connect server, and an Airflow with connections to
all of them.

`python -m dev.stack up` starts what does not run and prints where it is; `down` ends exactly the processes that `up`
started and keeps the data. Both may be said again. All state is in `.run/stack`. By the environment:

- LAKECOMMIT_AIRFLOW_PORT, LAKECOMMIT_KAFKA_PORT, LAKECOMMIT_SPARK_PORT: ports, instead of free ones chosen at random
  and kept
- LAKECOMMIT_SPARK_CLUSTER: a standalone Spark cluster, a master and two workers, in place of the Spark Connect server
- LAKECOMMIT_S3: tables in an S3 server, versitygw, which Go builds at the first start, with a catalog of its own
- LAKECOMMIT_DEMO_CATALOG_URI: a SQLAlchemy URI (postgresql+psycopg2://…) instead of SQLite

Contract: :meth:`Stack.stop` may be called at any time, by another thread than the one that starts; after it nothing of
the stack runs and nothing more is started.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airflow_provider_lakecommit.iceberg import GuardedFileIO, Tables
from airflow_provider_lakecommit.spark import try_storage
from dev import example_data, page
from dev.airflow_stack import DAGS_FOLDER, PARTS, REFRESH_SECONDS, USER, WITH_TRIGGERER, Airflow
from dev.demo import flights as demo_flights
from dev.interruptible import leave, run
from dev.paths import CHECKOUT, run_dir
from dev.processes import Children, StoppingError
from dev.servers.connect import ConnectServer
from dev.servers.kafka import Broker
from dev.servers.s3 import S3Server
from dev.servers.server import listens
from dev.servers.standalone import StandaloneCluster

JARS_SECONDS = 900.0
DAG_SECONDS = 90.0
STOP_GRACE = 30.0
PORT_VARIABLES = ("LAKECOMMIT_KAFKA_PORT", "LAKECOMMIT_SPARK_PORT", "LAKECOMMIT_AIRFLOW_PORT")
CATALOG_VARIABLE = "LAKECOMMIT_DEMO_CATALOG_URI"
CLUSTER_VARIABLE = "LAKECOMMIT_SPARK_CLUSTER"
S3_VARIABLE = "LAKECOMMIT_S3"
SPARK_MASTER = "local[2]"
DAG = "example_lakecommit_flights"

Say = Callable[[str], None]


class PortError(RuntimeError):
    """A port that was asked for cannot be had."""


class WarehouseError(RuntimeError):
    """The folder of the tables cannot be used."""


class Stack:
    """Broker, catalog, Spark and Airflow of one directory. The Spark Connect server is there for who starts it; Airflow
    has a connection to it when it was started before.

    :param on_cluster: Spark is a cluster, to which jobs are submitted
    :param on_s3: tables are in an S3 server
    :param namespace: of the tables of the flights
    :param parts: which of Airflow's processes run
    :param visible: have the connections in Airflow's user interface
    """

    def __init__(
        self,
        directory: Path,
        *,
        deployment: str,
        namespace: str = "nyc",
        parts: tuple[str, ...] = PARTS,
        kafka_port: int | None = None,
        airflow_port: int | None = None,
        spark_port: int | None = None,
        on_cluster: bool = False,
        on_s3: bool = False,
        visible: bool = False,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.namespace = namespace
        self.children = Children(directory)
        self.broker = Broker(directory / "kafka", port=kafka_port)
        self.spark = ConnectServer(directory / "spark", port=spark_port)
        self.cluster = StandaloneCluster(directory / "cluster")
        self.s3 = S3Server(directory / "s3")
        self._on_cluster, self._on_s3 = on_cluster, on_s3
        self._deployment = deployment
        self._parts = parts
        self._airflow_port = airflow_port
        self._visible = visible
        self._airflow: Airflow | None = None
        self._starting = threading.Lock()
        self._starting_spark = threading.Lock()
        self._stopped = False

    @property
    def catalog(self) -> dict[str, str]:
        """Properties and name of the catalog, as a connection states them."""
        name = "catalog-s3.db" if self._on_s3 else "catalog.db"
        uri = foreign_catalog() or f"sqlite:///{self.directory / name}"
        known = {"name": "lakecommit", "type": "sql", "uri": uri}
        if self._on_s3:
            return {**known, **self.s3.properties}
        warehouse = self.directory / "warehouse"
        warehouse.mkdir(exist_ok=True)
        return {**known, "warehouse": f"file://{warehouse}"}

    @property
    def has_foreign_catalog(self) -> bool:
        """Whether the catalog outlives the directory."""
        return foreign_catalog() is not None

    @property
    def database(self) -> str:
        """Kind of the catalog's database."""
        return re.split(r"[:+]", self.catalog["uri"])[0]

    @property
    def airflow(self) -> Airflow:
        """Its Airflow; the broker's address must be known."""
        if self._airflow is None:
            catalog = self.catalog
            self._airflow = Airflow(
                self.directory / "airflow",
                self.children,
                connections={
                    "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": self.broker.bootstrap}},
                    "iceberg_default": {"conn_type": "iceberg", "extra": catalog},
                    "spark_default": {
                        "conn_type": "spark",
                        "host": self.cluster.url if self._on_cluster else SPARK_MASTER,
                    },
                    **self._warm_spark(),
                },
                settings={
                    "LAKECOMMIT_FLIGHTS_NAMESPACE": self.namespace,
                    "LAKECOMMIT_FLIGHTS_SPARK": next(iter(self._warm_spark()), "spark_default"),
                },
                deployment=self._deployment,
                port=self._airflow_port,
                parts=self._parts,
                visible=self._visible,
            )
        return self._airflow

    @property
    def where_spark_is(self) -> str:
        """For people."""
        if self._on_cluster:
            return f"{self.cluster.url}   connection spark_default; its page http://127.0.0.1:{self.cluster.master.page_port}"
        return f"{self.spark.url}   connection spark_connect_default; spark_default starts jobs on {SPARK_MASTER}"

    @property
    def running(self) -> list[str]:
        """Names of what runs."""
        names = [part for part in WITH_TRIGGERER if self.children.pid(part) is not None]
        cluster = next(iter(self.cluster.pids), None)
        servers = {"cluster": cluster, "spark": self.spark.pid, "broker": self.broker.pid, "s3": self.s3.pid}
        return [*names, *(name for name, pid in servers.items() if pid is not None)]

    def start_s3(self, log: Say) -> None:
        """Start the S3 server if the tables are there, and wait until it answers.

        :raises StoppingError: the stop has begun
        :raises S3ServerError: it cannot be built or started
        """
        if not self._on_s3:
            return
        log("S3 server")
        with self._starting:
            if self._stopped:
                raise StoppingError("the S3 server is not started: everything is being stopped")
            self.s3.start()

    def start_broker(self, log: Say) -> None:
        """Bring the jars here, start the broker, and wait until it answers.

        :raises StoppingError: the stop has begun
        """
        log("jars of the broker")
        command = [sys.executable, "-m", "dev.jars", "broker"]
        self.children.run("jars", command, env=os.environ, cwd=CHECKOUT, timeout=JARS_SECONDS)
        log("broker")
        with self._starting:
            if self._stopped:
                raise StoppingError("the broker is not started: everything is being stopped")
            self.broker.start()

    def start_spark(self, log: Say) -> None:
        """Start the Spark Connect server, or the cluster, and wait until it answers.

        :raises StoppingError: the stop has begun
        """
        what = "Spark cluster" if self._on_cluster else "Spark Connect server"
        log(what)
        with self._starting_spark:
            if self._stopped:
                raise StoppingError(f"the {what} is not started: everything is being stopped")
            if self._on_cluster:
                self.cluster.start()
            else:
                self.spark.start()

    def start_airflow(self, log: Say) -> None:
        """Start Airflow where it does not run, and wait until it is healthy. The broker must have been started."""
        if not self.airflow.is_running:
            log("Airflow: its database")
            self.airflow.migrate()
        log(f"Airflow: {', '.join(self._parts)}")
        self.airflow.start()

    @property
    def is_stopping(self) -> bool:
        """Whether the stop has begun: then whatever fails fails because of it."""
        return self.children.is_stopping

    def stop(self, grace: float = 0.0) -> None:
        """End everything."""
        try:
            self.children.stop(grace)
        finally:
            # A server that is just being started is waited for: then its process id is known.
            with self._starting, self._starting_spark:
                self._stopped = True
            self.cluster.stop()
            self.spark.stop()
            self.broker.stop()
            self.s3.stop()

    def _warm_spark(self) -> dict[str, dict[str, object]]:
        """The connection to the Spark Connect server, if there ever was one here."""
        if self._on_cluster or not self.spark.was_started:
            return {}
        return {"spark_connect_default": {"conn_type": "spark_connect", "host": "127.0.0.1", "port": self.spark.port}}


def foreign_catalog() -> str | None:
    """URI of a catalog database elsewhere."""
    return os.environ.get(CATALOG_VARIABLE) or None


def local_stack() -> Stack:
    """The stack of this checkout, running or not."""
    kafka, spark, airflow = map(_port, PORT_VARIABLES)
    return Stack(
        run_dir() / "stack",
        deployment="local-stack",
        parts=WITH_TRIGGERER,
        kafka_port=kafka,
        spark_port=spark,
        airflow_port=airflow,
        on_cluster=bool(os.environ.get(CLUSTER_VARIABLE)),
        on_s3=bool(os.environ.get(S3_VARIABLE)),
    )


def _port(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise PortError(f"{variable}={text}: give a port, or leave it out to get a free one")
    return int(text)


def _check_ports() -> None:
    """Before anything is started, because Airflow would find its port taken last, a minute later.

    :raises PortError: somebody else listens on a port that was asked for
    """
    for variable in PORT_VARIABLES:
        port = _port(variable)
        if port is not None and listens(port):
            raise PortError(f"{variable}={port}: somebody listens there already: give another port, or none")


def check_warehouse(catalog: dict[str, str]) -> None:
    """Write, read and delete a small file where the tables will be.

    :raises WarehouseError: it cannot be done
    """
    tables = Tables(catalog)
    place = f"{tables.check_warehouse()}/.lakecommit-probe-{os.getpid()}"
    if trouble := try_storage(GuardedFileIO(tables.io_properties()), place):
        raise WarehouseError(f"the warehouse cannot be used: {trouble}: let this user write there, then try again")


def up() -> int:
    """Start the stack, fill the topic of the flights, and say where everything is.

    :raises PortError: a port that was asked for cannot be had
    :raises WarehouseError: no table could be written
    """
    stack = local_stack()
    if not stack.running:
        _check_ports()
    went_well = threading.Event()

    def work() -> int:
        stack.start_s3(_tell)
        check_warehouse(stack.catalog)
        with ThreadPoolExecutor(1) as beside:
            spark = beside.submit(stack.start_spark, _tell)
            stack.start_broker(_tell)
            spark.result()
        _build_page()
        stack.start_airflow(_tell)
        if demo_flights.make_topic(stack.broker.bootstrap):
            _tell("filling the topic of the flights")
            demo_flights.produce(stack.broker.bootstrap, demo_flights.events(demo_flights.load()))
        example_data.fill(stack.broker.bootstrap, stack.catalog, _tell)
        stack.airflow.client.await_dag(DAG, DAG_SECONDS)
        went_well.set()
        return 0

    code = run(work, lambda: None if went_well.is_set() else stack.stop())
    if code == 0:
        _show(stack)
    return code


def down() -> int:
    """Stop the stack."""
    stack = local_stack()
    running = stack.running
    stack.stop(STOP_GRACE)
    _say(f"stopped: {', '.join(running)}" if running else "nothing ran")
    return 0


def _build_page() -> None:
    """Where it can be built; the page itself says so where it was not."""
    try:
        _tell("building the page Lake commits")
        page.build()
    except page.PageError as error:
        _say(f"not built: {error}")


def _tell(text: str) -> None:
    _say(f"starting: {text}")


def _say(text: str) -> None:
    """A reader that has gone, as in `make up | head`, stops nothing."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show(stack: Stack) -> None:
    airflow = stack.airflow
    _say(f"Airflow   {airflow.url}   user {USER}, password {airflow.password}")
    _say(f"          trigger the Dag {DAG}: it lands the topic {demo_flights.TOPIC} in {stack.namespace}.flights")
    _say("          the other example Dags have topics and tables too, but for those that guard a Kafka Connect sink")
    _say(f"          the page Lake commits: {airflow.url}/plugin/lakecommits")
    _say(f"Your Dags {DAGS_FOLDER}   put them there: Airflow finds a new file within {REFRESH_SECONDS} s")
    _say(f"Kafka     {stack.broker.bootstrap}")
    _say(f"Spark     {stack.where_spark_is}")
    _say(f"Catalog   {f'as in {CATALOG_VARIABLE}' if stack.has_foreign_catalog else stack.catalog['uri']}")
    _say(f"          warehouse {stack.catalog['warehouse']}")
    _say(f"Logs      {stack.children.logs}")
    _say("`make down` stops it and keeps the data.")


def main(arguments: list[str]) -> int:
    """`python -m dev.stack up | down`."""
    verbs = {"up": up, "down": down}
    if len(arguments) != 1 or arguments[0] not in verbs:
        print(main.__doc__, file=sys.stderr)
        return 2
    try:
        return verbs[arguments[0]]()
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
