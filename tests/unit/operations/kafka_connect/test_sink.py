# SPDX-License-Identifier: Apache-2.0
"""Which connectors a landing can go on for, by what they are reported to do; all that cannot be is named."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operations.kafka_connect.sink import notes_on, reads_earliest, reasons_against

LANDING = Landing(name="orders", topics=["orders", "returns"], table="shop.orders")
CONFIG = {"topics": "orders,returns", "iceberg.tables": "shop.orders"}


def against() -> tuple[str, ...]:
    return tuple(reasons_against(LANDING, "sink", CONFIG, {"orders"}))


def test_a_connector_of_the_same_topics_and_table() -> None:
    assert against() == ()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("iceberg.tables.dynamic-enabled", "true", "names a table by the value"),
        ("iceberg.tables.route-field", "kind", "skips or redirects"),
        ("iceberg.tables", "shop.orders,shop.returns", "fills shop.orders, shop.returns"),
        ("iceberg.tables", "shop.other", "fills shop.other"),
        ("iceberg.tables", "", "no table by name"),
        ("iceberg.tables.default-commit-branch", "audit", "branch audit"),
        ("iceberg.table.shop.orders.commit-branch", "audit", "branch audit"),
        ("consumer.override.group.id", "mine", "consumer group mine"),
        ("topics", "orders,returns,more", "reads more too, which no landing would read"),
        ("topics", "orders", "does not read returns"),
    ],
)
def test_what_it_does_otherwise_is_named(setting: str, value: str, message: str) -> None:
    (reason,) = reasons_against(LANDING, "sink", {**CONFIG, setting: value}, {"orders"})
    assert message in reason


def test_of_topics_by_a_pattern_those_count_that_it_has_read() -> None:
    config = {"topics.regex": ".*", "iceberg.tables": "shop.orders"}
    assert not list(reasons_against(LANDING, "sink", config, {"orders", "returns"}))
    assert list(reasons_against(LANDING, "sink", config, {"orders"}))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("transforms", "flat, rename", "flat, rename"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "AvroConverter"),
        ("value.converter.schemas.enable", "true", "envelopes"),
        ("errors.tolerance", "all", "were skipped"),
        ("iceberg.tables.evolve-schema-enabled", "true", "adds columns"),
    ],
)
def test_what_makes_other_rows_is_noted(setting: str, value: str, message: str) -> None:
    config = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
    assert not list(notes_on(LANDING, config))
    (note,) = notes_on(LANDING, {**config, setting: value})
    assert message in note


def test_where_it_begins() -> None:
    assert reads_earliest({})
    assert not reads_earliest({"consumer.override.auto.offset.reset": "latest"})
