# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.page`: the page "Lake commits" with many landings, in a real API server beside a real broker.

Contract: a control topic holds so many cycles of so many landings. Told are the seconds until all of them are on the
page, the memory that this takes beyond the API server's own, answer times of the list at so many requests a second
beside Airflow's own `/api/v2/version`, and the share of a processor that a steady stream of control records takes. With
a Chromium on the machine also the time from opening the page to its first paint and to its rows. Answers that are wrong
make the exit code 1. Times count on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_provider_lakecommit.control.records import Outgoing, Sender, table_reference
from airflow_provider_lakecommit.core.identity import cycle_id, slice_id, window_id
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import (
    LIVE,
    Counts,
    Cycle,
    Plan,
    Slice,
    SliceReport,
    Span,
    SpanReport,
    TableTarget,
)
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from dev import page
from dev.airflow_stack import Airflow
from dev.browser import Browser, BrowserError
from dev.paths import CHECKOUT, run_dir
from dev.processes import Children
from dev.servers.kafka import Broker

TOPIC, DEPLOYMENT, DAG = "control-lakecommit", "bench", "land"
RECORDS = 10_000
WINDOW = 10
READ_SECONDS, END_SECONDS = 900.0, 60.0
ASKED_TIMES = 10


class Landing:
    """Tells cycles of one landing, each of one slice of four partitions."""

    def __init__(self, name: str) -> None:
        self._name, self._number = name, 0
        self._table, self._uuid, self._epoch = f"shop.{name}", uuid4(), uuid4()

    def _target(self) -> TableTarget:
        return TableTarget(
            table=self._table,
            uuid=self._uuid,
            location=f"s3://lake/{self._table}",
            schema="{}",
            schema_id=0,
            spec="{}",
            spec_id=0,
            properties={},
            format_version=2,
            epoch=self._epoch,
        )

    def cycle(self) -> Iterator[Outgoing]:
        """The four records of the next one."""
        number, self._number = self._number, self._number + 1
        run = f"scheduled__{number}"
        commit = cycle_id(DEPLOYMENT, self._name, LIVE, DAG, run, 0)
        span = OffsetRange(number * RECORDS, (number + 1) * RECORDS)
        spans = tuple(Span(SourcePartition(f"t-{self._name}", p, "topic"), span) for p in range(4))
        window = window_id(self._name, LIVE, "s", {self._table: self._epoch}, spans)
        work = Slice(slice_id=slice_id(window, spans, (self._table,)), group=0, spans=spans, tables=(self._table,))
        now = datetime.now(UTC)
        plan = Plan(
            landing=self._name,
            lane=LIVE,
            spec_version="s",
            window_id=window,
            slices=(work,),
            targets=(self._target(),),
            ends={s.partition: span.end for s in spans},
            requested_at=now,
        )
        report = SliceReport(
            slice_id=work.slice_id,
            attempt=uuid4(),
            window_id=window,
            spec_version="s",
            spans=tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in spans),
            tables=(),
            bytes=1 << 20,
        )
        cycle = Cycle(commit_id=commit, dag=DAG, run=run, number=0, slot=0, deployment=DEPLOYMENT)
        table = table_reference("lake", self._table, self._uuid)
        planner, writer, committer = (
            Sender(landing=self._name, lane=LIVE, role=role, commit_id=commit) for role in ("plan", "write", "commit")
        )
        yield planner.opened(uuid4(), now, cycle, plan, Directives())
        yield writer.reported(uuid4(), now, report)
        yield committer.published(
            uuid4(),
            now,
            table=table,
            name=self._table,
            snapshot_id=number + 1,
            token=uuid4(),
            coverage=plan.coverage,
            directives=Directives(),
        )
        yield committer.closed(uuid4(), now, now, Directives())


def main(arguments: Sequence[str]) -> int:
    """Run and print; 1 when the page does not show what was told."""
    options = _options(arguments)
    page.build()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder, Broker(Path(folder, "kafka")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result()
        landings = [Landing(f"landing-{n:04d}") for n in range(options.landings)]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50, "max.in.flight": 1})
        for _ in range(options.cycles):
            _tell(producer, landings)
            producer.flush(60)
        with _airflow(Path(folder), broker.bootstrap, options.workers) as (airflow, process):
            return _measure(airflow, process, options, lambda: _steady(producer, landings, options))


def _measure(airflow: Airflow, process: psutil.Process, options: argparse.Namespace, feed: Callable[[], None]) -> int:
    client = _client(airflow)
    before = _memory(process)
    print(f"{options.landings} landings, {options.landings * options.cycles} cycles", end="")
    print(f" read in {_shown(client, options):.1f} s, {_memory(process) - before:.0f} MB")
    for path in ("/lakecommit/api/v1/landings", "/api/v2/version"):
        print(f"{path} at {options.requests}/s: {_answers(client, path, options)}")
    before_feed, began = _spent(process), time.monotonic()
    feed()
    share = (_spent(process) - before_feed) / (time.monotonic() - began)
    print(f"{options.events} control records/s: {share:.1%} of one processor, {_memory(process) - before:.0f} MB")
    _paint(airflow)
    first = client.get("/lakecommit/api/v1/landings").json()["landings"][0]
    good = (first["verdict"], first["read_lag"], first["commit_lag"]) == ("healthy", 0, 0)
    print("as told" if good else f"not as told: {dict(first, cycles=[])}")
    return 0 if good else 1


