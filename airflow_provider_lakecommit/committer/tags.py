# SPDX-License-Identifier: Apache-2.0
"""Check that a catalog keeps the tags of commits.

Contract: a read after the commit detects a catalog that accepts a commit with a tag and drops the tag. If the newest
ledger was written for a tag that is missing again, :func:`check_tags` tests the catalog before another one is written:
with a tag of its own that adds no snapshot and is removed again. So a landing that retries for days leaves one
snapshot.

Failure story: a kill between the two requests leaves the tag :data:`PROBE`; nothing reads it.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from airflow_provider_lakecommit.committer.ledger import LedgerState, landing_snapshots, tag_name
from airflow_provider_lakecommit.committer.summary import SnapshotKind
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import Tables

PROBE = "lakecommit-asks-for-tags"


def no_tags(tables: Tables, identifier: str, tag: str) -> TableError:
    """Return the error. Without the tag, every later read would find a rollback, and void what is pending."""
    return TableError(
        "LC3039",
        f"{identifier}: catalog {tables.name} accepted a commit that sets tag {tag}, but the table has no such tag: "
        "the catalog stores branches only. The tag marks the newest ledger, so nothing can be landed through this "
        "catalog. Use a catalog, or a release of it, that stores tags (Iceberg's snapshot references). Nothing is "
        "lost: the first run after that voids pending slices and continues",
    )


def check_tags(tables: Tables, identifier: str, state: LedgerState) -> None:
    """Check, before a missing tag is created, that the newest ledger was written with one.

    :raises TableError: it was, and the catalog keeps none
    :raises CatalogError: the catalog is unreachable
    """
    table = tables.load(identifier)
    newest = next(landing_snapshots(table.metadata, state.branch), None)
    if state.tag_id is not None or newest is None or newest.kind not in (SnapshotKind.EPOCH, SnapshotKind.ORIGIN):
        return
    own = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    tag = {"ref-name": PROBE, "snapshot-id": newest.snapshot_id, "type": SnapshotRefType.TAG}
    try:
        tables.commit(table, own, (SetSnapshotRefUpdate.model_validate(tag),))
    except Exception:
        # Another commit, or an unreachable catalog: creating the tag will report it.
        return
    table = tables.load(identifier)
    if PROBE not in table.metadata.refs:
        raise no_tags(tables, identifier, tag_name(state.branch))
    with suppress(Exception):
        tables.commit(table, own, (RemoveSnapshotRefUpdate.model_validate({"ref-name": PROBE}),))
