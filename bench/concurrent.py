# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.concurrent`: many landings closed by one call, while the catalog hangs on some of their tables.

Contract: the path of the commit task and of the command line: real control topic, real catalog (SQLite), slices written
by the function that Spark's tasks run, one table per landing. A request for a table that hangs is held back for some
seconds before it is sent. Told of the *other* landings: how long after the call began they were closed (median, 95 of
100, last); and when the last of those that hang was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.results import CycleTicket
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.landing import Connections, Landing
from airflow_provider_lakecommit.spark.job import Secrets
from airflow_provider_lakecommit.spark.task import run_task
from bench.turns import HangingTables
from dev.servers.kafka import Broker
from tests.support.groups import group_job

RECORDS = 20
HEADINGS = f"{'':20}{'median s':>10}{'95 % s':>8}{'last s':>8}{'hung s':>8}"


def main(arguments: list[str]) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.concurrent", description=__doc__)
    parser.add_argument("--landings", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60, help="for which a request hangs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, Broker(Path(folder) / "kafka") as broker:
        lake = {"name": "b", "type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/data"}
        kafka = {"bootstrap.servers": broker.bootstrap}
        landings = _landings(kafka, options.landings)
        print(f"{options.landings} landings, requests that hang do so for {options.seconds:g} s")
        print(HEADINGS)
        for name, stuck in (("none hangs", 0), ("1 hangs", 1), ("5 hang", 5), ("none hangs, again", 0)):
            print(f"{name:20}{_round(landings, kafka, lake, stuck, options.seconds)}", flush=True)
    return 0


def _round(landings: list[Landing], kafka: dict[str, str], lake: dict[str, str], stuck: int, seconds: float) -> str:
    """One window for each landing, written, then all of them closed; the figures as text."""
    run_identity = RunIdentity(deployment="bench", dag_id="bench", run_id=str(uuid4()))
    tickets = {landing.name: _written(landing, kafka, lake, run_identity) for landing in landings}
    hanging = {landing.table for landing in landings[len(landings) // 2 :][:stuck]}
    done: dict[str, float] = {}

    tables = HangingTables(lake)
    tables.hanging, tables.seconds = hanging, seconds

    def close(concurrent: ConcurrentLandings, landing: Landing) -> None:
        own = LandingSession.connect(landing, kafka, lake, log=_silent)
        with concurrent.session(lambda: replace(own, tables=tables, lent=True)) as session:
            closed = close_cycle(session, run_identity, tickets[landing.name], executor=concurrent.executor)
        if closed.rows != RECORDS:
            raise RuntimeError(f"{landing.name}: {closed}")
        done[landing.table] = time.monotonic() - began

    began = time.monotonic()
    with closing(tables), ConcurrentLandings() as concurrent:
        works: dict[str, Callable[[], None]] = {each.name: partial(close, concurrent, each) for each in landings}
        for outcome in concurrent.run(works).values():
            if isinstance(outcome, BaseException):
                raise outcome
    others = sorted(seconds for table, seconds in done.items() if table not in hanging)
    hung = max((seconds for table, seconds in done.items() if table in hanging), default=0.0)
    tail = others[int(len(others) * 0.95)]
    return f"{statistics.median(others):>10.1f}{tail:>8.1f}{others[-1]:>8.1f}{hung:>8.1f}"


def _landings(kafka: dict[str, str], count: int) -> list[Landing]:
    create = {"schema": [{"name": "id", "type": "long", "required": True}]}
    landings = [
        Landing(
            name=f"l{n}",
            topics=f"bench-{n}",
            table=f"bench.t{n}",
            create=create,
            connections=Connections(control_topic="bench-control"),
        )
        for n in range(count)
    ]
    admin = AdminClient(kafka)
    made = admin.create_topics([NewTopic(each.topic_names[0], 1, 1) for each in landings])
    for future in made.values():
        future.result(60)
    return landings


def _written(landing: Landing, kafka: dict[str, str], lake: dict[str, str], run_identity: RunIdentity) -> CycleTicket:
    """Records, planned and written; where their cycle is."""
    producer = Producer(kafka)
    for number in range(RECORDS):
        producer.produce(landing.topic_names[0], json.dumps({"id": number}).encode())
    producer.flush(60)
    with LandingSession.connect(landing, kafka, lake, log=_silent) as session:
        opened = open_cycle(session, run_identity)
        for ticket in opened.groups:
            job: Any = group_job(landing, session.control, ticket, session.tables.name)
            for index in range(len(job.places)):
                run_task(job, Secrets(kafka=kafka, io=session.tables.io_properties()), index)
    return opened.ticket


def _silent(_: str) -> None:
    pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
