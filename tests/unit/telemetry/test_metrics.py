# SPDX-License-Identifier: Apache-2.0
"""The metrics of landings: their names, what is sent when, and on the wire to a receiver of StatsD."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.telemetry import metrics
from airflow_provider_lakecommit.telemetry.metrics import (
    LAG,
    METRICS,
    ROWS,
    RUNS,
    VALID_THROUGH,
    Metric,
    Sample,
    closed_samples,
    name_without_tags,
    prometheus_name,
)
from airflow_provider_lakecommit.telemetry.send import send

CYCLE = UUID(int=1)
PARTITION = SourcePartition(topic="orders", topic_id="id", partition=0)


def snapshot(table: str, start: int, end: int, rows: int) -> PublishedSnapshot:
    return PublishedSnapshot(
        table=table,
        snapshot_id=7,
        commit_id=CYCLE,
        coverage=Coverage.of([(PARTITION, OffsetRange(start, end))]),
        rows=rows,
        files=2,
        counts=Counts(landed=end - start),
    )


def test_each_metric_is_listed_once_and_has_a_name_that_backends_take() -> None:
    stated = [each for each in vars(metrics).values() if isinstance(each, Metric)]
    assert set(METRICS) == set(stated)
    assert len({m.name for m in METRICS}) == len(METRICS)
    assert all(re.fullmatch(r"lakecommit\.[a-z_]+", m.name) for m in METRICS)
    assert {m.kind for m in METRICS} == {"counter", "gauge"}


def sent(samples: Iterator[Sample]) -> dict[tuple[str, ...], float]:
    return {(s.metric.name.removeprefix("lakecommit."), *s.tags): s.value for s in samples}


def test_a_closed_cycle_reports_rows_per_table_freshness_and_what_is_left() -> None:
    closed = Closed(
        commit_id=CYCLE,
        table="shop.orders",
        published=(
            snapshot("shop.orders", 0, 5, 5),
            snapshot("shop.orders", 5, 9, 3),
            snapshot("shop.orders_dead", 0, 9, 1),
        ),
        left=12,
        valid_through=datetime(2026, 1, 2, tzinfo=UTC),
        rejects={"not_json": 1},
    )
    assert sent(closed_samples("orders", closed, 1.5)) == {
        ("cycles", "orders"): 1,
        ("commit_seconds", "orders"): 1.5,
        ("rows", "orders", "shop.orders"): 8,
        ("files", "orders", "shop.orders"): 4,
        ("rows", "orders", "shop.orders_dead"): 1,
        ("files", "orders", "shop.orders_dead"): 2,
        ("rejects", "orders"): 1,
        ("waiting", "orders"): 0,
        ("missing", "orders"): 0,
        ("blocked", "orders"): 0,
        ("valid_through", "orders"): datetime(2026, 1, 2, tzinfo=UTC).timestamp(),
        ("lag", "orders"): 12,
    }


def test_a_window_that_is_not_wholly_published_reports_no_lag_and_a_cycle_that_was_over_reports_nothing() -> None:
    closed = Closed(commit_id=CYCLE, missing=("orders[0][0, 5)",), blocked=("orders[1][0, 5)",))
    names = {s.metric for s in closed_samples("orders", closed, 1.5)}
    assert not names & {LAG, VALID_THROUGH, ROWS}
    assert not list(closed_samples("orders", Closed(commit_id=CYCLE, finished=True), 1.5))


def test_names_for_backends_without_tags_and_for_prometheus() -> None:
    assert name_without_tags(Sample(ROWS, 1, ("orders", "shop.or ders"))) == "lakecommit.rows.orders.shop__or_ders"
    assert prometheus_name(RUNS) == "airflow_lakecommit_runs_total"
    assert prometheus_name(LAG) == "airflow_lakecommit_lag"


PROGRAM = """
import os, sys
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from airflow_provider_lakecommit.telemetry.metrics import METRICS, Sample
from airflow_provider_lakecommit.telemetry.send import send, start_for_commands

samples = [Sample(m, 3, tuple(f"{tag}.x" for tag in m.tags)) for m in METRICS]

def start_for_a_task():
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
    return send

for who, start in (("task", start_for_a_task), ("command", start_for_commands)):
    for tagged in ("False", "True"):
        os.environ["AIRFLOW__METRICS__STATSD_PREFIX"] = f"{who}.{tagged}"
        os.environ["AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED"] = tagged
        start()(samples)
os.environ.update(AIRFLOW__METRICS__STATSD_ON="False", AIRFLOW__METRICS__OTEL_ON="True")
start_for_commands()(samples)
"""


@pytest.fixture
def statsd() -> Iterator[socket.socket]:
    """A receiver whose buffer holds all that is sent to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        yield receiver


@contextmanager
def otlp() -> Iterator[tuple[int, list[ExportMetricsServiceRequest]]]:
    """A receiver of OpenTelemetry by HTTP."""
    got: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            whole = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            got.append(ExportMetricsServiceRequest.FromString(whole))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], got
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.heavy
def test_receivers_of_statsd_and_opentelemetry_get_every_metric_of_tasks_and_commands(statsd: socket.socket) -> None:
    with otlp() as (port, exported):
        settings = {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(statsd.getsockname()[1]),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, check=False, timeout=600, env={**os.environ, **settings}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    got = set[str]()
    with suppress(BlockingIOError):
        while True:
            got.add(statsd.recv(4096).decode())
    kinds = {"counter": "c", "gauge": "g"}
    plain = {m: "".join(f".{tag}__x" for tag in m.tags) for m in METRICS}
    tagged = {m: "".join(f",{tag}={tag}.x" for tag in m.tags) for m in METRICS}
    for source in ("task", "command"):
        for name, tags in (("False", plain), ("True", tagged)):
            mine = {line for line in got if line.startswith(f"{source}.{name}.lakecommit.")}
            assert mine == {f"{source}.{name}.{m.name}{tags[m]}:3|{kinds[m.kind]}" for m in METRICS}

    found = [m for e in exported for r in e.resource_metrics for s in r.scope_metrics for m in s.metrics]
    mine_there = {m.name: m for m in found if "lakecommit" in m.name}
    assert set(mine_there) == {f"airflow.{m.name}" for m in METRICS}
    for m in METRICS:
        data = mine_there[f"airflow.{m.name}"]
        assert data.WhichOneof("data") == {"counter": "sum", "gauge": "gauge"}[m.kind]
        [point] = data.sum.data_points if m.kind == "counter" else data.gauge.data_points
        assert {a.key: a.value.string_value for a in point.attributes} == {tag: f"{tag}.x" for tag in m.tags}
        assert (point.as_int or point.as_double) == 3


def test_without_metrics_nothing_is_loaded_and_commands_read_no_airflow() -> None:
    message = """
import json, sys
from airflow_provider_lakecommit.telemetry.send import start_for_commands
start_for_commands()([])
print(json.dumps("airflow" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", message], check=True, timeout=600, capture_output=True, text=True)
    assert json.loads(done.stdout) is False


def test_whatever_a_backend_does_no_task_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.observability import stats

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no backend")

    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setattr(stats, "gauge", broken)
    send([Sample(LAG, 1, ("orders",))])
