# SPDX-License-Identifier: Apache-2.0
"""A snapshot that removes files from a table and adds others, in one step.

Contract: the snapshot has operation ``overwrite``, or ``replace`` if the rows stay the same. Each manifest that lists a
file to remove is rewritten: its other entries keep their snapshot, sequence numbers and other values, the file's own
entry is marked as deleted by this snapshot. Other manifests are kept. Added files may have several partition specs;
each spec has its own manifest. A manifest with equality deletes is never rewritten: position delete files in it stay,
where they apply to nothing.

Failure story: if the head does not list a file to remove, or lists it twice, this is a :class:`TableError` before the
catalog is contacted: the caller has read another head. The table does not have written manifests until the request is
applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import _SnapshotProducer

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.ledger.manifests import KnownSpecs, is_rewritable, schema_of

if TYPE_CHECKING:
    Producer = _SnapshotProducer["OverwritingFiles"]
else:
    Producer = _SnapshotProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What a snapshot does besides adding data files: paths of data files and of position delete files to remove, and
    delete files to add. ``same_rows``: readers see the same rows as before.
    """

    removed: frozenset[str]
    removed_deletes: frozenset[str] = frozenset()
    deletes: tuple[DataFile, ...] = ()
    same_rows: bool = False


class OverwritingFiles(KnownSpecs, Producer):
    """pyiceberg's producer of snapshots, for files known by path."""

    def __init__(self, transaction: Transaction, rewrite: Rewrite, **options: Any) -> None:
        super().__init__(operation=Operation.OVERWRITE, transaction=transaction, io=transaction._table.io, **options)
        self._rewrite, self._removed = rewrite, rewrite.removed
        self._taken_out: list[DataFile] = []
        self._taken_deletes: list[DataFile] = []

    def _validate_concurrency(self) -> None:
        """Do nothing: the request asserts its head."""

    def _manifests(self) -> list[ManifestFile]:
        kept: list[ManifestFile] = []
        for manifest in self._existing_manifests():
            is_data = manifest.content == ManifestContent.DATA
            kept += self._without(manifest) if is_data else self._without_deletes(manifest)
        if len(self._taken_out) != len(self._removed) or {f.file_path for f in self._taken_out} != self._removed:
            raise TableError(
                "LC3020",
                f"{len(self._removed)} data files are to be replaced, but the current snapshot lists "
                f"{len(self._taken_out)} of them: another writer has changed the table, or a file is listed twice. "
                "Nothing was committed; try again",
            )
        return [*self._added(self._added_data_files), *self._added(self._rewrite.deletes, deletes=True), *kept]

    def _existing_manifests(self) -> list[ManifestFile]:
        parent = self._parent_snapshot_id
        snapshot = None if parent is None else self._transaction.table_metadata.snapshot_by_id(parent)
        found = [] if snapshot is None else snapshot.manifests(io=self._io)
        return [m for m in found if m.has_added_files() or m.has_existing_files()]

    def _without(self, manifest: ManifestFile) -> list[ManifestFile]:
        """Return a manifest without the files to remove: the same one if it lists none of them."""
        entries = self.fetch_manifest_entry(manifest)
        removed = [e for e in entries if e.data_file.file_path in self._removed]
        if not removed:
            return [manifest]
        if not is_rewritable(entries):
            raise TableError(
                "LC3021",
                f"manifest {manifest.manifest_path} lists {removed[0].data_file.file_path}, which is to be replaced, "
                "and equality deletes, which pyiceberg cannot write so that Spark can read them. Nothing was "
                "committed; rewrite the manifests of the table with another engine",
            )
        self._taken_out += (e.data_file for e in removed)
        return self._less(self.new_manifest_writer(self.spec(manifest.partition_spec_id)), entries, self._removed)

    def _without_deletes(self, manifest: ManifestFile) -> list[ManifestFile]:
        """Return a manifest without the position delete files to remove; one with equality deletes is unchanged."""
        out = self._rewrite.removed_deletes
        entries = self.fetch_manifest_entry(manifest) if out else []
        removed = [e.data_file for e in entries if e.data_file.file_path in out]
        if not removed or any(e.data_file.equality_ids for e in entries):
            return [manifest]
        self._taken_deletes += removed
        return self._less(self.new_delete_manifest_writer(self.spec(manifest.partition_spec_id)), entries, out)

    def _less(
        self, writer: ManifestWriter, entries: Iterable[ManifestEntry], out: frozenset[str]
    ) -> list[ManifestFile]:
        with writer:
            for entry in entries:
                if entry.data_file.file_path in out:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return [writer.to_manifest_file()]

    def _added(self, files: Iterable[DataFile], *, deletes: bool = False) -> list[ManifestFile]:
        by_spec: defaultdict[int, list[DataFile]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id].append(file)
        new, made = self.new_delete_manifest_writer if deletes else self.new_manifest_writer, []
        for spec_id, some in sorted(by_spec.items()):
            with new(self.spec(spec_id)) as writer:
                for file in some:
                    entry = ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                    writer.add(entry)
            made.append(writer.to_manifest_file())
        return made

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        specs = metadata.specs()
        name, default = (
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
        )
        collector = SnapshotSummaryCollector(partition_summary_limit=int(metadata.properties.get(name, default)))
        for file in (*self._added_data_files, *self._rewrite.deletes):
            spec = specs[file.spec_id]
            collector.add_file(data_file=file, partition_spec=spec, schema=schema_of(metadata, spec))
        for file in (*self._taken_out, *self._taken_deletes):
            spec = specs[file.spec_id]
            collector.remove_file(data_file=file, partition_spec=spec, schema=schema_of(metadata, spec))
        parent = self._parent_snapshot_id
        before = None if parent is None else metadata.snapshot_by_id(parent)
        summed = update_snapshot_summaries(
            summary=Summary(operation=self._operation, **collector.build(), **(snapshot_properties or {})),
            previous_summary=before.summary if before is not None else None,
        )
        # pyiceberg has no summary for the operation `replace`: use that of an overwrite.
        return Summary(Operation.REPLACE, **summed.additional_properties) if self._rewrite.same_rows else summed

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []
