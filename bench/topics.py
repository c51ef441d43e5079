# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.topics`: one declaration for many topics, and what a plan of it costs.

Contract: a real broker and a real catalog (SQLite on a local disk), topics of four partitions each with some records.
Told of each plan, from the list of topics to the last START in the control log: seconds, processor seconds, the most
memory that this process had, its connections to the broker at the end, and its threads. The first plan makes all
tables; the *idle* one is that of a scheduled run whose topics got nothing since their cycles were closed; the *steady*
ones find something new in every topic. Broker and catalog are on the same machine, and the broker's processor time is
not told.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.sets.plans import plans_of
from airflow_provider_lakecommit.cycle.sets.shared_connections import CLIENTS, SetConnections, for_all, found_landings
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSet
from dev.servers.kafka import Broker

RECORDS = 20
HEADINGS = f"{'':28}{'plan s':>8}{'CPU s':>8}{'peak MB':>9}{'connections':>13}{'threads':>9}{'failed':>8}"
CREATE = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "what", "type": "string"}]}


def main(arguments: list[str]) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.topics", description=__doc__)
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--plans", type=int, default=3, help="steady ones")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, Broker(Path(folder) / "kafka") as broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        print(f"{options.topics} topics of {options.partitions} partitions")
        print(HEADINGS)
        for label, shop, fields in (
            (f"{options.topics} tables", "each", {"table": "lake.{topic}"}),
            ("20 tables", "some", {"rules": [{"topics": r"some\.(?P<g>g..)\..*", "table": "lake.{g}", "merge": True}]}),
        ):
            names = [f"{shop}.g{n % 20:02d}.t{n:03d}" for n in range(options.topics)]
            _make(kafka, names, options.partitions)
            fields = {"topics_pattern": rf"{shop}\..*", **fields}
            _plans(label, kafka, Path(folder) / f"lake-{uuid4().hex[:6]}", names, fields, options.plans)
    return 0


def _plans(
    label: str, kafka: dict[str, str], folder: Path, names: list[str], fields: dict[str, object], steady: int
) -> None:
    folder.mkdir()
    lake = {"name": "b", "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/data"}
    declared = LandingSet(
        name=f"set-{uuid4().hex[:6]}",
        missing_table="create",
        defaults={"create": CREATE, "connections": {"control_topic": f"control-{uuid4().hex[:6]}"}},
        **fields,  # type: ignore[arg-type]
    )
    # While nothing is in the topics a cycle is whole without a write.
    _plan(f"{label}, first", declared, kafka, lake, close=True)
    _plan(f"{label}, idle", declared, kafka, lake)
    for n in range(steady):
        _produce(kafka, names)
        _plan(f"{label}, steady {n + 1}", declared, kafka, lake)


def _plan(
    label: str, declared: LandingSet, kafka: dict[str, str], lake: dict[str, str], *, close: bool = False
) -> None:
    run = RunIdentity(deployment="bench", dag_id="bench", run_id=uuid4().hex)
    process = psutil.Process()
    began, cpu = time.monotonic(), process.cpu_times()
    expansion = found_landings(declared, kafka)
    tables = Tables(lake, few=CLIENTS)
    with SetConnections(declared, expansion, kafka, tables, deployment="bench") as connections:
        plans = plans_of(
            declared, expansion, connections, kafka, tables, lambda s: open_cycle(s, run), _silent, skip_idle=not close
        )
        wall, now = time.monotonic() - began, process.cpu_times()
        used = now.user + now.system - cpu.user - cpu.system
        open_now = [c for c in process.net_connections() if c.status == psutil.CONN_ESTABLISHED]
        threads = process.num_threads()
        if close:
            tickets = {name: opened.ticket for name, opened in plans.opened.items()}
            with ConcurrentLandings() as concurrent:

                def closed(session: LandingSession) -> Closed:
                    return close_cycle(session, run, tickets[session.landing.name], executor=concurrent.executor)

                for_all(connections, plans.landings.values(), closed, _silent, concurrent=concurrent)
    tables.close()
    failed = list(plans.failed.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{label:28}{wall:>8.1f}{used:>8.1f}{peak:>9.0f}{len(open_now):>13}{threads:>9}{len(failed):>8}", flush=True)
    if failed:
        raise failed[0]


def _make(kafka: dict[str, str], names: list[str], partitions: int) -> None:
    admin = AdminClient(kafka)
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(120)


def _produce(kafka: dict[str, str], names: list[str]) -> None:
    producer = Producer(kafka)
    for name in names:
        for number in range(RECORDS):
            producer.produce(name, f'{{"id": {number}, "what": "a"}}'.encode())
        producer.poll(0)
    producer.flush(120)


def _silent(_: str) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
