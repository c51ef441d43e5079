# SPDX-License-Identifier: Apache-2.0
"""Tables that a user made under another catalog name are found."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.guarded_catalog import LOCK_SECONDS

SCHEMA = Schema(NestedField(1, "id", LongType()))


def _made(name: str, table: str, properties: dict[str, str]) -> None:
    made = load_catalog(name, **properties)
    made.create_namespace_if_not_exists("shop")
    made.create_table(table, SCHEMA)
    made.close()


@pytest.mark.parametrize("query", ["", "?timeout=7"])
def test_the_only_name_in_the_database_is_used(catalog_properties: dict[str, str], query: str) -> None:
    _made("elsewhere", "shop.orders", catalog_properties)
    there = {**catalog_properties, "uri": f"{catalog_properties['uri']}{query}"}
    assert Tables(there).load("shop.orders").schema().column_names == ["id"]


@pytest.mark.parametrize(("query", "seconds"), [("", LOCK_SECONDS), ("?timeout=7", 7)])
def test_sqlite_waits_for_its_lock(catalog_properties: dict[str, str], query: str, seconds: int) -> None:
    catalog = Tables({**catalog_properties, "uri": f"{catalog_properties['uri']}{query}"}).catalog
    assert isinstance(catalog, SqlCatalog)
    with catalog.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 1000 * seconds


def test_a_name_that_is_stated_wins(catalog_properties: dict[str, str]) -> None:
    _made("elsewhere", "shop.orders", catalog_properties)
    with pytest.raises(TableError, match=r"catalog mine: .*set `name: elsewhere`.*\[LC3304\]"):
        Tables({**catalog_properties, "name": "mine"}).load("shop.orders")
    assert Tables({**catalog_properties, "name": "mine"}).elsewhere("shop.others") == ""


def test_of_several_names_the_default_is_used(catalog_properties: dict[str, str]) -> None:
    _made("one", "shop.a", catalog_properties)
    _made("two", "shop.b", catalog_properties)
    tables = Tables(catalog_properties)
    assert tables.name == "default"
    assert tables.find("shop.a") is None
