# SPDX-License-Identifier: Apache-2.0
"""How much a table needs compaction, against the limits that its landing declares.

Contract: pure. :mod:`~airflow_provider_lakecommit.iceberg.ledger.compaction` reads the numbers from a table's metadata.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from airflow_provider_lakecommit.core.commands import MAINTAIN

DUE = 0.2
"""The share of the limit of files at which a run compacts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDebt:
    """``needed`` of the ``files`` of a table hold its ``bytes``; ``delete_files`` delete ``dead_rows`` of its ``rows``;
    ``snapshots`` were made since the last compaction of any engine, or since the history begins. ``compacted``: runs
    compact the table. ``share`` is the debt as a share of its limit: 1 and more asks for a compaction.
    ``due``: a run is to compact the table now.
    """

    files: int
    bytes: int
    needed: int
    delete_files: int = 0
    rows: int = 0
    dead_rows: int = 0
    snapshots: int = 0
    compacted: bool = False
    share: float = 0.0
    due: bool = False

    @property
    def defers(self) -> bool:
        """Return True if no window is planned before a compaction. That never applies where nothing compacts."""
        return self.compacted and self.share >= 2

    @property
    def remedy(self) -> str:
        """Return what clears it."""
        runs = "" if self.compacted else "; no run compacts it, see `maintain.compact`"
        return f"`{MAINTAIN} SPEC --yes` compacts them{runs}"

    def __str__(self) -> str:
        mean = f"{self.files} data files of {self.bytes / max(1, self.files) / 1e6:.1f} MB on average"
        dead = f", {self.delete_files} delete files with {self.dead_rows} rows" if self.delete_files else ""
        return f"{mean}, {self.needed} needed{dead}, {self.snapshots} snapshots since the last compaction"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "share": round(self.share, 3)}
