# SPDX-License-Identifier: Apache-2.0
"""Each write property that a table may set has its effect on the files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import LocationProvider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DecimalType, ListType, LongType, NestedField, StringType, StructType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import check_target
from tests.support.targets import target_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "kind", StringType()),
    NestedField(3, "odd name", StructType(NestedField(4, "text", StringType()))),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False)),
    NestedField(7, "ok", BooleanType()),
    NestedField(8, "amount", DecimalType(12, 2)),
)
ROWS = 3000
Write = Callable[..., DataFile]


def rows(n: int = ROWS) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "kind": f"kind {i % 7}",
                "odd name": {"text": f"a text of its own: {i * 7919}"},
                "tags": [f"t{i % 3}"],
                "ok": i % 2 == 0,
                "amount": None,
            }
            for i in range(n)
        ],
        schema=arrow_schema(SCHEMA),
    )


@pytest.fixture
def write(catalog: Catalog) -> Write:
    """The file of a table with these properties."""

    def one(properties: dict[str, str], spec: PartitionSpec | None = None, providers: tuple[str, ...] = ()) -> DataFile:
        table = catalog.create_table(
            f"shop.t{uuid4().hex}", SCHEMA, partition_spec=spec or UNPARTITIONED_PARTITION_SPEC, properties=properties
        )
        io = load_file_io({}, table.location())
        writer = FanoutWriter(target_of(table), io, uuid4(), providers=providers)
        writer.write(rows())
        (file,) = writer.close()
        return file

    return one


def path_of(file: DataFile) -> Path:
    return Path(urlparse(file.file_path).path)


def chunk(file: DataFile, path: str, group: int = 0) -> Any:
    """A column chunk, by its path in the file."""
    found = pq.ParquetFile(path_of(file)).metadata.row_group(group)
    return next(c for c in map(found.column, range(found.num_columns)) if c.path_in_schema == path)


CODECS = [
    ({}, "ZSTD"),
    ({"write.parquet.compression-codec": "uncompressed"}, "UNCOMPRESSED"),
    ({"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "5"}, "SNAPPY"),
    ({"write.parquet.compression-codec": "GZIP"}, "GZIP"),
    ({"write.parquet.compression-codec": "lz4"}, "LZ4"),
    ({"write.parquet.compression-codec": "brotli"}, "BROTLI"),
]


@pytest.mark.parametrize(("properties", "found"), CODECS)
def test_compression_codec(write: Write, properties: dict[str, str], found: str) -> None:
    assert chunk(write(properties), "id").compression == found


def test_compression_level(write: Write) -> None:
    sizes = [write({"write.parquet.compression-level": level}).file_size_in_bytes for level in ("1", "19")]

    assert sizes[0] != sizes[1]


def test_row_group_limit(write: Write) -> None:
    file = write({"write.parquet.row-group-limit": "1000"})

    footer = pq.ParquetFile(path_of(file)).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [1000] * 3
    assert len(file.split_offsets or []) == 3


def test_row_group_size(write: Write) -> None:
    file = write({"write.parquet.row-group-size-bytes": str(rows().nbytes // 4)})

    assert 4 <= pq.ParquetFile(path_of(file)).metadata.num_row_groups <= 6


@pytest.mark.parametrize("name", ["page-size-bytes", "page-row-limit"])
def test_pages(write: Write, name: str) -> None:
    """More pages are more headers."""
    plain = {"write.parquet.compression-codec": "uncompressed"}
    sizes = [
        chunk(write({**plain, f"write.parquet.{name}": value}), "odd_x20name.text").total_uncompressed_size
        for value in ("1048576", "500")
    ]

    assert sizes[1] > sizes[0] + 100


def test_dictionary_size(write: Write) -> None:
    small_batches = {"write.parquet.page-size-bytes": "10000"}
    sizes = [
        chunk(write({**small_batches, "write.parquet.dict-size-bytes": size}), "kind").total_uncompressed_size
        for size in ("1", "262144")
    ]

    assert sizes[0] > 2 * sizes[1]


def test_dictionaries_are_for_values_that_repeat(write: Write) -> None:
    file = write({})

    assert chunk(file, "kind").has_dictionary_page
    assert chunk(file, "tags.list.element").has_dictionary_page
    assert not chunk(file, "odd_x20name.text").has_dictionary_page
    assert not chunk(file, "id").has_dictionary_page


def test_decimals_are_as_other_engines_write_them(write: Write) -> None:
    assert chunk(write({}), "amount").physical_type == "INT64"


def test_bloom_filters(write: Write) -> None:
    enabled = {f"write.parquet.bloom-filter-enabled.column.{c}": "true" for c in ("id", "odd name.text", "ok", "gone")}
    enabled["write.parquet.bloom-filter-enabled.column.kind"] = "false"

    file = write(enabled)
    finer = write({**enabled, "write.parquet.bloom-filter-fpp.column.id": "0.00001"})
    small = write({**enabled, "write.parquet.bloom-filter-max-bytes": "512"})

    filtered = ("id", "odd_x20name.text")
    assert all(chunk(file, c).bloom_filter_length for c in filtered)
    assert not any(chunk(file, c).bloom_filter_length for c in ("kind", "ok"))
    assert chunk(finer, "id").bloom_filter_length > chunk(file, "id").bloom_filter_length
    assert chunk(finer, "odd_x20name.text").bloom_filter_length == chunk(file, "odd_x20name.text").bloom_filter_length
    assert all(chunk(small, c).bloom_filter_length <= 600 for c in filtered)


def test_data_path_and_object_storage(write: Write, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path / 'elsewhere'}"
    by_ok = PartitionSpec(PartitionField(8, 1000, IdentityTransform(), "amount"))
    hashed = r"/[01]{4}/[01]{4}/[01]{4}/[01]{8}"

    plain = write({"write.data.path": elsewhere}, by_ok)
    stored = write({"write.data.path": elsewhere, "write.object-storage.enabled": "true"}, by_ok)
    bare = write(
        {
            "write.data.path": elsewhere,
            "write.object-storage.enabled": "true",
            "write.object-storage.partitioned-paths": "false",
        },
        by_ok,
    )

    assert re.fullmatch(rf"{re.escape(elsewhere)}/amount=null/[^/]+\.parquet", plain.file_path)
    assert re.fullmatch(rf"{re.escape(elsewhere)}{hashed}/amount=null/[^/]+\.parquet", stored.file_path)
    assert re.fullmatch(rf"{re.escape(elsewhere)}{hashed}-[^/]+\.parquet", bare.file_path)
    assert all(path_of(f).is_file() for f in (plain, stored, bare))


class Shelf(LocationProvider):
    """A user's own place for files."""

    def new_data_location(self, data_file_name: str, partition_key: Any = None) -> str:
        return f"{self.table_location}/shelf/{data_file_name}"


