# SPDX-License-Identifier: Apache-2.0
"""The layout of a table's data files, from a plan's target: partitions, order, format, statistics, locations.

Contract: a :class:`Layout` is complete when it is created, without a catalog. A target with an unsupported property is
a :class:`~airflow_provider_lakecommit.exceptions.TableError` at that time, before a record is read. A target may name a
class that chooses file locations; it is imported only if it is pyiceberg's own or the landing allows it, because an
import runs the module, in a process with secrets.

A :class:`Sorting` is the sort order of a table. :meth:`Sorting.order` gives the numbers of a block's rows in the order
that the Iceberg specification defines: by the fields in turn, each ascending or descending with nulls first or last;
floats from the smallest to the greatest with -0.0 before 0.0 and NaN after all; strings and binaries by their bytes,
which for UTF-8 is the order of the code points. Rows that are equal keep their order. Nothing is moved: the caller
takes the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, StructType

from airflow_provider_lakecommit.core import PROVIDER, TableTarget, named_provider
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.file_io import GuardedFileIO
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.parquet import FileFormat
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers
from airflow_provider_lakecommit.iceberg.parquet.partitions import (
    Partitioning,
    check_transform,
    source_column,
    transformed,
)
from airflow_provider_lakecommit.iceberg.parquet.statistics import Metrics

STREAM_BUFFER, STREAM_BYTES = "buffer-size", "65536"


class Layout:
    """The layout of a table's files.

    :param providers: location providers that may be imported, besides pyiceberg's own
    :raises TableError: a property is unsupported
    """

    def __init__(self, target: TableTarget, providers: Collection[str] = ()) -> None:
        self.table = target.table
        self.schema = Schema.model_validate_json(target.schema)
        self.spec = PartitionSpec.model_validate_json(target.spec)
        order = SortOrder.model_validate_json(target.sort_order) if target.sort_order else None
        self.file_schema = file_schema = _file_schema(target.table, self.schema)
        self.arrow = arrow_schema(file_schema)
        self.partitions = Partitioning(self.spec, self.schema)
        self.sorting = Sorting(order, self.schema)
        self.format = FileFormat(target.table, target.properties, self.schema, file_schema)
        self.metrics = Metrics(self.schema, target.properties, self.sorting.columns)
        self.locations = _locations(target, providers)


def file_io(properties: Mapping[str, str]) -> FileIO:
    """The storage of a table for a writer: with small buffers, because many files are open."""
    return GuardedFileIO({STREAM_BUFFER: STREAM_BYTES, **properties})


def check_target(target: TableTarget, providers: Collection[str] = ()) -> None:
    """Check that files can be written for this table with its properties.

    :param providers: as for :class:`Layout`
    :raises TableError: with the property, the partition field or the column that prevents it
    """
    Layout(target, providers)


def _file_schema(table: str, schema: Schema) -> Schema:
    """Columns under the names that they have in a file."""
    for column in schema.field_ids:
        kind = schema.find_type(column)
        if isinstance(kind, StructType) and not kind.fields:
            name = schema.find_column_name(column)
            raise TableError(
                "LC3318",
                f"{table}: column {name} is a struct without fields, which cannot be written: add a field, or drop "
                "the column",
            )
    try:
        return sanitize_column_names(schema)
    except ValueError as e:
        raise TableError("LC3319", f"{table} has a column whose name Parquet cannot hold ({e}); rename it") from e


def _locations(target: TableTarget, providers: Collection[str]) -> LocationProvider:
    named = named_provider(target.properties)
    if named is not None and named not in providers:
        raise TableError(
            "LC3320",
            f"{target.table}: table property {PROVIDER} names {named}, which is not allowed: add it to "
            "`connections.location_providers` of the landing if you trust it, or remove the property from the table",
        )
    path = target.properties.get(TableProperties.WRITE_DATA_PATH, "")
    if path and not path.startswith("/") and not urlsplit(path).scheme:
        raise TableError(
            "LC3321",
            f"{target.table}: table property {TableProperties.WRITE_DATA_PATH}={path!r} is relative to the working "
            "directory of each process; set an absolute path",
        )
    try:
        return load_location_provider(target.location, dict(target.properties))
    except (ValueError, AttributeError, TypeError) as e:
        raise TableError("LC3322", f"{target.table}: the location of its files cannot be determined: {e}") from e


class Sorting:
    """A sort order over a schema; falsy if the table has no sort order.

    :raises TableError: a field whose transform cannot be applied, by name
    """

    def __init__(self, order: SortOrder | None, schema: Schema) -> None:
        self._schema = schema
        self._fields: list[tuple[SortField, IcebergType]] = []
        for field in order.fields if order else ():
            if not isinstance(field.transform, VoidTransform):
                kind = check_transform(field.transform, schema, field.source_id, "the sort order")
                self._fields.append((field, kind))
        self.order_id = order.order_id if order and self._fields else None

    def __bool__(self) -> bool:
        return bool(self._fields)

    @property
    def columns(self) -> tuple[int, ...]:
        """Return the ids of the columns that have narrow bounds in a sorted file."""
        return tuple(f.source_id for f, _ in self._fields if f.transform.preserves_order)

    def order(self, table: pa.Table) -> Numbers:
        """The rows' numbers, sorted."""
        keys: list[Numbers] = []
        for field, kind in self._fields:
            values = transformed(source_column(table, self._schema, field.source_id), field.transform, kind)
            nulls = values.is_null().to_numpy(zero_copy_only=False)
            ranks = _ranks(values)
            keys += [
                ~nulls if field.null_order == NullOrder.NULLS_FIRST else nulls,
                np.where(nulls, 0, ranks if field.direction == SortDirection.ASC else ~ranks),
            ]
        # The last key counts most for lexsort.
        return np.lexsort(keys[::-1])


def _ranks(values: pa.Array) -> Numbers:
    """Return whole numbers in the order of the values; the number of a null has no meaning."""
    kind = values.type
    if pa.types.is_floating(kind):
        return _total_order(_filled(values.cast(pa.float64()), 0.0))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _filled(values.cast(pa.int64()), 0)
    encoded = values.dictionary_encode()
    ranks = _filled(pc.rank(encoded.dictionary, tiebreaker="dense"), 0).astype(np.int64)
    return ranks[_filled(encoded.indices, 0)] if len(ranks) else np.zeros(len(values), np.int64)


def _filled(values: pa.Array, null: float) -> Numbers:
    numbers: Numbers = values.fill_null(null).to_numpy(zero_copy_only=False)
    return numbers


def _total_order(values: Numbers) -> Numbers:
    """IEEE 754's total order as whole numbers, all NaNs being the same and the greatest."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
