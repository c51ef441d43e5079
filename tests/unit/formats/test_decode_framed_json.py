# SPDX-License-Identifier: Apache-2.0
"""JSON behind the id of its schema: rows as of plain JSON, and a name for each way of being none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.formats.decoder import Decoder, decoder_for
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from tests.fakes.registry import FakeRegistry

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        running.register("orders-value", {"type": "object"}, kind="JSON")
        running.register("orders-avro", "long")
        yield running


def decoder(fake: FakeRegistry) -> Decoder:
    registry = SchemaRegistry({"url": fake.url, "max.retries": 0, "unknown.wait.seconds": 0})
    return decoder_for(SCHEMA, FormatOptions(format="json_schema"), registry=registry)


def test_rows_are_those_of_the_json_behind_the_id(fake: FakeRegistry) -> None:
    decoded = decoder(fake).decode([b'\x00\x00\x00\x00\x01{"id": %d}' % n for n in range(3)])
    assert decoded.table.to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert decoded.records is None


def test_each_way_of_being_no_row_has_its_name(fake: FakeRegistry) -> None:
    good = b'\x00\x00\x00\x00\x01{"id": 7}'
    values = [good, b'{"id": 1}', good[:4] + b"\x09{}", good[:4] + b"\x02\x02", good[:5] + b"{}", good[:5] + b"[", good]
    decoded = decoder(fake).decode(values)
    assert decoded.table.to_pylist() == [{"id": 7}, {"id": 7}]
    assert list(decoded.records or ()) == [0, 6]
    rejects = [(r.index, r.kind) for r in decoded.rejects]
    kinds = ["not_framed", "unknown_schema", "wrong_schema", "missing_required", "not_json"]
    assert rejects == list(enumerate(kinds, start=1))
    assert decoded.rejects[2].reason == "schema id 2 is of type AVRO; the landing reads JSON Schema"
    assert "has no schema id 9" in decoded.rejects[1].reason


def test_an_unknown_id_is_requested_once_in_a_slice(fake: FakeRegistry) -> None:
    of = decoder(fake)
    for _ in range(3):
        assert of.decode([b"\x00\x00\x00\x00\x09{}"] * 5).table.num_rows == 0
    assert fake.requests == ["/schemas/ids/9"]


def test_a_registry_that_is_away_rejects_nothing(fake: FakeRegistry) -> None:
    fake.before = lambda _path: (503, "text/plain", b"")
    with pytest.raises(RegistryError):
        decoder(fake).decode([b'\x00\x00\x00\x00\x01{"id": 7}'])
