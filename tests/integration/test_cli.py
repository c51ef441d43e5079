# SPDX-License-Identifier: Apache-2.0
"""The commands that need no Spark, as processes, on a real broker and catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.control.data_file import DataFile
from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import CommitToTable, DataWritten, StartCommit, TableReference
from dev.servers.server import free_port
from tests.support.cli import run, write_spec
from tests.support.declared import nested

pytestmark = pytest.mark.integration

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TABLE = TableReference(catalog="c", namespace=("shop",), name="orders")
FILE = DataFile(file_path="s3://b/1.parquet", record_count=3, file_size_in_bytes=99, lower_bounds={1: b"\x01"})


def event(group: str, payload: object) -> bytes:
    return encode(Event(id=UUID(int=1), timestamp=NOON, group_id=group, payload=payload))  # type: ignore[arg-type]


@pytest.fixture
def control_records(bootstrap: str, make_topic: Callable[..., str]) -> str:
    """A topic with events of a connector, one with a header of ours, and records of neither."""
    control_topic = make_topic(3, retention_ms=-1)
    start = event("cg-connect-sink", StartCommit(commit_id=UUID(int=2)))
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (b"coordinator", start, []),
        (b"w", event("cg-connect-sink", DataWritten(commit_id=UUID(int=2), table=TABLE, data_files=(FILE,))), []),
        (b"c", event("lakecommit-x", CommitToTable(commit_id=UUID(int=3), table=TABLE, snapshot_id=5)), [("a", b"b")]),
        (b"\xff\x00", b"not an event", [("lakecommit", b"z:damaged")]),
        (None, start[:-4], []),
        (b"tombstone", None, []),
    ]
    producer = Producer({"bootstrap.servers": bootstrap, "max.in.flight": 1})
    for number, (key, value, headers) in enumerate(records):
        producer.produce(control_topic, value, key, number % 3, headers=headers, timestamp=1000 + number)
    assert producer.flush(30) == 0
    return control_topic


def test_control_log_shows_every_record_in_full(bootstrap: str, control_records: str) -> None:
    answer = run("history", "--bootstrap", bootstrap, "--control-topic", control_records, "--json")
    assert answer.code == 0, answer.err
    shown = answer.lines
    assert [(r["partition"], r["offset"]) for r in shown] == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    assert shown[0]["event"]["type"] == "START_COMMIT"
    assert shown[0]["event"]["commit_id"] == str(UUID(int=2))
    assert shown[1]["event"]["data_files"][0]["file_path"] == "s3://b/1.parquet"
    assert shown[1]["event"]["data_files"][0]["lower_bounds"] == {"1": "01"}
    assert shown[2]["headers"] == [{"name": "a", "value": "b"}]
    assert shown[2]["event"]["snapshot_id"] == 5
    assert "not a control event" in shown[3]["foreign"]
    assert shown[3]["key"] == "0xff00"
    assert "damaged" in shown[3]["headers"][0]["value"]
    assert "foreign" in shown[4]
    assert "tombstone" in shown[5]["foreign"]


def test_control_log_for_users_has_one_head_line_per_record(bootstrap: str, control_records: str) -> None:
    answer = run("history", "--bootstrap", bootstrap, "--control-topic", control_records)
    heads = [line for line in answer.out.splitlines() if not line.startswith(" ")]
    assert answer.code == 0
    assert len(heads) == 6
    assert heads[0].startswith("0@0 1970-01-01T00:00:01+00:00 START_COMMIT cg-connect-sink")
    assert "NOT A CONTROL EVENT" in heads[3]


def test_control_log_of_one_group_leaves_out_the_rest(bootstrap: str, control_records: str) -> None:
    answer = run(
        "history", "--bootstrap", bootstrap, "--control-topic", control_records, "--group", "lakecommit-x", "--json"
    )
    assert [r["event"]["type"] for r in answer.lines] == ["COMMIT_TO_TABLE"]


def test_control_log_of_a_topic_that_is_not_there_is_refused(bootstrap: str) -> None:
    answer = run("history", "--bootstrap", bootstrap, "--control-topic", "nobody-made-this", "--json")
    assert answer.code == 1
    assert answer.value["error"]["type"] == "ControlTopicError"
    assert "nobody-made-this" in answer.err
    assert "Traceback" not in answer.err


@pytest.fixture
def spec(
    tmp_path: Path,
    bootstrap: str,
    catalog_properties: dict[str, str],
    make_topic: Callable[..., str],
    produce: Callable[..., list[tuple[int, int]]],
) -> Path:
    """A landing that never ran; its control topic does not exist."""
    topic = make_topic(2)
    produce(topic, [{"id": 1}, {"id": 2}], partition=1)
    return write_spec(tmp_path, "orders", topic, f"{topic}-control", bootstrap, catalog_properties)


def test_status_before_the_first_run_reports_that_nothing_is_there(spec: Path) -> None:
    answer = run("status", str(spec), "--json")
    assert answer.code == 6, answer.err
    assert (answer.value["standing"], answer.value["why"]) == ("behind", "nothing was landed in shop.orders yet")
    assert [t["condition"] for t in answer.value["tables"]] == ["missing", "missing"]
    assert [(p["landed"], p["lag"]) for p in answer.value["partitions"]] == [(None, 0), (None, 2)]
    assert answer.value["lag"] == 2
    assert answer.value["valid_through"] is None


def test_verify_of_tables_that_are_not_there_is_no_success(spec: Path) -> None:
    answer = run("verify", str(spec), "--json")
    assert answer.code == 1
    assert not answer.value["ok"]
    assert [f["text"] for f in answer.value["findings"]] == ["the table does not exist"] * 2


def test_ledger_show_of_tables_that_are_not_there(spec: Path) -> None:
    answer = run("history", str(spec), "--ledger", "--json")
    assert answer.code == 0
    assert [line["condition"] for line in answer.lines] == ["missing", "missing"]


def changed(spec: Path, **values: object) -> str:
    spec.write_text(json.dumps(nested(**{**json.loads(spec.read_text()), **values})))
    return str(spec)


@pytest.mark.heavy
@pytest.mark.parametrize("command", ["land", "plan", "status"])
def test_brokers_that_are_away_are_one_line_that_names_them(spec: Path, command: str) -> None:
    port = free_port()
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "jane"}
    kafka = {"bootstrap.servers": f"127.0.0.1:{port}", **login, "sasl.password": "canary-1"}
    answer = run(command, changed(spec, kafka=kafka))
    assert answer.code == 1
    assert f"127.0.0.1:{port}" in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err
    assert "canary-1" not in answer.err + answer.out


@pytest.mark.parametrize("command", ["land", "plan", "status", "verify"])
def test_a_catalog_that_is_away_is_one_line_that_reports_it(spec: Path, command: str) -> None:
    away = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}", "token": "canary-2"}
    answer = run(command, changed(spec, catalog=away), "--json")
    assert answer.code == 1
    assert answer.lines[-1]["error"]["type"] == "CatalogError"
    assert "Traceback" not in answer.err
    assert "canary-2" not in answer.err + answer.out


def test_a_missing_table_that_is_not_to_be_made_is_refused(spec: Path) -> None:
    answer = run("land", changed(spec, create=None))
    assert answer.code == 1
    assert "shop.orders" in answer.err.splitlines()[-1]
    assert "create" in answer.err.splitlines()[-1]


def test_a_setting_that_librdkafka_does_not_know_is_a_bad_spec(spec: Path, bootstrap: str) -> None:
    answer = run("plan", changed(spec, kafka={"bootstrap.servers": bootstrap, "max.poll.recods": 5}))
    assert answer.code == 2
    assert "max.poll.recods" in answer.err