def test_a_location_provider_of_ones_own(write: Write) -> None:
    named = f"{__name__}.Shelf"
    file = write({"write.py-location-provider.impl": named}, providers=(named,))

    assert "/shelf/" in file.file_path


@pytest.mark.parametrize("named", [f"{__name__}.Shelf", "no.such.Thing", "os.system", "Thing"])
def test_a_location_provider_that_the_landing_does_not_allow_is_not_imported(catalog: Catalog, named: str) -> None:
    target = target_of(catalog.create_table("shop.orders", SCHEMA))
    turned = replace(target, properties={"write.py-location-provider.impl": named})
    with pytest.raises(TableError, match="LC3320"):
        check_target(turned, ["acme.Folders"])


@pytest.mark.parametrize("name", ["SimpleLocationProvider", "ObjectStoreLocationProvider"])
def test_the_location_providers_of_pyiceberg_are_accepted_silently(catalog: Catalog, name: str) -> None:
    target = target_of(catalog.create_table("shop.orders", SCHEMA))
    check_target(replace(target, properties={"write.py-location-provider.impl": f"pyiceberg.table.locations.{name}"}))


REFUSED = [
    ({"write.format.default": "orc"}, "only parquet is written"),
    ({"write.target-file-size-bytes": "big"}, "write.target-file-size-bytes='big' is not a whole number"),
    ({"write.parquet.compression-codec": "lzo"}, "write.parquet.compression-codec=lzo: set one of brotli, gzip"),
    ({"write.parquet.compression-level": "high"}, "write.parquet.compression-level='high' is not a whole number"),
    (
        {"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "22"},
        "write.parquet.compression-level=22 is not a level of gzip",
    ),
    ({"write.parquet.compression-level": "9999999999"}, "write.parquet.compression-level=9999999999 is not a level"),
    ({"write.parquet.page-row-limit": "0"}, "write.parquet.page-row-limit=0 is not from 1"),
    ({"write.parquet.page-row-limit": "-3"}, "write.parquet.page-row-limit=-3 is not from 1"),
    ({"write.parquet.page-size-bytes": str(2**63)}, f"write.parquet.page-size-bytes={2**63} is not from 1"),
    ({"write.target-file-size-bytes": "0"}, "write.target-file-size-bytes=0 is not from 1"),
    ({"write.data.path": "lake/orders"}, "write.data.path='lake/orders' is relative"),
    ({"write.py-location-provider.impl": "no.such.Thing"}, "the location of its files cannot be determined"),
    ({"write.py-location-provider.impl": f"{__name__}.NoSuchThing"}, "the location of its files cannot be determined"),
    (
        {"write.parquet.bloom-filter-enabled.column.id": "true", "write.parquet.bloom-filter-fpp.column.id": "2"},
        "write.parquet.bloom-filter-fpp.column.id='2' is not between 0 and 1",
    ),
]


@pytest.mark.parametrize(("properties", "message"), REFUSED)
def test_what_cannot_be_obeyed_is_refused_before_a_row_is_written(
    catalog: Catalog, properties: dict[str, str], message: str
) -> None:
    target = target_of(catalog.create_table("shop.orders", SCHEMA))
    check_target(target)
    with pytest.raises(TableError, match=re.escape(message)):
        check_target(replace(target, properties=properties), ["no.such.Thing", f"{__name__}.NoSuchThing"])


def test_names_that_are_the_same_in_a_file_are_refused_before_a_row_is_written(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "a b", LongType()), NestedField(2, "a_x20b", LongType()))

    with pytest.raises(TableError, match="LC3319"):
        check_target(target_of(catalog.create_table("shop.orders", schema)))


def test_a_struct_whose_last_field_was_dropped_is_named_before_a_row_is_written(catalog: Catalog) -> None:
    inner = StructType(NestedField(3, "name", StringType(), required=False))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "who", inner, required=False))
    table = catalog.create_table("shop.orders", schema)
    with table.update_schema() as update:
        update.delete_column(("who", "name"))

    with pytest.raises(TableError, match="LC3318"):
        check_target(target_of(table))
