# SPDX-License-Identifier: Apache-2.0
"""Names of schemas, in each format, and of what has none."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from airflow_provider_lakecommit.core.formats import SCHEMA_NAMES, WITH_REGISTRY
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema, SchemaKey, UnknownSchemaError
from airflow_provider_lakecommit.formats.schema_names import record_name, schema_names_for

PROTO = """syntax = "proto3"; package shop.v1;
message Order { message Line { string sku = 1; } int64 id = 1; }
message Refund { int64 id = 1; }"""


class Known:
    """A registry of a few schemas."""

    def __init__(self, **schemas: tuple[str, str]) -> None:
        self._schemas = {int(n.removeprefix("n")): s for n, s in schemas.items()}

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        if not isinstance(key, int) or key not in self._schemas:
            raise UnknownSchemaError(f"schema id {key} is unknown")
        kind, text = self._schemas[key]
        return RegisteredSchema(key=key, kind=kind, text=text)


def value(number: int, payload: bytes = b"") -> bytes:
    return b"\x00" + number.to_bytes(4) + payload


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "Order", "fields": []},
        {"type": "record", "name": "Order", "namespace": "shop.v1", "fields": []},
        {"type": "record", "name": "shop.v2.Order", "namespace": "shop.v1", "fields": []},
        {"type": "record", "name": "Order", "namespace": "", "fields": []},
        {"type": "error", "name": "Order", "namespace": "shop", "fields": []},
        {"type": "enum", "name": "Kind", "symbols": ["A"]},
    ],
)
def test_the_name_is_avros_full_name(schema: dict[str, Any]) -> None:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    assert isinstance(parsed, dict)
    assert record_name(json.dumps(schema)) == parsed["name"]
    assert record_name(json.dumps({"type": schema})) == parsed["name"]


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{", '{"type": "array", "items": "int"}', '{"type": {"type": 5}}', "[" * 99999]
)
def test_what_has_no_name_has_none(text: str) -> None:
    assert record_name(text) is None


def test_each_format_that_names_schemas_can_be_routed_by_them() -> None:
    assert SCHEMA_NAMES.keys() == WITH_REGISTRY.keys()


def test_messages_are_reported_by_their_path() -> None:
    names = schema_names_for("protobuf", Known(n1=("PROTOBUF", PROTO), n2=("AVRO", "{}"), n3=("PROTOBUF", "message {")))
    values = [value(1, b"\x00"), value(1, b"\x02\x02"), value(1, b"\x04\x00\x00"), value(1, b"\x02\x08"), value(1)]
    found = names.decode([*values, value(2), value(3), value(9), b"{}", value(1, b"\x00\x08\x01")])
    assert found.table.column(0).to_pylist() == [
        "shop.v1.Order",
        "shop.v1.Refund",
        "shop.v1.Order.Line",
        "shop.v1.Order",
    ]
    assert list(found.records or ()) == [0, 1, 2, 9]
    assert [(r.index, r.kind) for r in found.rejects] == [
        (3, "wrong_schema"),
        (4, "not_framed"),
        (5, "wrong_schema"),
        (6, "wrong_schema"),
        (7, "unknown_schema"),
        (8, "not_framed"),
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('{"title": "Order"}', "Order"),
        ("{}", None),
        ('{"title": 5}', None),
        ("true", None),
        ("{", None),
        ("[" * 99999, None),
    ],
)
def test_json_schemas_are_reported_by_their_titles(text: str, title: str | None) -> None:
    found = schema_names_for("json_schema", Known(n1=("JSON", text))).decode([value(1, b"{}")] * 3)
    assert found.table.column(0).to_pylist() == [title] * 3
