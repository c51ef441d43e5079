# SPDX-License-Identifier: Apache-2.0
"""The layout of a table's data files, from a plan's target: partitions, order, format, statistics, locations.

Contract: a :class:`Layout` is complete when it is created, without a catalog. A target with an unsupported property is
a :class:`~airflow_provider_lakecommit.exceptions.TableError` at that time, before a record is read. A target may name a
class that chooses file locations; it is imported only if it is pyiceberg's own or the landing allows it, because an
import runs the module, in a process with secrets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import StructType

from airflow_provider_lakecommit.core import PROVIDER, TableTarget, named_provider
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.file_io import GuardedFileIO
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.parquet import FileFormat
from airflow_provider_lakecommit.iceberg.parquet.partitions import Partitioning
from airflow_provider_lakecommit.iceberg.parquet.sorting import Sorting
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
