# SPDX-License-Identifier: Apache-2.0
"""A reader schema: older names find their columns, and a default is what a written value would have been."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.avro.decode_avro import AvroDecoder
from airflow_provider_lakecommit.formats.decoder import Decoded
from airflow_provider_lakecommit.formats.evolution.written import WrittenSource
from tests.support.avro_shapes import encoded, schemas, values_of
from tests.support.declared import landing_of
from tests.support.effort import examples
from tests.unit.formats.avro.test_decode_against_reference import comparable, rows_of, table_of
from tests.unit.formats.avro.test_decode_avro import MILLIS, exact, table


def record(*fields: Mapping[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def read(written: Any, columns: Schema, values: list[Any], reader: Any) -> Decoded:
    stated = FormatOptions(format="avro", schema=json.dumps(written), reader_schema=json.dumps(reader))
    return AvroDecoder(columns, stated).decode([encoded(written, value) for value in values])


def rows(found: Decoded) -> list[dict[str, Any]]:
    assert found.rejects == ()
    return found.table.to_pylist()


class TestNames:
    COLUMNS = table({"name": "id", "type": "long"}, {"name": "name", "type": "string"})
    READER = record({"name": "id", "type": "long"}, {"name": "name", "type": "string", "aliases": ["older", "oldest"]})

    @pytest.mark.parametrize("old", ["older", "oldest", "name"])
    def test_an_older_name_finds_its_column(self, old: str) -> None:
        written = record({"name": old, "type": "string"}, {"name": "id", "type": "int"}, name="Other")
        assert rows(read(written, self.COLUMNS, [{"id": 1, old: "x"}], self.READER)) == [{"id": 1, "name": "x"}]

    def test_a_field_of_the_name_itself_comes_first_and_the_other_one_is_counted(self) -> None:
        written = record(*({"name": n, "type": "string"} for n in ("oldest", "older", "name")))
        found = read(written, self.COLUMNS, [{"oldest": "a", "older": "b", "name": "c"}], self.READER)
        assert found.table.column("name").to_pylist() == ["c"]
        assert dict(found.ignored) == {"older": 1, "oldest": 1}

    def test_of_several_older_names_the_first_that_is_stated_counts(self) -> None:
        written = record(*({"name": n, "type": "string"} for n in ("oldest", "older")))
        found = read(written, self.COLUMNS, [{"oldest": "a", "older": "b"}], self.READER)
        assert found.table.column("name").to_pylist() == ["b"]

    def test_a_field_that_is_requested_by_its_name_is_no_alias_of_another(self) -> None:
        request = record({"name": "name", "type": "string", "aliases": ["id"]}, {"name": "id", "type": "long"})
        found = rows(read(record({"name": "id", "type": "long"}), self.COLUMNS, [{"id": 5}], request))
        assert found == [{"id": 5, "name": None}]

    def test_types_that_name_each_other_many_times_cost_no_more_than_their_text(self) -> None:
        """Each written out, they are 2 ** 40."""
        inner: Any = record({"name": "n", "type": "int", "aliases": ["m"]}, name="L")
        for n in range(40):
            below = inner["name"]
            inner = record({"name": "a", "type": inner}, {"name": "b", "type": ["null", below]}, name=f"L{n}")
        request = record(*self.READER["fields"], {"name": "x", "type": ["null", inner]})
        written = json.loads(json.dumps(request).replace('"name": "name"', '"name": "older"'))
        found = read(written, self.COLUMNS, [{"id": 1, "older": "x", "x": (0, None)}], request)
        assert rows(found) == [{"id": 1, "name": "x"}]

    def test_of_several_records_of_a_union_another_one_is_none(self) -> None:
        inner = {"struct": [{"name": "new", "type": "int"}, {"name": "old", "type": "int"}]}
        columns = table({"name": "u", "type": {"struct": [{"name": "C", "type": inner}, {"name": "B", "type": inner}]}})
        old = {"name": "old", "type": "int"}
        written = record({"name": "u", "type": [record(old, name="C"), record(old, name="B")]})
        new = {"name": "new", "type": "int", "aliases": ["old"]}
        request = record({"name": "u", "type": [record(new, name="A"), record(new, name="B")]})
        values = [{"u": (0, {"old": 1})}, {"u": (1, {"old": 2})}]
        assert rows(read(written, columns, values, request)) == [
            {"u": {"C": {"new": None, "old": 1}, "B": None}},
            {"u": {"C": None, "B": {"new": 2, "old": None}}},
        ]

    def test_within_lists_maps_optional_records_and_unions(self) -> None:
        inner = {"struct": [{"name": "new", "type": "int"}]}
        columns = table(
            {"name": "l", "type": {"list": inner}},
            {"name": "m", "type": {"map": {"key": "string", "value": inner}}},
            {"name": "o", "type": inner},
            {"name": "u", "type": {"struct": [{"name": "A", "type": inner}, {"name": "B", "type": inner}]}},
        )

        def shape(field: Mapping[str, Any]) -> dict[str, Any]:
            named = (record(field, name=name) for name in ("L", "M", "O", "A", "B"))
            one, two, three, a, b = named
            return record(
                {"name": "l", "type": {"type": "array", "items": one}},
                {"name": "m", "type": {"type": "map", "values": two}},
                {"name": "o", "type": ["null", three]},
                {"name": "u", "type": [a, b]},
            )

        written = shape({"name": "old", "type": "int"})
        reader = shape({"name": "new", "type": "int", "aliases": ["old"]})
        value = {"l": [{"old": 1}], "m": {"k": {"old": 2}}, "o": (1, {"old": 3}), "u": (1, {"old": 4})}
        assert rows(read(written, columns, [value], reader)) == [
            {"l": [{"new": 1}], "m": [("k", {"new": 2})], "o": {"new": 3}, "u": {"A": None, "B": {"new": 4}}}
        ]


class TestDefaults:
    def test_they_fill_what_a_record_lacks_and_nothing_else(self) -> None:
        columns = table(
            {"name": "id", "type": "long"},
            {"name": "land", "type": "string", "required": True},
            {"name": "at", "type": "timestamptz"},
            {"name": "cost", "type": "decimal(9, 2)"},
        )
        request = record(
            {"name": "land", "type": ["null", "string"], "default": "NL"},
            {"name": "at", "type": MILLIS, "default": 1500},
            {"name": "cost", "type": exact(9, 2), "default": "\u0001\u00ff"},
        )
        written = record({"name": "id", "type": "int"}, {"name": "at", "type": ["null", MILLIS]})
        at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
        filled = {"land": "NL", "cost": Decimal("5.11")}
        older = record({"name": "id", "type": "int"})
        assert rows(read(written, columns, [{"id": 1, "at": (0, None)}], request)) == [{"id": 1, "at": None, **filled}]
        assert rows(read(older, columns, [{"id": 2}] * 3, request)) == [{"id": 2, "at": at, **filled}] * 3

    def test_a_record_that_is_null_is_not_filled(self) -> None:
        columns = table({"struct": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "required": True}]})
        inner = {"name": "a", "type": "int"}
        written = record({"name": "c", "type": ["null", record(inner, name="I")]})
        request = record({"name": "c", "type": record(inner, {"name": "b", "type": "int", "default": 9}, name="J")})
        found = rows(read(written, columns, [{"c": (0, None)}, {"c": (1, {"a": 1})}], request))
        assert found == [{"c": None}, {"c": {"a": 1, "b": 9}}]

    def test_a_required_column_whose_default_is_null_is_missing(self) -> None:
        columns = table({"name": "id", "type": "long"}, {"name": "land", "type": "string", "required": True})
        request = record({"name": "land", "type": ["null", "string"], "default": None})
        found = read(record({"name": "id", "type": "int"}), columns, [{"id": 1}], request)
        assert [(r.kind, r.column) for r in found.rejects] == [("missing_required", "land")]

    @settings(max_examples=examples(150), deadline=None)
    @given(st.data())
    def test_a_default_is_what_a_written_value_would_have_been(self, data: st.DataObject) -> None:
        """Of a record of any shape some fields are left away, with their values as defaults of the reader's schema."""
        schema = data.draw(schemas(least=2))
        value = data.draw(values_of(schema))
        speakable = [f["name"] for f in schema["fields"] if not has_union(f["type"])]
        removed = set(data.draw(st.sets(st.sampled_from(speakable)))) if speakable else set()
        left = [f for f in schema["fields"] if f["name"] not in removed] or schema["fields"][:1]
        removed -= {f["name"] for f in left}
        request = record(
            *(
                {**f, "default": in_json(f["type"], value[f["name"]])} if f["name"] in removed else f
                for f in schema["fields"]
            ),
            name=schema["name"],
        )
        columns = table_of(schema)
        whole = AvroDecoder(columns, FormatOptions(format="avro", schema=json.dumps(schema)))
        plain = whole.decode([encoded(schema, value)])
        if plain.rejects:
            return
        found = read(record(*left, name=schema["name"]), columns, [value] * 2, request)
        assert found.rejects == ()
        assert [comparable(row) for row in rows_of(found.table)] == [
            comparable(row) for row in rows_of(plain.table)
        ] * 2