def _client(airflow: Airflow) -> httpx.Client:
    client = httpx.Client(base_url=airflow.url, headers={"Authorization": f"Bearer {airflow.client.token}"}, timeout=60)
    client.get("/api/v2/version")
    return client


def _shown(client: httpx.Client, options: argparse.Namespace) -> float:
    """Seconds until all landings are on the page, whichever worker answers."""
    began, in_a_row = time.monotonic(), 0
    while in_a_row < (1 if options.workers == 1 else ASKED_TIMES * options.workers):
        # A connection of its own reaches another worker.
        answer = client.get("/lakecommit/api/v1/landings", headers={"Connection": "close"})
        in_a_row = in_a_row + 1 if (total := int(answer.json()["total"])) >= options.landings else 0
        if time.monotonic() - began > READ_SECONDS:
            raise SystemExit(f"after {READ_SECONDS:.0f} s the page shows {total} of {options.landings} landings")
        time.sleep(0.0 if in_a_row else 0.2)
    return time.monotonic() - began


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--landings", type=int, default=1000)
    parser.add_argument("--cycles", type=int, default=100, help="of each landing")
    parser.add_argument("--requests", type=int, default=50, help="a second")
    parser.add_argument("--events", type=int, default=500, help="control records a second")
    parser.add_argument("--workers", type=int, default=1, help="of the API server; each reads for itself")
    parser.add_argument("--seconds", type=int, default=30, help="of each load")
    return parser.parse_args(arguments)


def _tell(producer: Producer, landings: Sequence[Landing]) -> None:
    for number, landing in enumerate(landings):
        for record in landing.cycle():
            producer.produce(TOPIC, record.value, record.key, partition=number % 3, headers=list(record.headers))
        producer.poll(0)


def _steady(producer: Producer, landings: Sequence[Landing], options: argparse.Namespace) -> None:
    begun, told = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < options.seconds:
        while told < passed * options.events / 4:
            _tell(producer, [landings[told % len(landings)]])
            told += 1
        producer.poll(0.05)
    producer.flush(60)


@contextmanager
def _airflow(folder: Path, bootstrap: str, workers: int) -> Iterator[tuple[Airflow, psutil.Process]]:
    children = Children(folder)
    kafka = {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": bootstrap})}
    airflow = Airflow(
        folder / "airflow",
        children,
        connections={"kafka_default": kafka},
        settings={"PYTHONPATH": str(CHECKOUT), "AIRFLOW__API__WORKERS": str(workers)},
        deployment=DEPLOYMENT + "-reader",
        parts=("api-server",),
    )
    try:
        airflow.migrate()
        airflow.start()
        pid = children.pid("api-server")
        assert pid is not None
        yield airflow, psutil.Process(pid)
        children.stop(END_SECONDS)
    finally:
        children.stop()


def _memory(process: psutil.Process) -> float:
    """In megabytes; what several of its workers share counts once."""
    return sum(p.memory_full_info().pss for p in _family(process)) / 1e6


def _spent(process: psutil.Process) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in _family(process))


def _family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _answers(client: httpx.Client, path: str, options: argparse.Namespace) -> str:
    """At a steady rate, whether or not the one before is answered."""
    took: list[float] = []
    lock = threading.Lock()

    def ask(due: float) -> None:
        time.sleep(max(0.0, due - time.monotonic()))
        client.get(path).raise_for_status()
        with lock:
            took.append(time.monotonic() - due)

    begin = time.monotonic() + 0.5
    with ThreadPoolExecutor(options.requests) as pool:
        list(pool.map(ask, (begin + n / options.requests for n in range(options.requests * options.seconds))))
    cuts = statistics.quantiles(took, n=100)
    return f"p50 {cuts[49] * 1000:.0f} ms, p95 {cuts[94] * 1000:.0f} ms, most {max(took) * 1000:.0f} ms"


def _paint(airflow: Airflow) -> None:
    try:
        with Browser(1280, 800) as browser:
            browser.set_cookie(airflow.url, "_token", airflow.client.token)
            began = time.monotonic()
            browser.visit(f"{airflow.url}/lakecommit/")
            browser.wait_for("landing-0000")
            rows = time.monotonic() - began
            paint = browser.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
            print(f"first paint {paint:.0f} ms, rows seen after {rows:.1f} s (looked at every 0.3 s)")
    except BrowserError as error:
        print(f"no browser: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
