# SPDX-License-Identifier: Apache-2.0
"""The soak program finds what is lost, doubled, altered or foreign, and tells growth from a cache that fills."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from bench.soak_compare import Reader, compared
from bench.soak_samples import Growth
from bench.soak_topics import KEYS, PARTITIONS, Message, Topic, topics_of
from tests.fakes.registry import FakeRegistry

Row = dict[str, Any]


class Stored:
    """A table as a list of rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.stored = rows

    def rows(self, _table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return [tuple(row.get(name) for name in columns) for row in self.stored]


def produced(topic: Topic, number: int) -> list[Message]:
    """Return so many records, from the middle on with one more field, and the closing ones."""
    registry, messages = FakeRegistry(), []
    for n in range(number):
        if n == number // 2:
            topic.add_field()
        messages += topic.next(registry)
    return [*messages, *topic.closing(registry)]


def as_reader(rows: list[Row]) -> Reader:
    return cast(Reader, Stored(rows))


@pytest.mark.parametrize("number", [5, 9])
def test_the_rows_of_an_upserted_topic_are_those_of_its_messages(number: int) -> None:
    topic = topics_of(40)[number]
    rows: dict[int, Row] = {}
    messages = produced(topic, 3000)
    for message in messages:
        assert message.key is not None
        key = json.loads(message.key)["id"]
        assert message.partition == key % PARTITIONS
        value = None if message.value is None else json.loads(message.value)
        if topic.format == "debezium":
            value = value and value["after"]
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = {**value, "id": key}
    assert topic.expected() == rows
    assert set(rows) >= {KEYS, KEYS + PARTITIONS - 1}
    assert len(rows) < KEYS + PARTITIONS
    assert topic.sent == [sum(m.partition == p for m in messages) for p in range(PARTITIONS)]
    assert compared(topic, as_reader([*rows.values()])).is_right


def test_every_difference_of_a_table_is_found() -> None:
    topic = topics_of(1)[0]
    produced(topic, 20)
    rows = [*topic.expected().values()]
    assert topic.columns() == ["id", "at", "note", "extra_0"]
    assert compared(topic, as_reader(rows)).is_right
    wrong = [*rows[1:-1], rows[2], {**rows[-1], "extra_0": None}, {**rows[0], "id": 21}]
    found = compared(topic, as_reader(wrong))
    assert (found.lost, found.doubled, found.altered, found.foreign) == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("quarters", "grows"),
    [
        ((100, 130, 160, 190), True),
        ((100, 180, 190, 191), False),
        ((100, 101, 99, 130), False),
        ((10, 11, 12, 13), False),
    ],
)
def test_only_what_grows_in_each_quarter_grows_without_bound(quarters: tuple[float, ...], grows: bool) -> None:
    assert Growth(role="x", measure="rss_mb", minutes=60, quarters=quarters).without_bound == grows
