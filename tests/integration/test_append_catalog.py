# SPDX-License-Identifier: Apache-2.0
"""One contract for the catalogs that the committer is tested on: the real one, and the one that fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from tests.fakes.catalog import FaultyCatalog
from tests.fakes.lake import SCHEMA

pytestmark = pytest.mark.integration


@pytest.fixture(params=[load_catalog, FaultyCatalog], ids=["real", "faulty"])
def either(request: pytest.FixtureRequest, catalog_properties: dict[str, str]) -> Iterator[Catalog]:
    connect: Callable[..., Catalog] = request.param
    made = connect("contract", **catalog_properties)
    made.create_namespace("shop")
    yield made
    made.close()


def property_set(table: Table, **values: Any) -> tuple[Table, tuple[Any, ...], tuple[Any, ...]]:
    return table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (SetPropertiesUpdate(updates=values),)


def test_a_table_is_made_once_and_found_again(either: Catalog) -> None:
    made = either.create_table("shop.orders", SCHEMA)
    assert either.load_table("shop.orders").metadata == made.metadata
    with pytest.raises(TableAlreadyExistsError):
        either.create_table("shop.orders", SCHEMA)


def test_a_missing_table_is_reported_to_be_missing(either: Catalog) -> None:
    with pytest.raises(NoSuchTableError):
        either.load_table("shop.nothing")


def test_a_request_is_applied_complete_and_answered_with_the_new_metadata(either: Catalog) -> None:
    either.create_table("shop.orders", SCHEMA)
    response = either.commit_table(*property_set(either.load_table("shop.orders"), colour="red"))
    assert response.metadata.properties["colour"] == "red"
    assert either.load_table("shop.orders").metadata == response.metadata


def test_a_request_for_another_table_is_a_conflict_and_changes_nothing(either: Catalog) -> None:
    stale = either.create_table("shop.orders", SCHEMA)
    either.drop_table("shop.orders")
    now = either.create_table("shop.orders", SCHEMA)
    with pytest.raises(CommitFailedException):
        either.commit_table(*property_set(stale, colour="red"))
    assert either.load_table("shop.orders").metadata == now.metadata


def test_what_one_writes_another_reads(either: Catalog, catalog_properties: dict[str, str], tmp_path: Path) -> None:
    either.create_table("shop.orders", SCHEMA)
    either.commit_table(*property_set(either.load_table("shop.orders"), colour="red"))
    with load_catalog("contract", **catalog_properties) as other:
        assert other.load_table("shop.orders").properties["colour"] == "red"
