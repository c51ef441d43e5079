# SPDX-License-Identifier: Apache-2.0
"""Manifests of every partition spec that a table has, even if a column of the spec was dropped, and few of them: each
append adds one, and every later commit and every reader reads the list of all.

Contract: a manifest is written by the current schema, or, if that lacks a column of the spec, by the newest one of the
table that has all of them: it gives the types of the partition values. :func:`is_rewritable` decides which manifests
may be rewritten: pyiceberg writes the ids of equality deletes with a type that Spark cannot read, so a manifest with
such an entry must stay as it is, whatever kind its list states.

Manifests are merged in tiers, by the number of listed files: :data:`TIER` of about one size become one of the next, up
to :data:`WHOLE` files. So a file's entry is rewritten a few times in its life, and a table with millions of commits has
a few hundred manifests. An entry keeps its snapshot, sequence number and other values. Not merged are manifests of
deletes, with entries of deletes or with removed entries, all of format version 3 (where a list assigns row ids), and
all of a table with ``commit.manifest-merge.enabled = false``.

Failure story: a spec without a schema in the metadata that has all its columns is a :class:`TableError`. The table does
not have merged manifests until the request is applied; they stay unchanged, and older snapshots list them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import _FastAppendFiles, _SnapshotProducer

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.data_files import is_data

TIER = 32
WHOLE = TIER**3
"""Files in a manifest of the target size: some megabytes."""
_LAST_VERSION = 2

if TYPE_CHECKING:
    Producer = _SnapshotProducer[Any]
else:
    Producer = object


def schema_of(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return a schema that has all columns of a spec."""
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


class MergingAppend(KnownSpecs, _FastAppendFiles):
    """pyiceberg's fast append, which merges the manifests of its parent if they are many."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        metadata = self._transaction.table_metadata
        enabled = metadata.properties.get("commit.manifest-merge.enabled", "true").lower()
        if enabled == "false" or metadata.format_version > _LAST_VERSION:
            return manifests
        old = [m for m in manifests if m.added_snapshot_id != self._snapshot_id]
        out = manifests
        for some in tiers_to_merge(old):
            plain = [(m, e) for m in some if is_rewritable(e := self.fetch_manifest_entry(m))]
            if len(plain) >= TIER:
                paths = {m.manifest_path for m, _ in plain}
                out = [*(m for m in out if m.manifest_path not in paths), self._merged(plain)]
        return out

    def _merged(self, some: list[tuple[ManifestFile, list[ManifestEntry]]]) -> ManifestFile:
        with self.new_manifest_writer(spec=self.spec(some[0][0].partition_spec_id)) as writer:
            for _, entries in some:
                for entry in entries:
                    writer.existing(entry)
        return writer.to_manifest_file()


def tiers_to_merge(manifests: Iterable[ManifestFile]) -> list[list[ManifestFile]]:
    """Return the groups of manifests that become one each."""
    tiers: defaultdict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
    for m in manifests:
        files = (m.added_files_count or 0) + (m.existing_files_count or 0)
        if m.content is ManifestContent.DATA and not m.deleted_files_count and 0 < files < WHOLE:
            tiers[m.partition_spec_id, _tier(files)].append(m)
    return [some for some in tiers.values() if len(some) >= TIER]


def _tier(files: int) -> int:
    tier = 0
    while files >= TIER:
        files, tier = files // TIER, tier + 1
    return tier
