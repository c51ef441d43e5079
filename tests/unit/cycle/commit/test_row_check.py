# SPDX-License-Identifier: Apache-2.0
"""How long a check of new rows may take."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.cycle.commit.row_check import RowsToCheck, wrong_rows
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing.row_checks import RowCheck
from tests.support.world import catalog_in

ENDLESS = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = -1"
SHORT, LONG = timedelta(seconds=0.2), timedelta(minutes=5)


def endless(connection: Any) -> None:
    connection.execute("SELECT 1")
    connection.execute(ENDLESS)


def of_one_row(connection: Any) -> list[Any]:
    return connection.execute("SELECT 1").fetchall()  # type: ignore[no-any-return]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[RowsToCheck]:
    tables = Tables(catalog_in(tmp_path))
    tables.catalog.create_namespace("shop")
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    table = tables.catalog.create_table("shop.orders", schema)
    with RowsToCheck("shop.orders", table, None, None) as found:
        yield found
    tables.close()


@pytest.mark.parametrize("kind", ["sql", "function"])
def test_a_check_without_an_end_is_ended_by_its_limit(rows: RowsToCheck, kind: str) -> None:
    what = ENDLESS if kind == "sql" else f"{__name__}.endless"
    check = RowCheck(name="slow", table="shop.orders", **{kind: what})
    with pytest.raises(TableError, match=r"check slow was ended after 0:00:00.2.*LC6255"):
        wrong_rows(check, rows, SHORT, print)
    fast = RowCheck(name="fast", table="shop.orders", function=f"{__name__}.of_one_row")
    assert wrong_rows(fast, rows, LONG, print) == "shop.orders, check fast: 1 wrong row", "the connection can be used"


def test_a_check_that_fails_within_its_limit_reports_its_own_error(rows: RowsToCheck) -> None:
    check = RowCheck(name="wrong", table="shop.orders", sql="SELECT no_such_column")
    with pytest.raises(TableError, match="LC6252"):
        wrong_rows(check, rows, LONG, print)
