# SPDX-License-Identifier: Apache-2.0
"""Rows of a dead-letter table, as other engines may have changed it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import Reject
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import ABOUT, DeadLetter, Selection, select
from airflow_provider_lakecommit.spark.dead_letters import dead_letters
from tests.fakes.position_deletes import delete_equal
from tests.support.declared import landing_of


def rejected(offset: int) -> pa.Table:
    about = {"topic": "orders", "partition": 0, "offset": offset, "timestamp": None, "key": None, "headers": None}
    reject = Reject(index=0, kind="not_json", column=None, reason="is not JSON")
    return dead_letters("orders", [DeadLetter({**about, "value": b"x"})], [reject], 1)


def test_a_table_whose_rows_equality_deletes_hide_is_refused_by_name(catalog: Catalog) -> None:
    table = catalog.create_table("shop.dead", DEAD_LETTER_SCHEMA)
    for offset in (3, 5):
        table.append(rejected(offset))
    landing = landing_of(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.dead")
    assert sorted(one.row["offset"] for one in select(table, landing, Selection(), ABOUT)) == [3, 5]
    (file, *_) = (task.file for task in table.scan().plan_files())
    delete_equal(table, "main", file, "offset", 3)
    with pytest.raises(TableError, match="LC7409"):
        list(select(table.refresh(), landing, Selection(), ABOUT))
