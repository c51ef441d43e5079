# SPDX-License-Identifier: Apache-2.0
"""Bounding the history of the tables that landings create: every commit adds a snapshot, and every later commit
rewrites them all.

Contract: only a table that asks for it (property ``lakecommit.keep-snapshots``, set on tables that landings create) is
trimmed, and only snapshots of the branch's own past: never the ledger, what came after it, what a branch or tag refers
to, or one of the newest that are to be kept. Data files are not touched: an append's files stay in all later snapshots.

Failure story: best effort. A request that fails, or whose outcome is unknown, is left; the next commit tries again. It
states where every branch and tag was, so that one that arrives late, after a rollback or another commit, does nothing:
expiring a snapshot would take the references to it along.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate, TableRequirement

from airflow_provider_lakecommit.committer.ledger import ancestry
from airflow_provider_lakecommit.committer.summary import has_ledger
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS, Tables

__all__ = ["trim_snapshots"]

_log = logging.getLogger(__name__)


def trim_snapshots(tables: Tables, table: str, branch: str = MAIN_BRANCH) -> int:
    """Expire the oldest snapshots of a branch, if there are a quarter more than the table asks for; returns how many.

    :raises TableError: the table does not exist
    :raises CatalogError: the catalog cannot be reached
    """
    loaded = tables.load(table)
    gone = _expirable(loaded, branch)
    if not gone:
        return 0
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=loaded.metadata.table_uuid),
        *_references(loaded),
    )
    update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [s.snapshot_id for s in gone]})
    try:
        after = tables.commit(loaded, requirements, (update,))
    except Exception as e:
        _log.warning("%s keeps %d old snapshots for now: %s", table, len(gone), tables.describe(e))
        return 0
    left = {s.snapshot_id for s in after.snapshots}
    for snapshot in gone:
        if snapshot.snapshot_id not in left:
            # A manifest list is of one snapshot alone, unlike the manifests in it.
            with suppress(Exception):
                loaded.io.delete(snapshot.manifest_list)
    return len(gone)


def _references(table: Table) -> Iterator[AssertRefSnapshotId]:
    for name, ref in table.metadata.refs.items():
        yield AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})


def _expirable(table: Table, branch: str) -> list[Snapshot]:
    text = table.metadata.properties.get(KEEP_SNAPSHOTS, "")
    line = list(ancestry(table.metadata, branch))
    ledger = next((n for n, s in enumerate(line) if has_ledger(s)), None)
    if not text.isdecimal() or ledger is None or len(line) <= int(text) * 5 // 4:
        return []
    refs = table.metadata.refs
    pinned = {ref.snapshot_id for ref in refs.values()}
    for name, ref in refs.items():
        if name != branch and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            # Another branch's past is not ours to cut: its ledger may be there.
            pinned |= {s.snapshot_id for s in ancestry(table.metadata, name)}
    return [s for s in line[max(int(text), ledger + 1) :] if s.snapshot_id not in pinned]
