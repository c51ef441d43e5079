# SPDX-License-Identifier: Apache-2.0
"""Bound the history of the tables that landings create: every commit adds a snapshot, and every later commit rewrites
them all.

Contract: a table with the property ``lakecommit.keep-snapshots`` (set on tables that landings create) is trimmed to
that number; a continuous landing expires its own old snapshots in any table, and a user may expire all old ones. Only
snapshots of the branch's own past are expired: never the ledger or later ones, a snapshot with a branch or tag, one to
keep, or one of an audited branch that ``main`` lacks: through these, ``main`` moves there. Files that a snapshot
removed, as a compaction does, are deleted when no older snapshot is left anywhere in the table; manifests, when no
snapshot lists them.

Failure story: best effort. A request that fails, or whose outcome is unknown, is left; the next commit tries again. It
asserts the positions of all branches and tags, so that one that arrives late, after a rollback or another commit, does
nothing: expiring a snapshot would also remove the references to it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from itertools import dropwhile, takewhile

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement

from airflow_provider_lakecommit.core import data_roots, path_problem
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS, Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry
from airflow_provider_lakecommit.iceberg.ledger.stage import at_ref
from airflow_provider_lakecommit.iceberg.ledger.summary import has_ledger, record_of

MOST_READ = 50
"""Snapshots whose manifest lists are read to find unlisted manifests; with more of them nothing is deleted."""
_log = logging.getLogger(__name__)


def trim_snapshots(tables: Tables, table: str, branch: str = MAIN_BRANCH, *, audited: bool = False) -> int:
    """Expire the oldest snapshots of a branch, if it exceeds the table's number by a quarter; returns how many.

    :param audited: ``main`` takes publications from the branch
    :raises TableError: the table does not exist
    :raises CatalogError: the catalog is unreachable
    """
    loaded = tables.load(table)
    text = loaded.metadata.properties.get(KEEP_SNAPSHOTS, "")
    line = list(ancestry(loaded.metadata, branch))
    if not text.isdecimal() or len(line) <= int(text) * 5 // 4:
        return 0
    newest = {s.snapshot_id for s in line[: int(text)]}
    expirable = [s for s in _free(loaded, branch, line, audited) if s.snapshot_id not in newest]
    return _expire(tables, loaded, table, branch, expirable)


def old_snapshots(
    loaded: Table, branch: str, *, before_ms: int, landing: str | None = None, keep: int = 0, audited: bool = False
) -> list[Snapshot]:
    """Return the snapshots of a branch's own past that are older than a time and may be expired.

    :param landing: only those of this landing
    :param keep: number of the branch's newest snapshots to keep, whatever their age
    :param audited: ``main`` takes publications from the branch
    """
    line = list(ancestry(loaded.metadata, branch))
    newest = {s.snapshot_id for s in line[:keep]}
    old = (
        s for s in _free(loaded, branch, line, audited) if s.timestamp_ms < before_ms and s.snapshot_id not in newest
    )
    if landing is None:
        return list(old)
    return [s for s in old if (record := record_of(s)) is not None and record.landing == landing]


def expire_older(
    tables: Tables,
    table: str,
    branch: str,
    *,
    before_ms: int,
    landing: str | None = None,
    keep: int = 0,
    audited: bool = False,
) -> int:
    """Expire :func:`old_snapshots`, also in a table without the property; returns how many.

    :raises TableError: the table does not exist
    :raises CatalogError: the catalog is unreachable
    """
    loaded = tables.load(table)
    old = old_snapshots(loaded, branch, before_ms=before_ms, landing=landing, keep=keep, audited=audited)
    return _expire(tables, loaded, table, branch, old)


def _expire(tables: Tables, loaded: Table, table: str, branch: str, expired: list[Snapshot]) -> int:
    if not expired:
        return 0
    references = (at_ref(name, ref.snapshot_id) for name, ref in loaded.metadata.refs.items())
    needs: tuple[TableRequirement, ...] = (AssertTableUUID(uuid=loaded.metadata.table_uuid), *references)
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [s.snapshot_id for s in expired]})
    try:
        after = tables.commit(loaded, needs, (update,))
    except Exception as e:
        _log.warning("%s: could not expire %d old snapshots: %s", table, len(expired), tables.describe(e))
        return 0
    left = {s.snapshot_id for s in after.snapshots}
    with suppress(Exception):
        _delete(loaded.io, after, branch, [s for s in expired if s.snapshot_id not in left])
    return len(expired)


def _delete(io: FileIO, after: TableMetadata, branch: str, expired: list[Snapshot]) -> None:
    """Delete the manifest lists of expired snapshots, and manifests that no snapshot lists any more.

    An append's merged manifest is in no later snapshot of the line; so only snapshots as old as the expired ones, the
    oldest younger one of the line, and other lines can list it.
    """
    newest = max(map(_sequence, expired))
    replaced = _replaced_files(io, after, branch, expired)
    line = {s.snapshot_id: s for s in ancestry(after, branch)}
    younger = sorted((s for s in line.values() if _sequence(s) > newest), key=_sequence)
    others = [s for s in after.snapshots if _sequence(s) <= newest or s.snapshot_id not in line]
    pinned = [s for ref in after.refs.values() if (s := after.snapshot_by_id(ref.snapshot_id)) is not None]
    remaining = {s.snapshot_id: s for s in (*younger[:1], *others, *pinned)}
    listed = [m.manifest_path for s in expired for m in s.manifests(io)] if len(remaining) <= MOST_READ else []
    kept = {m.manifest_path for s in remaining.values() for m in s.manifests(io)} if listed else set()
    for path in {*replaced, *(s.manifest_list for s in expired), *(p for p in listed if p not in kept)}:
        with suppress(Exception):
            io.delete(path)


def _replaced_files(io: FileIO, after: TableMetadata, branch: str, expired: list[Snapshot]) -> set[str]:
    """Return the files that no snapshot has any more: removed by the expired snapshots or by the oldest one left.

    All other snapshots must be later: another branch, or a tag in between, may have the files. Files outside the
    table's data folders may belong to another table, as may all files of a table with `gc.enabled=false`.
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
    # Another writer may have added a file again; landings never do.
    head = after.snapshot_by_name(branch)
    there = (s for s in after.snapshots if s == head or not has_ledger(s)) if paths else ()
    manifests = {m.manifest_path: m for s in there for m in s.manifests(io)}.values()
    return paths - {e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(io, discard_deleted=True)}


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _free(table: Table, branch: str, line: list[Snapshot], audited: bool) -> list[Snapshot]:
    """Return the unneeded snapshots of a branch's past: older than the ledger, and no ancestor of a branch or tag."""
    ledger = next((n for n, s in enumerate(line) if has_ledger(s)), None)
    if ledger is None:
        return []
    refs = table.metadata.refs
    pinned = {ref.snapshot_id for ref in refs.values()}
    if audited and (main := refs.get(MAIN_BRANCH)):
        published = dropwhile(lambda s: s.snapshot_id != main.snapshot_id, line)
        known = next(filter(has_ledger, published), None)
        pinned |= {s.snapshot_id for s in takewhile(lambda s: s is not known, line)}
        pinned |= set() if known is None else {known.snapshot_id}
    for name, ref in refs.items():
        if name not in (branch, MAIN_BRANCH if audited else branch) and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            # Another branch's past may have its ledger.
            pinned |= {s.snapshot_id for s in ancestry(table.metadata, name)}
    return [s for s in line[ledger + 1 :] if s.snapshot_id not in pinned]
