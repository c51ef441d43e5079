# SPDX-License-Identifier: Apache-2.0
"""The section `upsert`: what it takes, and which combinations are refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import MARK_COLUMNS, Landing, Upsert
from airflow_provider_lakecommit.landing.upsert import require_appends, require_traces, wrong_columns
from tests.support.declared import landing_of

LEAST: dict[str, Any] = {"name": "orders", "topics": "orders", "table": "shop.orders"}
BY_KEY: dict[str, Any] = {**LEAST, "key": {"columns": ["id"], "format": "json"}, "upsert_key": ["id"]}
BY_ENVELOPE: dict[str, Any] = {**LEAST, "unwrap": "debezium", "upsert_key": ["id"]}
TYPES = {"id": "long", "lsn": "long", "at": "timestamptz", "price": "double", "tags": "list<string>", "name": "string"}


def test_python_and_yaml_report_the_same() -> None:
    stated = {"key": ["id"], "order_by": ["_lsn", "offset"], "deletes": "soft"}
    ours = Landing(**LEAST, transform={"unwrap": "debezium"}, upsert=stated)  # type: ignore[arg-type]
    assert ours.upsert == Upsert(key=("id",), order_by=("_lsn", "offset"), deletes="soft")
    assert ours.upsert.order_column == "_lsn"
    assert ours.to_dict()["upsert"] == stated
    assert Landing.from_dict(ours.to_dict()) == ours == Landing.from_flat(ours.to_flat())


def test_an_appending_landing_is_what_it_was() -> None:
    appending = landing_of(**LEAST)
    assert "upsert" not in appending.to_dict()
    assert not any(key.startswith("upsert") for key in appending.to_flat())
    assert appending.spec_version != landing_of(**BY_KEY).spec_version


def test_what_decides_which_records_are_rejected_is_part_of_the_rules_of_a_reading() -> None:
    others = ({}, {"upsert_deletes": "ignore"}, {"upsert_order_by": ["seq", "offset"]}, {"upsert_key": ["id", "shop"]})
    made = [landing_of(**{**BY_ENVELOPE, **other}) for other in others]
    assert len({landing_of(**LEAST).decoding_hash, *(each.decoding_hash for each in made)}) == 5


def test_an_upserting_landing_fills_the_columns_that_order_changes() -> None:
    assert landing_of(**BY_KEY).record_columns == MARK_COLUMNS
    assert landing_of(**LEAST).record_columns == ()


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"upsert_key": "id"}, "LC1321"),
        ({"upsert_key": ["id", "id"]}, "LC1321"),
        ({"upsert_order_by": "lsn"}, "LC1322"),
        ({"upsert_order_by": ["lsn"]}, "LC1322"),
        ({"upsert_deletes": "never"}, "LC1102"),
        ({"upsert_key": [], "upsert_deletes": "soft"}, "LC1327"),
        ({"route": {"field": "t", "tables": {"a": "shop.orders", "b": "shop.others"}}}, "LC1328"),
        ({"format": "csv", "csv": {"columns": ["id"], "rows": "many"}}, "LC1330"),
        ({"metadata_columns": False}, "LC1331"),
        ({"key": {}}, "LC1332"),
        ({"key": {"columns": ["other"], "format": "json"}}, "LC1332"),
        ({"upsert_order_by": ["lsn", "offset"]}, "LC1333"),
    ],
)
def test_what_cannot_work_is_refused_when_declared(more: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=code):
        landing_of(**{**BY_KEY, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"upsert_deletes": "ignore", "key": {}},
        {"upsert_deletes": "ignore", "upsert_order_by": ["lsn", "offset"]},
        {"upsert_order_by": ["kafka_timestamp", "offset"], "metadata_columns": True},
        {"upsert_order_by": ["lsn", "offset"], "headers": {"lsn": "lsn"}},
        {"format": "csv", "csv": {"columns": ["id"]}},
        {"format": "raw"},
    ],
)
def test_what_can_work_is_taken(more: dict[str, Any]) -> None:
    assert landing_of(**{**BY_KEY, **more}).upsert.key == ("id",)
    assert landing_of(**BY_ENVELOPE).upsert.deletes == "hard"


@pytest.mark.parametrize(
    ("upsert", "code"),
    [
        (Upsert(key=("idd",)), "LC1323"),
        (Upsert(key=("id", "price")), "LC1324"),
        (Upsert(key=("tags",)), "LC1324"),
        (Upsert(key=("id",), order_by=("price", "offset")), "LC1325"),
        (Upsert(key=("id",), order_by=("name", "offset")), "LC1325"),
        (Upsert(key=("id",), order_by=("none", "offset")), "LC1325"),
        (Upsert(key=("id",), deletes="soft"), "LC1326"),
    ],
)
def test_columns_that_cannot_do_it_are_named(upsert: Upsert, code: str) -> None:
    (wrong,) = wrong_columns(upsert, TYPES)
    assert code in wrong


def test_columns_that_can_do_it() -> None:
    types = {**TYPES, "_is_deleted": "boolean"}
    assert [*wrong_columns(Upsert(key=("id", "name"), order_by=("at", "offset"), deletes="soft"), types)] == []


def test_operations_that_need_each_record_are_refused() -> None:
    hard, soft = landing_of(**BY_ENVELOPE), landing_of(**BY_ENVELOPE, upsert_deletes="soft")
    for landing in (hard, soft):
        with pytest.raises(SpecError, match="LC1334"):
            require_appends(landing, "replaying ranges")
    with pytest.raises(SpecError, match="LC1335"):
        require_traces(hard)
    require_traces(soft)
    require_appends(landing_of(**LEAST), "replaying ranges")
    require_traces(landing_of(**LEAST))
