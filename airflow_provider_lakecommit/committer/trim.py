# SPDX-License-Identifier: Apache-2.0
"""Bounding the history of the tables that landings create: every commit adds a snapshot, and every later commit
rewrites them all.

Contract: a table that asks for it (property ``lakecommit.keep-snapshots``, set on tables that landings create) is
trimmed to so many, of any table a landing that follows expires its own after a time, and a person may expire all that
are old. Only snapshots of the branch's own past go: never the ledger, what came after it, what a branch or tag refers
to, or one that is to be kept. Files that a snapshot took out, as a compaction does, go when no older snapshot is left,
anywhere in the table. Manifests go when no snapshot lists them.

Failure story: best effort. A request that fails, or whose outcome is unknown, is left; the next commit tries again. It
states where every branch and tag was, so that one that arrives late, after a rollback or another commit, does nothing:
expiring a snapshot would take the references to it along.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement

from airflow_provider_lakecommit.committer.ledger import ancestry
from airflow_provider_lakecommit.committer.summary import has_ledger, record_of
from airflow_provider_lakecommit.core import data_roots, path_problem
from airflow_provider_lakecommit.iceberg import KEEP_SNAPSHOTS, Tables

MOST_READ = 50
"""Snapshots whose manifest lists are read to know what nobody lists any more; with more of them nothing is deleted."""
_log = logging.getLogger(__name__)


def trim_snapshots(tables: Tables, table: str, branch: str = MAIN_BRANCH) -> int:
    """Expire the oldest snapshots of a branch, if there are a quarter more than the table asks for; returns how many.

    :raises TableError: the table does not exist
    :raises CatalogError: the catalog cannot be reached
    """
    loaded = tables.load(table)
    return _expire(tables, loaded, table, branch, _expirable(loaded, branch))


def old_snapshots(
    loaded: Table, branch: str, *, before_ms: int, landing: str | None = None, keep: int = 0
) -> list[Snapshot]:
    """The snapshots of a branch's own past that are older than a time and may be expired.

    :param landing: only those of this landing
    :param keep: so many of the branch's newest stay, however old
    """
    line = list(ancestry(loaded.metadata, branch))
    newest = {s.snapshot_id for s in line[:keep]}
    old = (s for s in _free(loaded, branch, line) if s.timestamp_ms < before_ms and s.snapshot_id not in newest)
    if landing is None:
        return list(old)
    return [s for s in old if (record := record_of(s)) is not None and record.landing == landing]


def expire_older(
    tables: Tables, table: str, branch: str, *, before_ms: int, landing: str | None = None, keep: int = 0
) -> int:
    """Expire :func:`old_snapshots`, whether the table asks for it or not; returns how many.

    :raises TableError: the table does not exist
    :raises CatalogError: the catalog cannot be reached
    """
    loaded = tables.load(table)
    old = old_snapshots(loaded, branch, before_ms=before_ms, landing=landing, keep=keep)
    return _expire(tables, loaded, table, branch, old)


def _expire(tables: Tables, loaded: Table, table: str, branch: str, expired: list[Snapshot]) -> int:
    if not expired:
        return 0
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=loaded.metadata.table_uuid),
        *_references(loaded),
    )
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [s.snapshot_id for s in expired]})
    try:
        after = tables.commit(loaded, requirements, (update,))
    except Exception as e:
        _log.warning("%s: could not expire %d old snapshots: %s", table, len(expired), tables.describe(e))
        return 0
    left = {s.snapshot_id for s in after.snapshots}
    with suppress(Exception):
        _delete(loaded.io, after, branch, [s for s in expired if s.snapshot_id not in left])
    return len(expired)


def _delete(io: FileIO, after: TableMetadata, branch: str, expired: list[Snapshot]) -> None:
    """Remove the manifest lists of snapshots that are gone, and the manifests that nobody lists any more.

    A manifest that an append has merged is in no later snapshot of the line; so those that are left are in what is as
    old as the expired ones, in the oldest that is not, and in other lines.
    """
    newest = max(map(_sequence, expired))
    replaced = _replaced_files(io, after, branch, expired)
    younger = sorted((s for s in after.snapshots if _sequence(s) > newest), key=_sequence)
    line = {s.snapshot_id for s in ancestry(after, branch)}
    others = [s for s in after.snapshots if _sequence(s) <= newest or s.snapshot_id not in line]
    pinned = [s for ref in after.refs.values() if (s := after.snapshot_by_id(ref.snapshot_id)) is not None]
    remaining = {s.snapshot_id: s for s in (*younger[:1], *others, *pinned)}
    listed = [m.manifest_path for s in expired for m in s.manifests(io)] if len(remaining) <= MOST_READ else []
    kept = {m.manifest_path for s in remaining.values() for m in s.manifests(io)} if listed else set()
    for path in {*replaced, *(s.manifest_list for s in expired), *(p for p in listed if p not in kept)}:
        with suppress(Exception):
            io.delete(path)


def _replaced_files(io: FileIO, after: TableMetadata, branch: str, expired: list[Snapshot]) -> set[str]:
    """Return the files that no snapshot has any more: those that the expired ones, or the oldest that is left, removed.

    Whatever else is left must come later: another branch, or a tag in between, may have the files. Files that lie
    elsewhere than the data of the table may be another table's, and so may all of one that says `gc.enabled=false`.
    """
    oldest = min(after.snapshots, key=_sequence)
    line = {s.snapshot_id for s in ancestry(after, branch)}
    kept = after.properties.get("gc.enabled", "true").lower() == "false"
    if kept or any(s.snapshot_id not in line for s in after.snapshots):
        return set()
    last = [s for s in (*expired, oldest) if _sequence(s) <= _sequence(oldest)]
    took = [s for s in last if s.summary is not None and s.summary.operation is not Operation.APPEND]
    paths = {
        entry.data_file.file_path
        for snapshot in took
        for manifest in snapshot.manifests(io)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id == snapshot.snapshot_id
    }
    roots = data_roots(after.location, after.properties)
    paths = {path for path in paths if path_problem(path, roots) is None}
    # Another writer may have brought a file back; landings never do.
    head = after.snapshot_by_name(branch)
    there = (s for s in after.snapshots if s == head or not has_ledger(s)) if paths else ()
    manifests = {m.manifest_path: m for s in there for m in s.manifests(io)}.values()
    return paths - {e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(io, discard_deleted=True)}


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _references(table: Table) -> Iterator[AssertRefSnapshotId]:
    for name, ref in table.metadata.refs.items():
        yield AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})


def _expirable(table: Table, branch: str) -> list[Snapshot]:
    text = table.metadata.properties.get(KEEP_SNAPSHOTS, "")
    line = list(ancestry(table.metadata, branch))
    if not text.isdecimal() or len(line) <= int(text) * 5 // 4:
        return []
    newest = {s.snapshot_id for s in line[: int(text)]}
    return [s for s in _free(table, branch, line) if s.snapshot_id not in newest]


def _free(table: Table, branch: str, line: list[Snapshot]) -> list[Snapshot]:
    """Those of a branch's own past that nothing needs: older than the ledger, and on the way of no branch or tag."""
    ledger = next((n for n, s in enumerate(line) if has_ledger(s)), None)
    if ledger is None:
        return []
    refs = table.metadata.refs
    pinned = {ref.snapshot_id for ref in refs.values()}
    for name, ref in refs.items():
        if name != branch and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            # Another branch's past is not ours to cut: its ledger may be there.
            pinned |= {s.snapshot_id for s in ancestry(table.metadata, name)}
    return [s for s in line[ledger + 1 :] if s.snapshot_id not in pinned]
