# SPDX-License-Identifier: Apache-2.0
"""Where data files may lie: what is below a folder, and all that only looks like it."""

from __future__ import annotations

from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.locations import data_roots, name_problem, named_provider, path_problem

ATTEMPT = UUID("0f4c8f04-0c6e-8d8a-9d3e-6b1b3a9f2c11")
ROOTS = data_roots("s3://lake/shop/t/", {"write.data.path": "s3a://fast/t", "write.object-storage.path": "/mnt/t/"})


@pytest.mark.parametrize(
    "path",
    [
        "s3://lake/shop/t/data/x.parquet",
        "s3a://lake/shop/t/data/x.parquet",
        "S3N://lake/shop/t/data/x.parquet",
        "s3://fast/t/0101/x.parquet",
        "/mnt/t/x.parquet",
        "file:///mnt/t/x.parquet",
        "file:/mnt/t/x.parquet",
        # What a partition's value may be.
        "s3://lake/shop/t/data/name=a%2Fb/x.parquet",
        "s3://lake/shop/t/data/name=..%2F..%2Fother/x.parquet",
        "s3://lake/shop/t/data/name=.../x.parquet",
    ],
)
def test_below_a_folder_of_the_table(path: str) -> None:
    assert path_problem(path, ROOTS) is None


@pytest.mark.parametrize(
    "path",
    [
        "s3://lake/shop/t2/data/x.parquet",
        "s3://lake/shop/t",
        "s3://lake/shop/tx.parquet",
        "s3://lake2/shop/t/data/x.parquet",
        "s3://LAKE/shop/t/data/x.parquet",
        "gs://lake/shop/t/data/x.parquet",
        "https://lake/shop/t/data/x.parquet",
        "lake/shop/t/data/x.parquet",
        "/lake/shop/t/data/x.parquet",
        "file://host/mnt/t/x.parquet",
        "/mnt/t2/x.parquet",
        "",
    ],
)
def test_next_to_them(path: str) -> None:
    assert "does not lie where the table has its data" in str(path_problem(path, ROOTS))


@pytest.mark.parametrize(
    "below",
    [
        "../t2/x.parquet",
        "data/../../t2/x.parquet",
        "data/./x.parquet",
        "%2e%2e/t2/x.parquet",
        "data/%2E%2E/%2e./t2/x.parquet",
        "%252e%252e/x.parquet",
        "data\\..\\x.parquet",
        "x.parquet?/../t2",
        "x.parquet#y",
        "x\n.parquet",
        "data/",
        "",
    ],
)
def test_no_way_leads_out_of_them(below: str) -> None:
    assert "has no plain path below the table's location" in str(path_problem(f"s3://lake/shop/t/{below}", ROOTS))


def test_a_table_without_properties_has_its_location() -> None:
    assert data_roots("s3://lake/t", {}) == ("s3://lake/t",)


@pytest.mark.parametrize("name", [f"{ATTEMPT}-00000.parquet", f"0101-{ATTEMPT}-123456.parquet"])
def test_a_name_that_the_attempt_gave(name: str) -> None:
    assert name_problem(f"s3://lake/t/data/{name}", ATTEMPT) is None


@pytest.mark.parametrize(
    "name",
    [
        f"{UUID(int=1)}-00000.parquet",
        f"00000-0-{ATTEMPT}-00001.parquet",
        f"{ATTEMPT}-00000.parquet.crc",
        f"{ATTEMPT}/00000.parquet",
        f"{ATTEMPT}.parquet",
    ],
)
def test_a_name_that_another_writer_gave(name: str) -> None:
    assert "was not written by attempt" in str(name_problem(f"s3://lake/t/data/{name}", ATTEMPT))


def test_only_a_provider_of_another_writer_needs_a_decision() -> None:
    key, own = "write.py-location-provider.impl", "pyiceberg.table.locations.ObjectStoreLocationProvider"
    assert [named_provider({key: v}) for v in ("", own, "acme.Folders")] == [None, None, "acme.Folders"]
    assert named_provider({}) is None
