# SPDX-License-Identifier: Apache-2.0
"""Whether the key columns of a table are still those by which its rows are unique, by the table's own history."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.ledger import LedgerState, landing_snapshots
from airflow_provider_lakecommit.committer.summary import SnapshotRecord
from airflow_provider_lakecommit.committer.summary_extras import SUPERSEDED
from airflow_provider_lakecommit.core import RESET_KEY
from airflow_provider_lakecommit.exceptions import LedgerError


def check_key_columns(table: str, metadata: TableMetadata, state: LedgerState, key: Sequence[str]) -> None:
    """Check that the columns of a key are those of the newest snapshot that looked for keys; if that has expired, those
    of the oldest landing snapshot since.

    :raises LedgerError: another column has the name of one of them now
    """
    last = _last_look(metadata, state, key)
    snapshot = None if last is None else metadata.snapshot_by_id(last.snapshot_id)
    before = None if snapshot is None or snapshot.schema_id is None else metadata.schema_by_id(snapshot.schema_id)
    if before is None:
        return
    then, now = (_ids(schema, key) for schema in (before, metadata.schema()))
    if others := [name for name in key if name in then and now.get(name, then[name]) != then[name]]:
        raise LedgerError(
            "LC3058",
            f"{table}: column {', '.join(others)} of the key was replaced by another column of this name, in which the "
            f"rows have other values, or none. `{RESET_KEY} SPEC` makes them unique by the new column; or rename the "
            "columns back",
        )


def _last_look(metadata: TableMetadata, state: LedgerState, key: Sequence[str]) -> SnapshotRecord | None:
    oldest = None
    for oldest in landing_snapshots(metadata, state.branch):
        if SUPERSEDED in oldest.extra:
            return oldest
    return oldest if any(s.covered and s.upsert_key == (*key,) for s in state.sections) else None


def _ids(schema: Schema, names: Sequence[str]) -> dict[str, int]:
    return {f.name: f.field_id for f in schema.fields if f.name in names}
