# SPDX-License-Identifier: Apache-2.0
"""What a landing in a live Airflow shows and tells: the page of its tasks, the note of its run, metrics, lineage, and
asset events that start DAGs of both kinds; and that none of the receivers is missed when it is missing.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.live import Live, live_airflow, orders, until

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

CANARY = "canary-0815-of-the-broker"
CONSUMER = """
import datetime

from airflow.sdk import DAG, PartitionedAssetTimetable, task

from airflow_provider_lakecommit.assets import hourly_asset_of
from airflow_provider_lakecommit.landing import Landing

hours = hourly_asset_of(Landing.from_flat({landing!r}))

with DAG(
    {dag!r},
    schedule=PartitionedAssetTimetable(assets=hours),
    start_date=datetime.datetime(2026, 1, 1),
    catchup=False,
):

    @task
    def read_hour(*, partition_key=None):
        return partition_key

    read_hour()
"""


@dataclass
class Receivers:
    """Of StatsD and of OpenLineage, by their protocols."""

    metrics: socket.socket
    server: ThreadingHTTPServer
    events: list[dict[str, Any]] = field(default_factory=list)
    lines: set[str] = field(default_factory=set)

    def samples(self) -> dict[str, str]:
        """The newest value of each of our metrics."""
        found = [line.split(":", 1) for line in sorted(self.lines) if ".lakecommit." in line]
        return {name.removeprefix("airflow.lakecommit."): value for name, value in found}

    def close(self) -> None:
        self.metrics.close()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def receivers() -> Iterator[Receivers]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    got = Receivers(metrics=udp, server=ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def receive() -> None:
        try:
            while data := udp.recv(4096):
                got.lines.add(data.decode())
        except OSError:
            pass

    threading.Thread(target=got.server.serve_forever, daemon=True).start()
    threading.Thread(target=receive, daemon=True).start()
    yield got
    got.close()


@pytest.fixture(scope="module")
def outside(bootstrap: str, receivers: Receivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    values = {
        "METRICS__STATSD_ON": "True",
        "METRICS__STATSD_HOST": "127.0.0.1",
        "METRICS__STATSD_PORT": str(receivers.metrics.getsockname()[1]),
        "OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "http", "url": f"http://127.0.0.1:{receivers.server.server_address[1]}"}
        ),
        "LAKECOMMIT__TABLE_URL": "https://lake/{table}?at={snapshot_id}",
        "LAKECOMMIT__SPARK_URL": "https://spark/{connection}",
        "LAKECOMMIT__DOCS_URL": "https://docs/errors.html#{anchor}",
        "LAKECOMMIT__API_CONN_ID": "airflow_api",
    }
    settings = {f"AIRFLOW__{name}": value for name, value in values.items()}
    with live_airflow(tmp_path_factory.mktemp("outside"), bootstrap, more=settings) as running:
        login = {"login": "admin", "password": running.airflow.password}
        running.client.put_connections({"airflow_api": {"conn_type": "http", "host": running.airflow.url, **login}})
        yield running


def _run(live: Live, dag: str, run: str) -> str:
    return f"/dags/{dag}/dagRuns/{run}"


def _task(live: Live, run: str, task: str, part: str = "") -> dict[str, Any]:
    return live.client.told(f"{_run(live, 'outside', run)}/taskInstances/land.{task}{part}")


def _xcom(live: Live, run: str, task: str, key: str) -> Any:
    value = _task(live, run, task, f"/xcomEntries/{key}")["value"]
    return json.loads(value) if isinstance(value, str) else value


def test_a_run_is_reported_on_its_page_and_to_receivers(
    outside: Live, receivers: Receivers, make_topic: Callable[..., str], produce: Callable[..., list[tuple[int, int]]]
) -> None:
    topic = make_topic(2)
    landing = {"dead_letter_table": "shop.outside_dead"}
    outside.declare("outside", topic, options={"hourly": True}, **landing)
    declared = {"name": "outside", "topics": topic, "table": "shop.outside"}
    path = Path(outside.folder / "outside_by_hour.py")
    path.write_text(CONSUMER.format(dag="outside_by_hour", landing=declared))
    outside.client.await_dag("outside_by_hour", 600)
    produce(topic, orders(*range(10)), 0)
    produce(topic, [*orders(*range(10, 15)), "no json"], 1)
    state, tasks = outside.run("outside", "first")
    assert (state, set(tasks.values())) == ("success", {"success"})
    head = outside.lake.head("shop.outside")

    # The note.
    note = outside.client.run("outside", "first")["note"]
    assert re.match(rf"outside: 15 rows of .* in shop\.outside snapshot {head}; 1 rows of ", note), note
    assert "1 records rejected; valid through 20" in note

    # XComs and rendered fields.
    window = _xcom(outside, "first", "plan", "window")
    assert window["records"] == 16
    assert window["ranges"] == {f"{topic}[0]": [[0, 10]], f"{topic}[1]": [[0, 6]]}
    assert f"snapshot {head};" in _xcom(outside, "first", "commit", "landed")["outside"]
    assert _xcom(outside, "first", "commit", "closed")["rows"] == 15
    assert _xcom(outside, "first", "write", "return_value?map_index=0")["saved_records"] == 16
    fields = {task: _task(outside, "first", task)["rendered_fields"] for task in ("plan", "commit", "outcome")}
    assert fields["plan"]["window"]["window_id"] == window["window_id"]
    assert "shop.outside" in str(fields["plan"]["declared"])
    assert fields["commit"]["result"]["published"][0]["snapshot_id"] == str(head)
    assert str(fields["outcome"]["outcome"]).startswith("success: published shop.outside snapshot ")

    # Label, links, texts.
    [write] = _task(outside, "first", "write", "/listMapped")["task_instances"]
    assert write["rendered_map_index"] == f"{topic}[0,1] · 16"
    assert _task(outside, "first", "commit", "/links")["extra_links"] == {
        "Table": "https://lake/shop.outside?at=",
        "Snapshot": f"https://lake/shop.outside?at={head}",
        "What helps": None,
    }
    assert _task(outside, "first", "write", "/links?map_index=0")["extra_links"]["Spark"] == (
        "https://spark/spark_default"
    )
    assert "**outside**" in outside.client.told("/dags/outside/tasks/land.plan")["doc_md"]

    # Metrics: StatsD without tags.
    until("the metric of the outcome", lambda: "runs.outside.success" in receivers.samples())
    samples = receivers.samples()
    assert samples["rows.outside.shop__outside"] == "15|c"
    assert samples["rows.outside.shop__outside_dead"] == "1|c"
    assert samples["rejects.outside"] == "1|c"
    assert samples["planned.outside"] == "16|c"
    assert {"0|g", "16|g"} >= {samples["lag.outside"]}
    assert {"cycles.outside", "commit_seconds.outside", "valid_through.outside", "waiting.outside"} <= set(samples)

    # Lineage.
    def of_commit() -> list[dict[str, Any]]:
        whole = [e for e in receivers.events if e.get("eventType") == "COMPLETE"]
        return [e for e in whole if e["job"]["name"] == "outside.land.commit"]

    until("the lineage of the commit", lambda: bool(of_commit()))
    [event] = of_commit()
    [source] = event["inputs"]
    assert source["namespace"].startswith("kafka://127.0.0.1:") or source["namespace"].startswith("kafka://localhost:")
    assert source["name"] == topic
    assert source["inputFacets"]["lakecommit_offsets"]["ranges"] == window["ranges"]
    found = {each["name"]: each for each in event["outputs"]}
    assert set(found) == {"shop.outside", "shop.outside_dead"}
    assert found["shop.outside"]["namespace"].startswith("sqlite://")
    assert found["shop.outside"]["outputFacets"]["outputStatistics"]["rowCount"] == 15
    assert found["shop.outside"]["facets"]["version"]["datasetVersion"] == str(head)
    assert outside.airflow.password not in json.dumps(receivers.events)
    assert not any(
        outside.printed("outside", "first", "non-valid metadata", task) for task in ("plan", "write", "commit")
    )

    # Both kinds of consumers, once each.
    until("the run that follows the asset", lambda: outside.runs("outside_downstream") == ["success"])
    until("the run of the hour", lambda: outside.runs("outside_by_hour") == ["success"])
    [started] = outside.client.told("/dags/outside_by_hour/dagRuns")["dag_runs"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:00:00", started["partition_key"])

    # Nobody listens any more: the next run is as it would be.
    receivers.close()
    produce(topic, orders(15), 0)
    state, tasks = outside.run("outside", "second")
    assert (state, set(tasks.values())) == ("success", {"success"})
    assert outside.client.run("outside", "second")["note"].startswith("outside: 1 rows of ")
    until("the second run of what follows", lambda: len(outside.runs("outside_downstream")) == 2)
