# SPDX-License-Identifier: Apache-2.0
"""Tables of a landing: what cannot be landed is said before anything is made."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BinaryType, IcebergType, LongType, NestedField, StringType

from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.tables import table_of
from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from tests.fakes.kafka import FakeControl, FakeSource
from tests.support.declared import landing_of


def session_of(properties: dict[str, str], **more: Any) -> LandingSession:
    return LandingSession(
        landing=landing_of(name="orders", topics="orders", table="shop.orders", **more),
        kafka={},
        tables=Tables(properties, "test"),
        control=FakeControl(),
        source=FakeSource({}),
    )


def create(kind: str, **properties: str) -> dict[str, Any]:
    return {"schema": [{"name": "id", "type": "long"}, {"name": "c", "type": kind}], "properties": properties}


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"create": create("timestamp_ns")}, TableError, "has format version 3, or its types need it.*LC6224"),
        ({"create": create("long", **{"format-version": "3"})}, TableError, "versions up to 2.*LC6224"),
        ({"create": create("binary")}, TableError, "column c is binary, and JSON has no bytes.*LC4004"),
        ({"create": create("map<double, long>")}, TableError, r"column c\.key has type double.*LC4004"),
        ({"create": create("variant")}, SpecError, "'variant' is not a type.*LC1167"),
    ],
)
def test_a_table_that_cannot_be_filled_is_not_made(
    catalog: Catalog,
    catalog_properties: dict[str, str],
    more: dict[str, Any],
    error: type[Exception],
    message: str,
    dry: bool,
) -> None:
    with pytest.raises(error, match=message):
        table_of(session_of(catalog_properties, **more), "shop.orders", dry=dry)
    assert not catalog.table_exists("shop.orders")


def test_a_table_below_the_name_of_its_catalog_is_reported(
    catalog: Catalog, catalog_properties: dict[str, str]
) -> None:
    lines: list[str] = []
    session = session_of(catalog_properties, create=create("long"))
    session = replace(session, log=lines.append)
    for name in (f"{session.tables.name}.shop.orders", "shop.eu.orders"):
        table_of(replace(session, landing=replace(session.landing, table=name)), name, dry=True)
    assert [line for line in lines if "WARNING" in line] == [
        f"WARNING: {session.tables.name}.shop.orders begins with the name of its catalog, which `table` does not need"
    ]


def test_a_table_of_every_type_is_made(catalog: Catalog, catalog_properties: dict[str, str]) -> None:
    session = session_of(
        catalog_properties, create=create("map<uuid, list<fixed[2]>>"), encodings={"c.value.element": "hex"}
    )
    assert table_of(session, "shop.orders", dry=True).schema() == table_of(session, "shop.orders").schema()
    assert catalog.load_table("shop.orders").format_version == 2


def test_a_table_is_made_with_the_sort_order_that_is_stated(
    catalog: Catalog, catalog_properties: dict[str, str]
) -> None:
    session = session_of(catalog_properties, create={**create("string"), "sort_order": ["c desc", "bucket(4, id)"]})
    order = SortOrder(
        SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(1, BucketTransform(4), SortDirection.ASC, NullOrder.NULLS_FIRST),
    )
    assert table_of(session, "shop.orders", dry=True).sort_order() == order
    assert table_of(session, "shop.orders").sort_order() == order
    assert catalog.load_table("shop.orders").sort_order() == order
    dead = session_of(catalog_properties, create=create("string"), dead_letter_table="shop.dead")
    assert table_of(dead, "shop.dead").sort_order().is_unsorted


@pytest.mark.parametrize("key", ["partition_by", "sort_order"])
def test_what_a_row_has_many_of_neither_parts_nor_sorts(
    catalog: Catalog, catalog_properties: dict[str, str], key: str
) -> None:
    with pytest.raises(SpecError, match="LC1173"):
        session_of(catalog_properties, create={**create("list<struct<a: long>>"), key: ["c.element.a"]})
    assert not catalog.table_exists("shop.orders")


def test_a_table_of_a_newer_format_version_is_refused_by_name(
    catalog: Catalog, catalog_properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # pyiceberg's SQL catalog makes no such table, others have them.
    catalog.create_table("shop.orders", Schema(NestedField(1, "id", LongType())))
    monkeypatch.setattr(Table, "format_version", 3)
    with pytest.raises(TableError, match="LC6224"):
        table_of(session_of(catalog_properties), "shop.orders")


@pytest.mark.parametrize(
    ("dropped", "added", "reason"),
    [
        ((), (), ""),
        (("generation",), (), ""),
        (("partition",), (("partition", LongType(), True), ("fixed", LongType(), False)), ""),
        (("offset",), (), "lacks offset long:"),
        (
            ("value",),
            (("value", StringType(), False),),
            "column value is string in the table and binary in the records",
        ),
        (("generation",), (("generation", StringType(), False),), "column generation is string"),
        (("key",), (("key", BinaryType(), True), ("team", LongType(), True)), "requires key, team:"),
    ],
)
def test_a_dead_letter_table_that_does_not_take_every_reject_is_refused(
    catalog: Catalog,
    catalog_properties: dict[str, str],
    dropped: tuple[str, ...],
    added: tuple[tuple[str, IcebergType, bool], ...],
    reason: str,
) -> None:
    """Changed by another engine. Its tasks would fail, and block ranges for a cause that no message names."""
    kept = [f for f in DEAD_LETTER_SCHEMA.fields if f.name not in dropped]
    more = [NestedField(n, name, kind, required) for n, (name, kind, required) in enumerate(added, 20)]
    catalog.create_table("shop.dead", Schema(*kept, *more))
    session = session_of(catalog_properties, dead_letter_table="shop.dead")
    with pytest.raises(TableError, match=f"{reason}.*LC6225") if reason else nullcontext():
        table_of(session, "shop.dead")
