# SPDX-License-Identifier: Apache-2.0
"""Schemas of a page that come to more fields than any table has: their columns are left out, at once and by name."""

from __future__ import annotations

import json

from airflow_provider_lakecommit.formats.avro.infer import avro_columns
from airflow_provider_lakecommit.formats.avro.writer import writer_type
from airflow_provider_lakecommit.formats.infer_values import MOST_FIELDS
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.formats.protobuf.infer import message_columns

NOTE = "big: left out: it has more than 5,000 fields"


def test_types_of_avro_that_name_each_other() -> None:
    inner: object = {"type": "record", "name": "L0", "fields": [{"name": "n", "type": "int"}]}
    for n in range(40):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{n}"}]
        inner = {"type": "record", "name": f"L{n + 1}", "fields": fields}
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "big", "type": inner}]}
    found = avro_columns(writer_type(json.dumps(schema)))
    assert [(c.name, c.type, c.notes) for c in found] == [("id", "long", ()), ("big", None, (NOTE,))]


def test_messages_that_name_each_other_in_all_ways() -> None:
    names = [f"M{n}" for n in range(14)]
    each = " ".join(f"{name} f{n} = {n + 1};" for n, name in enumerate(names))
    messages = "".join(f"message {name} {{ {each} int32 n = 99; }}" for name in names)
    text = f'syntax = "proto3"; message R {{ int64 id = 1; M0 big = 2; }} {messages}'
    found = message_columns(message_named(file_of(text), "R"))
    assert [(c.name, c.type, c.notes) for c in found] == [("id", "long", ()), ("big", None, (NOTE,))]


def test_as_many_as_are_allowed_are_a_column() -> None:
    fields = [{"name": f"f{n}", "type": "int"} for n in range(MOST_FIELDS)]
    record = {"type": "record", "name": "B", "fields": fields}
    schema = {"type": "record", "name": "R", "fields": [{"name": "big", "type": record}]}
    (found,) = avro_columns(writer_type(json.dumps(schema)))
    assert len(found.type["struct"]) == MOST_FIELDS
