# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a first spec: types of other systems, names without quotes, several of them at once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.landing.names import unquoted
from airflow_provider_lakecommit.landing.type_text import parse_type

CODE = re.compile(r"LC\d{4}")
SPEC = "name: orders\ntopics: orders\ntable: shop.orders\n"


def mistake_of(tmp_path: Path, text: str) -> SpecError:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as found:
        Landing.from_yaml(path)
    return found.value


@pytest.mark.parametrize(
    ("stated", "near"),
    [
        ("timestamp with time zone", "timestamptz"),
        ("TIMESTAMP(3) WITH TIME ZONE", "timestamptz"),
        ("timestamp without time zone", "timestamp"),
        ("datetime", "timestamp"),
        ("text", "string"),
        ("varchar(20)", "string"),
        ("character varying(20)", "string"),
        ("bigint", "long"),
        ("int unsigned", "long"),
        ("Long", "long"),
        ("smallint", "int"),
        ("double precision", "double"),
        ("numeric(10,2)", "decimal(10, 2)"),
        ("NUMBER(5)", "decimal(5, 0)"),
        ("array<varchar(3)>", "list<string>"),
        ("struct<a: text, b: list<timestamp with time zone>>", "struct<a: string, b: list<timestamptz>>"),
        ("map<text, array<bigint>>", "map<string, list<long>>"),
        ("struct<text: text, date: datetime>", "struct<text: string, date: timestamp>"),
    ],
)
def test_a_type_of_another_system_is_reported_in_icebergs_texts(stated: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"^use {re.escape(repr(near))}$"):
        parse_type(stated)
    parse_type(near)


@pytest.mark.parametrize(("stated", "message"), [("decimal", "state its digits"), ("struct<a: text, b: wat>", "'wat'")])
def test_what_no_type_is_near_to_is_named(stated: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_type(stated)


def test_each_mistake_has_its_line_with_its_code_and_type(tmp_path: Path) -> None:
    found = mistake_of(
        tmp_path,
        f"""{SPEC}evolve: sometimes
create:
  schema:
    - {{name: a, type: timestamp with time zone}}
    - {{name: b, type: {{struct: [{{name: c, type: text}}]}}}}
    - {{name: d, type: {{list: varchar(3)}}}}
    - {{name: e, type: {{map: {{key: text, value: bigint}}}}}}
    - {{name: f, type: decimal(10,2)}}
""",
    )
    head, *lines = found.message.splitlines()
    assert found.code == "LC1001"
    assert "7 mistakes" in head
    assert [line[-7:-1] for line in lines] == ["LC1102", *["LC1167"] * 5, "LC1341"]
    for line, near in zip(lines[1:], ("timestamptz", "string", "string", "string", "long", "quotes"), strict=True):
        assert near in line


@pytest.mark.parametrize(
    ("changed", "read"),
    [
        ({"name": "no"}, "False"),
        ({"name": "2026-01-31"}, "2026-01-31"),
        ({"name": "1_000"}, "1000"),
        ({"topics": "on"}, "True"),
        ({"topics": "1.10"}, "1.1"),
        ({"topics": "[orders, off]"}, "False"),
        ({"table": "yes"}, "True"),
        ({"dead_letter_table": "off"}, "False"),
        ({"publish": "{branch: 1.0}"}, "1.0"),
        ({"upsert": "{key: [no]}"}, "False"),
        ({"columns": "{key: {columns: [on], format: json}}"}, "True"),
        ({"timestamps": "{on: iso8601}"}, "True"),
        ({"create": "{schema: [{name: no, type: long}]}"}, "False"),
        ({"connections": "{control_topic: 12}"}, "12"),
    ],
)
def test_a_name_without_quotes_is_reported_as_yaml_read_it(tmp_path: Path, changed: dict[str, str], read: str) -> None:
    values = {"name": "orders", "topics": "orders", "table": "shop.orders", **changed}
    found = mistake_of(tmp_path, "".join(f"{key}: {value}\n" for key, value in values.items()))
    assert found.code == "LC1342"
    assert read in found.message
    assert "quotes" in found.message


@pytest.mark.parametrize("key", ["no", "1.10"])
def test_a_key_without_quotes_is_reported_as_yaml_read_it(tmp_path: Path, key: str) -> None:
    found = mistake_of(tmp_path, f"{SPEC}{key}: x\n")
    assert (found.code, "quotes" in found.message) == ("LC1342", True)


@pytest.mark.parametrize("value", ["no", ["a", "b"], {"a": "b"}, None, (), [{}]])
def test_texts_were_read_as_they_are(value: Any) -> None:
    assert unquoted(value) == ""


def test_options_without_their_names_are_reported() -> None:
    with pytest.raises(SpecError, match="LC1348"):
        Landing("orders", "orders", "shop.orders")  # type: ignore[misc]


def test_a_single_mistake_is_reported_by_its_own_code(tmp_path: Path) -> None:
    assert mistake_of(tmp_path, f"{SPEC}connections: {{control_events: 1.10}}\n").code == "LC1343"
    assert mistake_of(tmp_path, f"{SPEC}connections: {{control_topic: orders}}\n").code == "LC1347"
    assert mistake_of(tmp_path, f"{SPEC}create: {{schema: [{{name: _pos, type: long}}]}}\n").code == "LC1345"


def test_keys_of_a_landing_below_a_key_of_their_own_are_moved_up(tmp_path: Path) -> None:
    error = mistake_of(tmp_path, "landing: {name: orders, topics: orders, table: shop.orders}\nkafka: {}\n")
    assert [CODE.findall(mistake) for mistake in error.mistakes] == [["LC1226"]]


def test_a_column_without_a_name_is_printed_one(tmp_path: Path) -> None:
    error = mistake_of(tmp_path, f"{SPEC}create: {{schema: [id long, amount double]}}\n")
    assert [CODE.findall(mistake) for mistake in error.mistakes] == [["LC1161"], ["LC1161"]]
