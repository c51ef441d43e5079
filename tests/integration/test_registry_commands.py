# SPDX-License-Identifier: Apache-2.0
"""What the command line knows by a registry: columns, subjects, schema ids, and whether it is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.registry import FakeRegistry
from tests.support.avro_shapes import encoded
from tests.support.cli import run
from tests.support.declared import nested
from tests.support.world import catalog_in

pytestmark = pytest.mark.integration

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": ["null", "int", "string"]},
        {"name": "nothing", "type": "null"},
    ],
}
SCHEMA = [
    {"name": "id", "type": "long", "required": True},
    {"name": "at", "type": "timestamptz", "required": True},
    {"name": "paid", "type": {"struct": [{"name": "int", "type": "int"}, {"name": "string", "type": "string"}]}},
]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def topic(make_topic: Callable[..., str], produce: Callable[..., Any], fake: FakeRegistry) -> str:
    made = make_topic(1)
    number = fake.register(f"{made}-value", ORDER)
    value = encoded(ORDER, {"id": 1, "at": 1_700_000_000_000, "paid": (2, "yes"), "nothing": None})
    produce(made, [b"\x00" + number.to_bytes(4) + value, b"{}"], 0)
    return made


def spec_of(path: Path, topic: str, bootstrap: str, fake: FakeRegistry, control: str, **more: Any) -> Path:
    stated = {
        "name": "orders",
        "topics": topic,
        "table": "shop.orders",
        "dead_letter_table": "shop.dead",
        "dead_letter_max_records": 10,
        "format": "avro",
        "control_topic": control,
        "create": {"schema": "registry", "partition_by": ["day(at)"]},
        "kafka": {"bootstrap.servers": bootstrap},
        "registry": {"url": fake.url, "max.retries": 0, "unknown.wait.seconds": 0},
        "catalog": catalog_in(path),
        "spark": {"master": "local[1]"},
        **more,
    }
    spec = path / "orders.yaml"
    spec.write_text(yaml.safe_dump(nested(**stated)))
    return spec


def test_a_spec_is_inferred_from_the_newest_version(topic: str, bootstrap: str, fake: FakeRegistry) -> None:
    done = run("infer-schema", topic, "--bootstrap", bootstrap, "--registry", fake.url)
    assert done.code == 0, done.err
    answer = yaml.safe_load(done.out)
    assert answer["create"]["schema"] == SCHEMA
    assert (answer["format"], answer["registry"]) == ("avro", {"url": fake.url})
    assert "lakecommit.registry" not in done.out
    assert f"from subject {topic}-value, schema id 1, tried on 2 records" in done.out
    assert "nothing: left out: always null" in done.out
    assert "1 records are REJECTED by this schema" in done.out
    machine = json.loads(run("infer-schema", topic, "--bootstrap", bootstrap, "--registry", fake.url, "--json").out)
    assert (machine["format"], machine["create"]["schema"]) == ("avro", SCHEMA)


def test_columns_of_envelopes_are_those_of_their_rows(
    tmp_path: Path, make_topic: Callable[..., str], produce: Callable[..., Any], bootstrap: str, fake: FakeRegistry
) -> None:
    topic = make_topic(1)
    fields = [("before", ["null", ORDER]), ("after", ["null", {**ORDER, "name": "After"}]), ("op", "string")]
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    named = [{"name": name, "type": kind} for name, kind in [*fields, ("source", source)]]
    envelope = {"type": "record", "name": "Envelope", "fields": named}
    number = fake.register(f"{topic}-value", envelope)
    order = {"id": 1, "at": 1_700_000_000_000, "paid": (2, "yes"), "nothing": None}
    value = encoded(envelope, {"before": (0, None), "after": (1, order), "op": "c", "source": {"ts_ms": 1}})
    produce(topic, [b"\x00" + number.to_bytes(4) + value], 0)
    path = spec_of(tmp_path / "spec.yaml", topic, bootstrap, fake, "c", unwrap="debezium", create={"schema": SCHEMA})
    answer = run("infer-schema", str(path))
    assert answer.code == 0, answer.err
    printed = yaml.safe_load(answer.out)
    own = [
        {"name": "_op", "type": "string", "required": True},
        {"name": "_is_deleted", "type": "boolean", "required": True},
        {"name": "_source_time", "type": "timestamptz"},
    ]
    assert (printed["transform"]["unwrap"], printed["create"]["schema"]) == ("debezium", [*SCHEMA, *own])
    assert "# nothing: left out: always null" in answer.out
    assert "REJECTED" not in answer.out


@pytest.mark.heavy
def test_a_table_is_made_by_the_newest_version_and_the_plan_names_what_is_known(
    tmp_path: Path, topic: str, bootstrap: str, fake: FakeRegistry, control_topic: str
) -> None:
    spec = str(spec_of(tmp_path, topic, bootstrap, fake, control_topic))
    plan = run("plan", spec, "--explain")
    assert plan.code == 0, plan.err
    assert f"format avro, schemas of {fake.url}" in plan.out
    assert f"subject {topic}-value has 1 versions, with schema ids 1" in plan.out
    landed = run("land", spec, "--json")
    assert landed.code == 0, landed.err
    status = json.loads(run("status", spec, "--json").out)
    assert status["landing"] == "orders"


@pytest.mark.heavy
def test_the_doctor_requests_the_registry(
    tmp_path: Path, topic: str, bootstrap: str, fake: FakeRegistry, control_topic: str
) -> None:
    def results(**more: Any) -> dict[str, str]:
        spec = str(spec_of(tmp_path, topic, bootstrap, fake, control_topic, **more))
        answer = json.loads(run("doctor", spec, "--no-spark", "--json").out)
        found = next((f for f in answer["findings"] if f["check"] == "schema registry"), {"level": "", "seen": ""})
        return {found["level"].lower(): found["seen"]}

    assert results() == {"ok": f"{fake.url}: the newest version of {topic}-value is schema id 1, of type AVRO"}
    assert results(format="json_schema").keys() == {"fail"}
    assert "has no subject other" in results(create={"schema": "registry", "subject": "other"})["warn"]
    key: dict[str, Any] = {"format": "avro", "columns": ["k"]}
    fake.register(f"{topic}-key", {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]})
    assert results(format="json", create=None, key=key)["ok"].endswith(f"{topic}-key is schema id 2, of type AVRO")
    assert "LC4023" in results(format="json", create=None, key=key, registry={})["fail"]
    unreachable = {"url": "http://127.0.0.1:9", "max.retries": 0}
    assert "http://127.0.0.1:9" in results(registry=unreachable)["fail"]
    assert "LC4023" in results(registry={})["fail"]
