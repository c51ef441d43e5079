# SPDX-License-Identifier: Apache-2.0
"""The live files of a branch's head: data files, and the delete files that apply to them.

Contract: a data manifest never changes, so :class:`HeadReader` reads each one once for all heads; delete manifests are
read each time.

Failure story: unreadable manifests are a :class:`StorageError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.manifest import ManifestContent, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import StorageError
from airflow_provider_lakecommit.iceberg.data_files import is_data
from airflow_provider_lakecommit.iceberg.ledger.manifests import is_rewritable
from airflow_provider_lakecommit.iceberg.parquet.deletes import Deletes, deletes_of
from airflow_provider_lakecommit.iceberg.storage import trouble_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The data files and delete files of one head. ``fixed`` files stay: their manifests have equality deletes."""

    entries: Mapping[str, ManifestEntry]
    deletes: Deletes
    fixed: frozenset[str] = frozenset()

    @property
    def idle_deletes(self) -> frozenset[str]:
        """Return the position delete files that apply to no data file: some engines leave them behind."""
        applied = {d.file_path for e in self.entries.values() for d in self.deletes.of(e)}
        return frozenset(f.file_path for f in self.deletes.files) - applied - self.deletes.fixed

    def can_be_rewritten(self, entry: ManifestEntry, specs: Mapping[int, PartitionSpec]) -> bool:
        return entry.data_file.file_path not in self.fixed and self.deletes.equality_of(entry, specs) is None


class HeadReader:
    """Reads heads of one table, one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._listed: dict[str, list[ManifestEntry]] = {}

    def read(self, table: Table, branch: str) -> Head:
        """Return the files of a branch's head.

        :raises StorageError: a manifest cannot be read
        """
        snapshot = table.metadata.snapshot_by_name(branch)
        return self.at(table, None if snapshot is None else snapshot.snapshot_id)

    def at(self, table: Table, snapshot_id: int | None) -> Head:
        """Return the files of a snapshot; of ``None``, no files.

        :raises StorageError: a manifest cannot be read
        """
        snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
        try:
            manifests = [] if snapshot is None else snapshot.manifests(table.io)
            data = [m for m in manifests if m.content == ManifestContent.DATA]
            for m in data:
                if m.manifest_path not in self._listed:
                    self._listed[m.manifest_path] = m.fetch_manifest_entry(table.io, discard_deleted=True)
            self._listed = {m.manifest_path: self._listed[m.manifest_path] for m in data}
            listed = list(self._listed.values())
            deletes = deletes_of(table, manifests, (e for some in listed for e in some))
        except OSError as e:
            raise StorageError(
                "LC7716", f"the manifests of {self._name} cannot be read ({trouble_of(table.io, e)}): check the storage"
            ) from None
        return Head(
            entries={e.data_file.file_path: e for some in listed for e in some if is_data(e.data_file)},
            deletes=deletes,
            fixed=frozenset(e.data_file.file_path for some in listed if not is_rewritable(some) for e in some),
        )
