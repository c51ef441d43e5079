# SPDX-License-Identifier: Apache-2.0
"""The registry in memory against a real one: what clients of either are answered, word for word where it matters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError

from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from airflow_provider_lakecommit.formats.registry.schema_source import UnknownSchemaError
from dev.servers.schema_registry import SchemaRegistryServer
from tests.fakes.registry import FakeRegistry

pytestmark = pytest.mark.integration

MONEY = json.dumps({"type": "fixed", "name": "Money", "size": 8})
PROTO = 'syntax = "proto3"; message A { string b = 1; }'
DRAFT = "http://json-schema.org/draft-07/schema#"
Register = Callable[..., int]


class Running:
    """A registry and what puts schemas there."""

    def __init__(self, url: str, register: Register) -> None:
        self.url = url
        self.register = register
        self.client = SchemaRegistryClient({"url": url, "max.retries": 0})
        self.ours = SchemaRegistry({"url": url, "max.retries": 0, "unknown.wait.seconds": 0})


# Of the module: a server that started within a test would count as left behind by it.
@pytest.fixture(scope="module", params=["memory", pytest.param("real", marks=pytest.mark.registry)])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if request.param == "memory":
        with FakeRegistry().running() as fake:
            yield from opened(fake.url, fake.register)
        return

    def register(subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        named = [SchemaReference(**reference) for reference in references or ()]
        with SchemaRegistryClient({"url": server.url}) as client:
            return int(client.register_schema(subject, Schema(schema, kind, named)))

    with SchemaRegistryServer(tmp_path_factory.mktemp("registry")) as server:
        yield from opened(server.url, register)


def opened(url: str, register: Register) -> Iterator[Running]:
    made = Running(url, register)
    with closing(made.client), closing(made.ours):
        yield made


def order(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]})


def test_a_schema_is_answered_as_it_was_registered(running: Running) -> None:
    subject = f"s-{uuid4().hex[:6]}"
    text = order(f"R{uuid4().hex[:6]}")
    number = running.register(subject, text)
    assert running.register(subject, text) == number
    found = running.ours.schema(number)
    assert (json.loads(found.text), found.kind, found.references) == (json.loads(text), "AVRO", ())
    assert running.ours.newest(subject) == found
    assert running.ours.ids(subject, 9) == (1, (number,))


def test_versions_and_kinds(running: Running) -> None:
    subject = f"s-{uuid4().hex[:6]}"
    name = f"R{uuid4().hex[:6]}"
    fields = [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"], "default": None}]
    wider = {"type": "record", "name": name, "fields": fields}
    ids = [running.register(subject, order(name)), running.register(subject, json.dumps(wider))]
    assert running.ours.ids(subject, 9) == (len(ids), tuple(ids))
    assert running.ours.newest(subject).key == ids[1]
    proto = running.register(f"{subject}-p", PROTO, kind="PROTOBUF")
    assert running.ours.schema(proto).kind == "PROTOBUF"
    of_json = running.register(
        f"{subject}-j", json.dumps({"$schema": DRAFT, "type": "object", "title": subject}), kind="JSON"
    )
    assert running.ours.schema(of_json).kind == "JSON"


def test_what_is_not_there_reports_it(running: Running) -> None:
    for ask, code in (
        (lambda: running.client.get_schema(987_654), 40403),
        (lambda: running.client.get_latest_version("no-such-subject"), 40401),
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            ask()
        assert (refused.value.http_status_code, refused.value.error_code) == (404, code)
    with pytest.raises(UnknownSchemaError):
        running.ours.schema(987_654)
    with pytest.raises(UnknownSchemaError):
        running.ours.ids("no-such-subject", 9)
    # One serves schemas by UUID, the other does not: a record that begins with that byte is to blame either way.
    with pytest.raises(UnknownSchemaError):
        running.ours.schema(uuid4())


def test_references_come_with_a_schema(running: Running) -> None:
    subject = f"money-{uuid4().hex[:6]}"
    running.register(subject, MONEY)
    name = f"R{uuid4().hex[:6]}"
    text = json.dumps({"type": "record", "name": name, "fields": [{"name": "sum", "type": "Money"}]})
    reference = {"name": "Money", "subject": subject, "version": 1}
    number = running.register(f"{subject}-order", text, references=[reference])
    ((imported, money),) = running.ours.schema(number).imported()
    assert (imported, json.loads(money.text)) == ("Money", json.loads(MONEY))
