# SPDX-License-Identifier: Apache-2.0
"""Formats from a real topic to a real table: Protobuf as its own serializer writes it, CSV, raw; keys and headers; a
registry that is away in mid-window; dead letters that are rows after a fix.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.landing.registry import with_registry
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay
from airflow_provider_lakecommit.spark.job import SliceStatus
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.fakes.registry import FakeRegistry
from tests.support.declared import changed_landing
from tests.support.world import World

pytestmark = pytest.mark.integration

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
message Line { int64 n = 1; }
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; optional string note = 3; }
"""
COLUMNS = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "at", "type": "timestamptz"},
        {"name": "note", "type": "string"},
        {"name": "tenant", "type": "int", "required": True},
        {"name": "trace", "type": "string"},
    ]
}
DECISION = Decision(
    command="dead-letters --replay", actor="ann", host="h", at="2026-01-01T00:00:00+00:00", reason="fixed"
)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def topic_of(world: World) -> str:
    return world.landing.topic_names[0]


def dead(world: World) -> list[tuple[int, str, str | None]]:
    return sorted((r["offset"], r["kind"], r["column"]) for r in world.rows(world.landing.dead_letter_table))


def wrong(world: World) -> list[str]:
    with world.session() as session:
        histories = [read_history(session.tables, t, "main", progress=lambda _: None) for t in world.landing.tables]
    return [str(f) for f in check_landing(world.landing, histories) if f.level is Severity.WRONG]


def protobuf_world(make_world: Make, fake: FakeRegistry, **fields: Any) -> World:
    made = make_world(
        partitions=1,
        format="protobuf",
        create=COLUMNS,
        headers={"trace": "trace-id"},
        metadata_columns=True,
        dead_letter_max_ratio=1.0,
        **{"key": {"column": "tenant"}, **fields},
    )
    return replace(
        made,
        kafka=with_registry(made.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}),
    )


@pytest.mark.heavy
def test_schemas_in_headers_of_value_and_key_as_confluents_serializers_write_them(
    make_world: Make, fake: FakeRegistry, produce: Produce
) -> None:
    world = protobuf_world(make_world, fake, key={"format": "avro", "columns": ["tenant"]})
    topic, kind = topic_of(world), GetMessageClass(message_named(file_of(PROTO), "shop.Order"))
    tenant = {"type": "record", "name": "Key", "fields": [{"name": "tenant", "type": "long"}]}
    registered(fake, topic)
    fake.register(f"{topic}-key", tenant)
    settings: dict[str, Any] = {"auto.register.schemas": False, "use.latest.version": True}
    settings["schema.id.serializer"] = header_schema_id_serializer
    headers: list[tuple[str, bytes]] = []
    with SchemaRegistryClient({"url": fake.url}) as client:
        of_key, of_value = (SerializationContext(topic, f, headers) for f in (MessageField.KEY, MessageField.VALUE))
        key = AvroSerializer(client, json.dumps(tenant), conf=settings)({"tenant": 7}, of_key)
        value = ProtobufSerializer(kind, client, conf=settings)(kind(id=1, note="n"), of_value)
    assert [name for name, _ in headers] == ["__key_schema_id", "__value_schema_id"]
    # The message is the second of its schema: behind the UUID the header has its path.
    assert [len(content) for _, content in headers] == [17, 19]
    assert (key, value[:2]) == (b"\x0e", b"\x08\x01")
    produce(topic, [(key, value)], 0, headers=headers)
    produce(topic, [(b"\xff\xff", value), (None, value)], 0, headers=headers)
    produce(topic, [(key, value)], 0, headers=headers[1:])
    world.run()
    assert [(row["id"], row["note"], row["tenant"]) for row in world.rows()] == [(1, "n", 7)]
    assert dead(world) == [(1, "wrong_key", "tenant"), (2, "missing_required", "tenant"), (3, "wrong_key", None)]
    assert wrong(world) == []


def registered(fake: FakeRegistry, topic: str, text: str = PROTO) -> int:
    """As Confluent's client for Python registers it, and gets it back: a descriptor, not text."""
    descriptor = FileDescriptorProto()
    file_of(text).CopyToProto(descriptor)
    return fake.register(f"{topic}-value", base64.b64encode(descriptor.SerializeToString()).decode(), kind="PROTOBUF")


def serialized(fake: FakeRegistry, topic: str, text: str, message: str, *values: dict[str, Any]) -> list[bytes]:
    """By Confluent's own serializer."""
    kind: Any = GetMessageClass(message_named(file_of(text), message))
    with SchemaRegistryClient({"url": fake.url}) as client:
        arguments = {"auto.register.schemas": False, "use.latest.version": True}
        serializer = ProtobufSerializer(kind, client, conf=arguments)
        context = SerializationContext(topic, MessageField.VALUE)
        return [serializer(kind(**value), context) for value in values]


