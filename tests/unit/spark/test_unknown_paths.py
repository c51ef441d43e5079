# SPDX-License-Identifier: Apache-2.0
"""Where a slice first met each field that the table lacks: the very first record, whatever lies around it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Message

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.spark.unknown_paths import MOST_PATHS, UnknownPaths

SCHEMA = create_from_spec(
    {"schema": [{"name": "id", "type": "long"}, {"name": "lines", "type": "list<struct<sku: string>>"}]}
)[0]


@dataclass
class Record:
    """As much of a message as is requested."""

    at: int

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.at


def found(values: Sequence[dict[str, Any]], *, strict: bool = False, chunk: int = 1000) -> dict[str, int]:
    decoder = JsonDecoder(SCHEMA, FormatOptions(unknown_fields="dead_letter" if strict else "ignore"))
    places = UnknownPaths(decoder)
    for start in range(0, len(values), chunk):
        texts = [json.dumps(v).encode() for v in values[start : start + chunk]]
        messages = [cast(Message, Record(100 + start + i)) for i in range(len(texts))]
        places.add(messages, texts, decoder.decode(texts))
    assert {place[:2] for place in places.found.values()} <= {("orders", 3)}
    return {name: offset for name, (_, _, offset) in places.found.items()}


def test_the_first_record_whose_value_a_column_does_not_take_is_reported() -> None:
    values: list[dict[str, Any]] = [{"id": i} for i in range(50)]
    values[13] |= {"id": 1 << 70}
    values[14] |= {"id": "x"}
    values[31] |= {"lines": [{"sku": 5}]}
    assert found(values) == {"id": 113, "lines.element.sku": 131}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_first_record_of_each_field_is_reported(strict: bool, chunk: int) -> None:
    values: list[dict[str, Any]] = [{"id": i} for i in range(50)]
    values[13] |= {"a": 1}
    values[14] |= {"a": 2, "lines": [{"sku": "x"}]}
    values[31] |= {"lines": [{"sku": "x"}, {"deep": 1}]}
    assert found(values, strict=strict, chunk=chunk) == {"a": 113, "lines.element.deep": 131}


def test_wherever_fields_lie_what_is_reported_is_their_first_position() -> None:
    chance = random.Random(7)
    for _ in range(20):
        values: list[dict[str, Any]] = [{"id": i} for i in range(60)]
        for name in "abcdef":
            for i in chance.sample(range(60), chance.randint(1, 5)):
                values[i][name] = chance.choice([1, "x", [1], {"y": 2}])
        first = {name: 100 + min(i for i, v in enumerate(values) if name in v) for name in "abcdef"}
        assert found(values, chunk=25) == first


def test_as_many_are_reported_as_a_report_has_room_for() -> None:
    assert len(found([{"id": i, f"field-{i}": 1} for i in range(100)])) == MOST_PATHS


def test_nothing_is_requested_where_no_landing_evolves() -> None:
    places = UnknownPaths(None)
    texts = [b'{"a": 1}']
    places.add([cast(Message, Record(1))], texts, JsonDecoder(SCHEMA).decode(texts))
    assert places.found == {}
