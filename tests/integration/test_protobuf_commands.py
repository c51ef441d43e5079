# SPDX-License-Identifier: Apache-2.0
"""What the command line makes of a Protobuf schema: columns, by a registry or by the schema that a landing states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.registry import FakeRegistry
from tests.integration.test_registry_commands import spec_of
from tests.support.cli import run

pytestmark = pytest.mark.integration

PROTO = """syntax = "proto3"; package shop;
message Line { int64 n = 1; }
message Order { int64 id = 1; optional string note = 2; repeated Line lines = 3; Order before = 4; }
"""
SCHEMA = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": "string"},
    {"name": "lines", "type": {"list": {"struct": [{"name": "n", "type": "long"}]}}},
]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def topic(make_topic: Callable[..., str], produce: Callable[..., Any], fake: FakeRegistry) -> str:
    made = make_topic(1)
    number = fake.register(f"{made}-value", PROTO, kind="PROTOBUF")
    produce(made, [b"\x00" + number.to_bytes(4) + b"\x02\x02\x08\x01", b"{}"], 0)
    return made


def test_a_spec_is_inferred_from_the_message_that_the_landing_names(
    tmp_path: Path, topic: str, bootstrap: str, fake: FakeRegistry, control_topic: str
) -> None:
    spec = spec_of(
        tmp_path,
        topic,
        bootstrap,
        fake,
        control_topic,
        format="protobuf",
        message="shop.Order",
        create={"schema": "registry"},
    )
    done = run("infer-schema", str(spec))
    assert done.code == 0, done.err
    answer = yaml.safe_load(done.out)
    assert (answer["create"]["schema"], answer["format"]["name"], answer["format"]["message"]) == (
        SCHEMA,
        "protobuf",
        "shop.Order",
    )
    assert "before: left out: shop.Order is recursive" in done.out
    assert "1 records are REJECTED by this schema: the value names no schema" in done.out

    explained = run("plan", str(spec), "--explain").out
    assert f"format protobuf, schemas of {fake.url}" in explained
    assert f"subject {topic}-value has 1 versions, with schema ids 1" in explained


@pytest.mark.heavy
def test_sparks_tasks_read_protobuf(
    tmp_path: Path, topic: str, bootstrap: str, fake: FakeRegistry, control_topic: str
) -> None:
    spec = spec_of(
        tmp_path,
        topic,
        bootstrap,
        fake,
        control_topic,
        format="protobuf",
        message="shop.Order",
        create={"schema": "registry"},
        dead_letter_max_ratio=1.0,
    )
    done = run("land", str(spec), "--json")
    assert done.code == 0, done.err
    counts = json.loads(done.out.splitlines()[-1])
    assert {each["table"] for each in counts["published"]} == {"shop.orders", "shop.dead"}
    assert counts["rows"] == 1


def test_a_spec_is_inferred_from_a_stated_schema(
    tmp_path: Path, make_topic: Callable[..., str], produce: Callable[..., Any], bootstrap: str, fake: FakeRegistry
) -> None:
    topic = make_topic(1)
    produce(topic, [b"\x08\x01", b"\xff"], 0)
    spec = spec_of(
        tmp_path,
        topic,
        bootstrap,
        fake,
        f"{topic}-control",
        format="protobuf",
        schema=PROTO,
        message="shop.Order",
        create=None,
    )
    done = run("infer-schema", str(spec))
    assert done.code == 0, done.err
    answer = yaml.safe_load(done.out)
    assert answer["create"]["schema"] == SCHEMA
    assert answer["format"] == {"name": "protobuf", "schema": PROTO, "message": "shop.Order"}
    assert "from the stated schema, tried on 2 records" in done.out
    assert "1 records are REJECTED by this schema: message shop.Order" in done.out
