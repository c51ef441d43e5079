# SPDX-License-Identifier: Apache-2.0
"""Write manifests of every partition spec that a table has, even if a column of the spec was dropped.

Contract: a manifest is written by the current schema, or, if that lacks a column of the spec, by the newest one of the
table that has all of them: it gives the types of the partition values. :func:`is_rewritable` decides which manifests
may be rewritten: pyiceberg writes the ids of equality deletes with a type that Spark cannot read, so a manifest with
such an entry must stay as it is, whatever kind its list states.

Failure story: a spec without a schema in the metadata that has all its columns is a :class:`TableError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import _SnapshotProducer

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import is_data

if TYPE_CHECKING:
    Producer = _SnapshotProducer[Any]
else:
    Producer = object


def schema_of(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return a schema that has all columns of a spec.

    :raises TableError: the metadata has none
    """
    by_age = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    for schema in (metadata.schema(), *by_age):
        if all(schema.find_column_name(field.source_id) is not None for field in spec.fields):
            return schema
    raise TableError(
        "LC3018",
        f"the table in {metadata.location} has files of partition spec {spec.spec_id}, but no schema has all columns "
        "of that spec: rewrite these files with another engine",
    )


def is_rewritable(entries: Iterable[ManifestEntry]) -> bool:
    """Return True if a manifest with these entries may be rewritten: all are data files without equality ids."""
    return all(is_data(e.data_file) and not e.data_file.equality_ids for e in entries)


class _DeleteManifestWriter(ManifestWriterV2):
    """pyiceberg's writer states `data` in the header and in the manifest list."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class KnownSpecs(Producer):
    """A base for pyiceberg's producers of snapshots, which only know the current schema."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        metadata = self._transaction.table_metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=spec,
            schema=schema_of(metadata, spec),
            output_file=self.new_manifest_output(),
            snapshot_id=self._snapshot_id,
            avro_compression=self._compression,
        )

    def new_delete_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        schema = schema_of(self._transaction.table_metadata, spec)
        return _DeleteManifestWriter(spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression)
