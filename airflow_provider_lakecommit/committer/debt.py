# SPDX-License-Identifier: Apache-2.0
"""How much a table needs compaction, by its metadata alone.

Contract: pure. It uses the summary of the head and the ancestry of the branch: no manifest is read. The number of data
files that a table needs follows from its size. A partitioned table needs more: how many is known only after the first
compaction. Until then, it may seem to have more files than it needs.
"""

from __future__ import annotations

from math import ceil
from typing import Protocol

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION, TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.committer.ledger import ancestry
from airflow_provider_lakecommit.core import DUE, TableDebt
from airflow_provider_lakecommit.iceberg import KEEP_SNAPSHOTS

GOOD_ENOUGH = 64
"""A file of this part of the target size is no debt: it costs more to read than to open. Otherwise the first load of a
long topic, in files of one slice each, would wait for compactions.
"""


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
