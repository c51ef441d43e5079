# SPDX-License-Identifier: Apache-2.0
"""An append that keeps the list of manifests short: each commit adds one, and every later commit and every reader reads
the list of all.

Contract: manifests are merged in tiers, by the number of listed files: :data:`TIER` of about one size become one of the
next, up to :data:`WHOLE` files. So a file's entry is rewritten a few times in its life, and a table with millions of
commits has a few hundred manifests. An entry keeps its snapshot, sequence number and other values. Not merged are
manifests of deletes, with entries of deletes or with removed entries, all of format version 3 (where a list assigns row
ids), and all of a table with ``commit.manifest-merge.enabled = false``.

Failure story: as of any append: the table does not have its manifests until the request is applied. The merged
manifests stay unchanged; older snapshots list them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.update.snapshot import _FastAppendFiles

from airflow_provider_lakecommit.committer.manifest_writer import KnownSpecs, is_rewritable

TIER = 32
WHOLE = TIER**3
"""Files in a manifest of the target size: some megabytes."""
_LAST_VERSION = 2


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
