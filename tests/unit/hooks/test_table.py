# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import UnauthorizedError

from airflow_provider_lakecommit.exceptions import CatalogError, SpecError, TableError
from airflow_provider_lakecommit.hooks.table import CREATED_TABLE_PROPERTIES, Tables
from tests.fakes.lake import BY_BUCKET, SCHEMA, Lake

CANARY = "hunter2-canary"


def refusing(error: Exception) -> Tables:
    def connect(*_: object, **__: object) -> Catalog:
        raise error

    properties = {"uri": f"postgresql://me:{CANARY}@db/x", "credential": f"id:{CANARY}", "s3.secret-access-key": CANARY}
    return Tables(properties, connect=connect)


def test_nothing_is_reached_before_it_is_needed() -> None:
    refusing(RuntimeError("connected")).io_properties()


def test_a_missing_table_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with pytest.raises(TableError, match=r"no table shop\.orders in catalog \w+: create it, or state `create`"):
        lake.tables.load("shop.orders")
    assert lake.tables.find("shop.orders") is None


def test_a_catalog_that_is_away_is_a_catalog_error(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    lake.catalog.away = True
    with pytest.raises(CatalogError, match=r"reading table shop\.orders.*connection refused.*check that it runs"):
        lake.tables.load(lake.name)


def test_refused_credentials_are_said_to_be_refused() -> None:
    with pytest.raises(CatalogError, match="refused the credentials while connecting"):
        assert refusing(UnauthorizedError("401")).catalog


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"could not connect to postgresql://me:{CANARY}@db/x"),
        UnauthorizedError(f"bad credential id:{CANARY}"),
        ValueError(f"{CANARY} is no key"),
    ],
)
def test_no_message_shows_a_secret(error: Exception) -> None:
    with pytest.raises((CatalogError, SpecError)) as caught:
        assert refusing(error).catalog
    assert CANARY not in str(caught.value)
    assert caught.value.__suppress_context__


def test_wrong_properties_are_a_spec_error() -> None:
    with pytest.raises(SpecError, match="the properties given are: type, warehouse"):
        assert Tables({"type": "nonsense", "warehouse": "x"}).catalog


def test_a_table_whose_metadata_is_gone_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create()
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(TableError, match=r"shop\.orders to a metadata file that is gone"):
        lake.tables.load(lake.name)


def test_a_type_that_pyiceberg_does_not_know_is_no_outage(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    metadata = Path(lake.create().metadata_location.removeprefix("file://"))
    metadata.write_text(metadata.read_text().replace('"type":"string"', '"type":"variant"'))
    with pytest.raises(TableError, match=r"metadata of table shop\.orders .*variant"):
        lake.tables.load(lake.name)


def test_a_created_table_is_bounded_and_is_found_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={"write.metadata.previous-versions-max": "7"})
    made = lake.create(BY_BUCKET)
    assert lake.create().metadata == made.metadata
    assert made.properties["write.metadata.delete-after-commit.enabled"] == "true"
    assert made.properties["write.metadata.previous-versions-max"] == "7"
    assert made.format_version == int(CREATED_TABLE_PROPERTIES["format-version"])
    assert [f.name for f in made.spec().fields] == ["id_bucket"]


def test_a_namespace_below_another_is_made(tmp_path: Path) -> None:
    lake = Lake(tmp_path, name="a.b.orders")
    assert lake.create().name() == ("a", "b", "orders")


def test_of_many_that_create_one_table_all_get_it(tmp_path: Path) -> None:
    lakes = [Lake(tmp_path) for _ in range(4)]
    barrier = threading.Barrier(len(lakes), timeout=30)
    got: list[object] = []

    def create(lake: Lake) -> None:
        barrier.wait()
        try:
            got.append(lake.tables.create(lake.name, SCHEMA).metadata.table_uuid)
        except Exception as e:
            got.append(e)

    threads = [threading.Thread(target=create, args=(lake,)) for lake in lakes]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=60)
    assert got == [lakes[0].load().metadata.table_uuid] * len(lakes)


def test_storage_properties_hold_nothing_of_the_catalog() -> None:
    tables = Tables({"uri": "x", "credential": "c", "token": "t", "s3.endpoint": "e", "warehouse": "w", "s3.region": 1})
    assert tables.io_properties() == {"s3.endpoint": "e", "warehouse": "w", "s3.region": "1"}
