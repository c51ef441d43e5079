# SPDX-License-Identifier: Apache-2.0
"""Files that were rolled back and that another writer added to the table again: found before their offsets are read, or
committed, a second time.

Contract: reads only. Manifests are read only if the metadata give reason to: another writer added files on top of the
ledger, and a landing snapshot with rows is off the branch, with ranges that the ledger lacks. Then the manifests of
both are read, and files are compared by path.

Failure story: files copied under other names look like any other writer's; files of an expired snapshot have no owner.
`verify` (:mod:`~airflow_provider_lakecommit.status.other_writers`) also finds what another writer added before the
newest landing snapshot, or adds during a commit request, and reports what is unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.committer.ledger import LedgerState, ancestry
from airflow_provider_lakecommit.committer.summary import SnapshotRecord, record_of
from airflow_provider_lakecommit.core import RESET_ASSERT, Coverage, attempt_of
from airflow_provider_lakecommit.exceptions import LedgerError


def check_not_brought_back(table: Table, state: LedgerState, name: str) -> None:
    """Refuse a table with rows that its ledger does not count, and that would be read again.

    :raises LedgerError: names snapshots, files, rows and ranges, and the remedies
    """
    foreign = _foreign(table, state)
    taken_back = _taken_back(table, state) if foreign else []
    if not taken_back:
        return
    try:
        here = {f.file_path: f for f in _files(table, table.metadata.snapshot_by_id(state.head_id or 0), foreign)}
        own = {path for path in here if attempt_of(path) is not None}
        for record in taken_back if own else ():
            source = table.metadata.snapshot_by_id(record.snapshot_id)
            if back := [here[f.file_path] for f in _files(table, source, {record.snapshot_id}) if f.file_path in own]:
                raise LedgerError("LC3007", _text(name, record, back, state))
    except LedgerError:
        raise
    except Exception:  # any error of a missing or corrupt manifest: `verify` names it
        return


def _foreign(table: Table, state: LedgerState) -> set[int]:
    """Return the foreign snapshots on top of the ledger, if one of them may have added files."""
    line = list(islice(ancestry(table.metadata, state.branch), state.foreign_since))
    adds = any(s.summary is None or s.summary.operation is not Operation.DELETE for s in line)
    return {s.snapshot_id for s in line} if adds else set()


def _taken_back(table: Table, state: LedgerState) -> list[SnapshotRecord]:
    """Return the landing snapshots with rows off the branch that have ranges which the ledger lacks."""
    there = {s.snapshot_id for s in ancestry(table.metadata, state.branch)}
    elsewhere = (record_of(s) for s in table.metadata.snapshots if s.snapshot_id not in there)
    return [r for r in elsewhere if r is not None and r.rows and r.branch == state.branch and _again(r, state)]


def _again(record: SnapshotRecord, state: LedgerState) -> Coverage:
    """Return the part of its ranges that would be read again."""
    section = state.section(record.landing, record.lane)
    return record.ranges - section.covered if section is not None else Coverage()


def _files(table: Table, snapshot: Snapshot | None, added_by: Collection[int]) -> Iterator[DataFile]:
    """Yield the files of a snapshot that were added by one of these."""
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.added_snapshot_id in added_by:
            for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if e.status is not ManifestEntryStatus.DELETED and e.snapshot_id in added_by:
                    yield e.data_file


def _text(name: str, record: SnapshotRecord, back: Collection[DataFile], state: LedgerState) -> str:
    return (
        f"{name}: another writer brought back {len(back)} files with {sum(f.record_count for f in back)} rows of "
        f"snapshot {record.snapshot_id} (landing {record.landing}, {record.lane}), which was rolled back. No ledger "
        f"counts them, so {_again(record, state)} would be landed a second time. Nothing is landed until you delete "
        f"these rows from the table, or confirm that they are in it: `{RESET_ASSERT} SPEC --table {name} --at "
        "TOPIC:PARTITION=OFFSET,…`"
    )
