# SPDX-License-Identifier: Apache-2.0
"""Compaction: how much a table needs it, and its snapshot: the same rows in other files, with the ledger of the table.

Contract: :func:`debt_of` uses the summary of the head and the ancestry of the branch: no manifest is read. The number
of data files that a table needs follows from its size. A partitioned table needs more: how many is known only after
the first compaction. Until then, it may seem to have more files than it needs.

The files to remove are chosen on the head that the request asserts. The ledger stays the same, and so does the coverage
of every landing. A compaction never clears a rollback: a table whose ledger is not present is refused.
:class:`Compacted` is written to the summary and read back unchanged, so that `verify` can compare rows in with rows out
and deleted ones.

Failure story: as of any compare-and-swap, see :mod:`~airflow_provider_lakecommit.iceberg.ledger.swap`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from typing import Any, Protocol
from uuid import UUID

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION, TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.control import CORRUPTION, bounded_json, count
from airflow_provider_lakecommit.core import DUE, LAND, TableDebt
from airflow_provider_lakecommit.exceptions import LedgerError, WireError
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS, Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState, ancestry, read_ledger
from airflow_provider_lakecommit.iceberg.ledger.stage import Attempt, Change, stage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.iceberg.ledger.swap import Swapped, compare_and_swap, ledger_change

COMPACTED = "compacted"
"""Extra key of a snapshot: the numbers of a compaction, as JSON."""
GOOD_ENOUGH = 64
"""A file of this part of the target size is no debt: it costs more to read than to open. Otherwise the first load of a
long topic, in files of one slice each, would wait for compactions.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """Numbers of a compaction. ``rows_in`` are the record counts of the removed files; ``dead_rows`` of them were
    deleted by position deletes and are in no file of ``rows_out``. ``moved_rows`` were deleted while their file was
    rewritten: a new delete file names them. ``bytes_in`` and ``bytes_out`` are sizes of data files.
    """

    rows_in: int = 0
    rows_out: int = 0
    dead_rows: int = 0
    moved_rows: int = 0
    files_in: int = 0
    files_out: int = 0
    deletes_in: int = 0
    deletes_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Compacted)})


def compacted_of(record: SnapshotRecord) -> Compacted | None:
    """Return the numbers of a compaction; ``None`` for another snapshot, or if they are corrupt."""
    if record.kind is not SnapshotKind.COMPACT:
        return None
    try:
        found: Any = bounded_json(record.extra[COMPACTED], parts=64)
        return Compacted(**{f.name: count(found.get(f.name, 0)) for f in fields(Compacted)})
    except (*CORRUPTION, WireError):
        return None


def require_present(state: LedgerState, table: str) -> None:
    """:raises LedgerError: the ledger of the table is absent, or a landing must resolve it first"""
    if state.condition is not Condition.PRESENT:
        why = f" ({state.reason})" if state.reason else ""
        raise LedgerError(
            "LC3043", f"{table}: its ledger is {state.condition}{why}; nothing was compacted. Run `{LAND} SPEC` first"
        )


def compact_table(
    tables: Tables,
    table: str,
    table_uuid: UUID,
    *,
    record: SnapshotRecord,
    decide: Callable[[Table], Change[Compacted] | None],
    staging: Callable[[Attempt], None],
) -> Swapped[Compacted]:
    """Commit a compaction.

    :param record: of its snapshot, without numbers
    :param decide: called with each head; returns the new data files in place of others, ``None`` ends the call
    :param staging: takes each request before it is sent
    :raises LedgerError: the table has no ledger, was rolled back, or was recreated
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable
    """

    def change(loaded: Table) -> Change[Compacted] | None:
        state = read_ledger(loaded.metadata, record.branch)
        if loaded.metadata.table_uuid != table_uuid:
            raise LedgerError("LC3042", f"{table} was dropped and recreated while it was compacted: run it again")
        require_present(state, table)
        decided = decide(loaded)
        if decided is None:
            return None
        own = replace(record, extra={COMPACTED: json.dumps(asdict(decided.why), separators=(",", ":"))})
        return replace(decided, summary=ledger_change(table, state, own, state.sections, None).summary)

    def staged(loaded: Table, on: str, made: Change[Any]) -> Attempt:
        attempt = stage(loaded, on, made)
        staging(attempt)
        return attempt

    return compare_and_swap(tables, table, record.branch, change, staging=staged)


class Limits(Protocol):
    """The section ``maintain`` of a landing."""

    @property
    def compact(self) -> bool | None: ...
    @property
    def max_files(self) -> int: ...
    @property
    def max_dead(self) -> float: ...
    @property
    def max_snapshots(self) -> int: ...


def debt_of(metadata: TableMetadata, branch: str, limits: Limits) -> TableDebt | None:
    """Return the debt of a branch's head; ``None`` if its summary states no totals."""
    line = list(ancestry(metadata, branch))
    if not line or _total(line[0], "data-files") is None:
        return None
    since = next((n for n, s in enumerate(line) if s.summary and s.summary.operation is Operation.REPLACE), len(line))
    left = _total(line[since], "data-files") if since < len(line) else None
    files, size = _total(line[0], "data-files") or 0, _total(line[0], "files-size") or 0
    target = metadata.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, "")
    target_size = int(target) if target.isdecimal() else TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
    needed = min(files, max(left or 0, ceil(size * GOOD_ENOUGH / max(1, target_size))))
    rows, dead = _total(line[0], "records") or 0, _total(line[0], "position-deletes") or 0
    # Many snapshots of few files are harmless.
    snapshots = since / limits.max_snapshots if files - needed >= limits.max_snapshots else 0.0
    crowding = max((files - needed) / limits.max_files, snapshots)
    deletion = dead / max(1, rows) / limits.max_dead
    # Files with equality deletes are left alone.
    able = metadata.format_version <= SUPPORTED_TABLE_FORMAT_VERSION and not _total(line[0], "equality-deletes")
    compacted = able and (KEEP_SNAPSHOTS in metadata.properties if limits.compact is None else limits.compact)
    return TableDebt(
        files=files,
        bytes=size,
        needed=needed,
        delete_files=_total(line[0], "delete-files") or 0,
        rows=rows,
        dead_rows=dead,
        snapshots=since,
        compacted=compacted,
        share=max(crowding, deletion),
        # A file is rewritten from half the limit of deleted rows on, and some file has as many as the table.
        due=compacted and (crowding >= DUE or deletion >= 1 / 2),
    )


def _total(snapshot: Snapshot, what: str) -> int | None:
    text = snapshot.summary.additional_properties.get(f"total-{what}", "") if snapshot.summary else ""
    return int(text) if text.isdecimal() else None