def test_what_confluents_serializer_writes_lands_with_key_and_header(
    make_world: Make, fake: FakeRegistry, produce: Produce
) -> None:
    world = protobuf_world(make_world, fake)
    topic = topic_of(world)
    number = registered(fake, topic)
    orders = serialized(fake, topic, PROTO, "shop.Order", {"id": 1, "at": {"seconds": 5}}, {"id": 2, "note": ""})
    (line,) = serialized(fake, topic, PROTO, "shop.Line", {"n": 9})
    assert orders[0][:6] == b"\x00" + number.to_bytes(4) + b"\x02"
    assert line[5:6] == b"\x00"
    produce(topic, [("7", orders[0])], 0, headers=[("trace-id", b"t1"), ("trace-id", b"t2")])
    produce(
        topic,
        [("8", orders[1]), ("x", orders[1]), (None, orders[1]), ("9", b"\x00" + number.to_bytes(4) + b"\x02\x02\xff")],
        0,
    )
    produce(topic, [("9", None), ("9", orders[0][:5] + b"\x02\x0e\x08\x01")], 0)

    closed = world.run()

    assert closed.published
    names = ("id", "at", "note", "tenant", "trace", "kafka_key", "kafka_offset")
    found = [tuple(row[name] for name in names) for row in world.rows()]
    assert sorted(found) == [
        (1, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), None, 7, "t2", b"7", 0),
        (2, None, "", 8, None, b"8", 1),
    ]
    assert dead(world) == [
        (2, "wrong_key", "tenant"),
        (3, "missing_required", "tenant"),
        (4, "not_protobuf", None),
        (6, "wrong_schema", None),
    ]
    assert wrong(world) == []


@pytest.mark.heavy
def test_a_key_that_could_not_be_read_is_a_row_after_a_fix(
    make_world: Make, fake: FakeRegistry, produce: Produce
) -> None:
    create = {"schema": [{**c, "required": c["name"] == "id"} for c in COLUMNS["schema"]]}
    world = protobuf_world(make_world, fake)
    world = replace(world, landing=replace(world.landing, create=create))
    topic = topic_of(world)
    registered(fake, topic)
    (order,) = serialized(fake, topic, PROTO, "shop.Order", {"id": 1})
    produce(topic, [("x", order), ("8", order)], 0, headers=[("trace-id", b"t")])
    world.settle()
    assert dead(world) == [(0, "wrong_key", "tenant")]

    fixed = replace(world, landing=changed_landing(world.landing, key={"column": "tenant", "invalid": "ignore"}))
    with fixed.session() as session:
        done = replay(session, Selection(), decision=DECISION)

    assert (done.dead_letters, done.rows) == (1, 1)
    found = sorted((r["kafka_offset"], r["tenant"], r["trace"], r["kafka_key"]) for r in fixed.rows())
    assert found == [(0, None, "t", b"x"), (1, 8, "t", b"8")]


@pytest.mark.heavy
def test_a_registry_that_goes_away_in_mid_window_rejects_nothing_and_its_slices_are_done_again(
    make_world: Make, fake: FakeRegistry, produce: Produce
) -> None:
    world = protobuf_world(make_world, fake)
    topic = topic_of(world)
    first = registered(fake, topic)
    values = serialized(fake, topic, PROTO, "shop.Order", *({"id": i} for i in range(60)))
    newer = fake.register(f"{topic}-value", PROTO.replace("optional string note = 3;", ""), kind="PROTOBUF")
    values[50:] = [b"\x00" + newer.to_bytes(4) + v[5:] for v in values[50:]]
    produce(topic, [("1", v) for v in values], 0)
    fake.before = lambda path: None if path.endswith(f"/{first}") else (503, "text/plain", b"")

    opened = world.open("away")
    results = world.write(opened)

    assert [r.status for r in results] == [SliceStatus.DONE, SliceStatus.AGAIN]
    assert "503" in results[1].detail
    world.close("away", opened)
    fake.before = lambda _path: None
    world.settle()
    assert sorted(r["id"] for r in world.rows()) == list(range(60))
    assert dead(world) == []
    assert wrong(world) == []


def test_csv_with_several_rows_to_a_record_and_a_key_lands_and_adds_up(make_world: Make, produce: Produce) -> None:
    create = {
        "schema": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "k", "type": "date"}]
    }
    world = make_world(
        partitions=1,
        format="csv",
        csv={"columns": ["id", "name"], "rows": "many"},
        key={"column": "k"},
        create=create,
        metadata_columns=True,
        dead_letter_max_ratio=1.0,
    )
    produce(
        topic_of(world),
        [("2026-01-31", b'1,a\n2,"b\n"\n'), (None, b""), ("2026-02-30", b"3,c"), (None, b"x,d"), (None, b"4,")],
        0,
    )
    world.settle()
    found = sorted((r["id"], r["name"], str(r["k"]), r["kafka_offset"]) for r in world.rows())
    assert found == [(1, "a", "2026-01-31", 0), (2, "b\n", "2026-01-31", 0), (4, None, "None", 4)]
    assert dead(world) == [(2, "wrong_key", "k"), (3, "wrong_value", "id")]
    assert wrong(world) == []


def test_raw_values_land_as_they_are(make_world: Make, produce: Produce) -> None:
    create = {"schema": [{"name": "payload", "type": "binary", "required": True}]}
    world = make_world(partitions=1, format="raw", create=create)
    values: list[Any] = [b"\xff\x00", b"", None, b"{}"]
    produce(topic_of(world), values, 0)
    world.settle()
    assert sorted(r["payload"] for r in world.rows()) == [b"", b"{}", b"\xff\x00"]
    assert wrong(world) == []
