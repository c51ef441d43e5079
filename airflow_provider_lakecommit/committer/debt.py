# SPDX-License-Identifier: Apache-2.0
"""How much a table needs compaction, by its metadata alone.

Contract: pure. Everything is in the summary of the head and in the ancestry of the branch: no manifest is read. How
many data files a table needs follows from its size; partitions need more, and how many is known once a compaction left
so many. So a table without a compaction in its history may seem to have more files than it needs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.committer.ledger import ancestry

__all__ = ["MOST_DEAD", "MOST_FILES", "MOST_SNAPSHOTS", "TableDebt", "debt_of"]

MOST_FILES, MOST_DEAD, MOST_SNAPSHOTS = 500, 0.1, 200
"""Limits: data files beyond those that a table needs, the share of deleted rows, and snapshots since a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDebt:
    """``needed`` of the ``files`` of a table hold its ``bytes``; ``delete_files`` delete ``dead_rows`` of its ``rows``;
    ``snapshots`` were made since the last compaction of any engine, or since the history begins.
    """

    files: int
    bytes: int
    needed: int
    delete_files: int
    rows: int
    dead_rows: int
    snapshots: int

    @property
    def share(self) -> float:
        """The debt as a share of its limit: 1 and more asks for a compaction."""
        dead = self.dead_rows / self.rows / MOST_DEAD if self.rows else 0.0
        # Many snapshots of few files hurt nobody.
        files = (self.files - self.needed) / MOST_FILES
        return max(files, dead, self.snapshots / MOST_SNAPSHOTS if files >= MOST_SNAPSHOTS / MOST_FILES else 0.0)

    def __str__(self) -> str:
        mean = f"{self.files} data files of {self.bytes / max(1, self.files) / 1e6:.1f} MB on average"
        dead = f", {self.delete_files} delete files with {self.dead_rows} rows" if self.delete_files else ""
        return f"{mean}, {self.needed} needed{dead}, {self.snapshots} snapshots since the last compaction"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "share": round(self.share, 3)}


def debt_of(metadata: TableMetadata, branch: str) -> TableDebt | None:
    """Return the debt of a branch's head; ``None`` if its summary states no totals."""
    line = list(ancestry(metadata, branch))
    if not line or _total(line[0], "data-files") is None:
        return None
    since = next((n for n, s in enumerate(line) if s.summary and s.summary.operation is Operation.REPLACE), len(line))
    left = _total(line[since], "data-files") if since < len(line) else None
    files, size = _total(line[0], "data-files") or 0, _total(line[0], "files-size") or 0
    target = metadata.properties.get(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, "")
    wanted = int(target) if target.isdecimal() else TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT
    return TableDebt(
        files=files,
        bytes=size,
        needed=min(files, max(left or 0, ceil(size / max(1, wanted)))),
        delete_files=_total(line[0], "delete-files") or 0,
        rows=_total(line[0], "records") or 0,
        dead_rows=_total(line[0], "position-deletes") or 0,
        snapshots=since,
    )


def _total(snapshot: Snapshot, what: str) -> int | None:
    text = snapshot.summary.additional_properties.get(f"total-{what}", "") if snapshot.summary else ""
    return int(text) if text.isdecimal() else None