def has_union(kind: Any) -> bool:
    if isinstance(kind, Mapping):
        parts = [kind[key] for key in ("type", "items", "values") if key in kind]
        return any(map(has_union, [*parts, *(f["type"] for f in kind.get("fields", ()))]))
    return isinstance(kind, list)


def in_json(kind: Any, value: Any) -> Any:
    """A value as a schema states a default."""
    stated = kind if isinstance(kind, Mapping) else {"type": kind}
    match stated["type"]:
        case "record":
            return {f["name"]: in_json(f["type"], value[f["name"]]) for f in stated["fields"]}
        case "array":
            return [in_json(stated["items"], each) for each in value]
        case "map":
            return {key: in_json(stated["values"], each) for key, each in value.items()}
        case "enum":
            return stated["symbols"][value]
        case "bytes" | "fixed" if isinstance(value, int):
            octets = encoded(kind, value)
            size = stated.get("size") or (value.bit_length() + 8) // 8
            return octets[len(octets) - size :].decode("latin-1")
        case "bytes" | "fixed":
            return value.decode("latin-1")
    return value


class TestMistakes:
    COLUMNS = table({"name": "id", "type": "int"}, {"name": "kind", "type": "string"})

    @pytest.mark.parametrize(
        ("reader", "message"),
        [
            ({"type": "recor", "name": "R"}, "reader_schema: the schema is not an Avro schema"),
            (record({"name": "Id", "type": "int"}), "reader_schema: the table has none of its fields"),
            ({"type": "array", "items": "int"}, "reader_schema: the table has none of its fields"),
            (
                record({"name": "id", "type": "long", "default": 1 << 40}),
                "reader_schema: the default of id: column id: Integer value 1099511627776 not in range",
            ),
            (record({"name": "id", "type": "int", "default": "1"}), 'reader_schema: the default of id: "1" is no int'),
            (record({"name": "id", "type": "int", "default": True}), "the default of id: true is no int"),
            (record({"name": "id", "type": "int", "default": 1 << 31}), "the default of id: 2147483648 is no int"),
            (
                record({"name": "id", "type": ["null", "string"], "default": 5}),
                "the default of id: 5 is none of a union of null, string",
            ),
            (
                record({"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["A"]}, "default": "B"}),
                'the default of kind: "B" is no enum K',
            ),
            (
                record({"name": "kind", "type": "string", "default": "\ud800"}),
                r'the default of kind: "\ud800" is no string',
            ),
            (record({"name": "kind", "type": "long", "default": 1}), "the default of kind: column kind: the table has"),
        ],
    )
    def test_they_are_reported_before_anything_is_read(self, reader: Any, message: str) -> None:
        with pytest.raises(TableError) as failed:
            read(record({"name": "id", "type": "int"}), self.COLUMNS, [], reader)
        assert message in str(failed.value)

    def test_one_that_is_none_is_no_fault_of_the_records_where_a_table_evolves(self) -> None:
        made = landing_of(
            name="orders",
            topics="orders",
            table="shop.orders",
            format="avro",
            evolve="add",
            reader_schema='{"type": "recor"}',
        )
        with pytest.raises(TableError, match="LC4002"):
            WrittenSource(made, {})
