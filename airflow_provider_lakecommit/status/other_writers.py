# SPDX-License-Identifier: Apache-2.0
"""What other writers did to the rows of a table, for `verify`: a landing's sums add up in any case.

Uses the sums that engines write into the summaries of their snapshots (none if missing), because files missing from the
metadata have no counts. Removing rows is legitimate, so it is a note, with numbers. A compaction (``replace``) has the
same rows before and after, unless it applies delete files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.snapshots import Operation, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """The change of one snapshot. ``marked`` are rows in position deletes, ``matched`` the number of equality deletes,
    each of which may hide any number of rows; ``same`` is True if the rows should be unchanged.
    """

    added: int = 0
    taken_out: int = 0
    marked: int = 0
    matched: int = 0
    same: bool = False

    @property
    def fewer(self) -> int:
        """Return the number of rows that the table lost, as far as known."""
        put_back = self.added if self.taken_out else 0
        return max(0, self.taken_out + self.marked - put_back)

    @property
    def wrong(self) -> bool:
        """Return True if the rows differ from the expected ones."""
        return self.same and self.added != self.taken_out

    def __str__(self) -> str:
        changes = [f"it removed {self.taken_out} rows and added {self.added}"] if self.taken_out else []
        changes += [f"it added {self.added} rows"] if self.added and not self.taken_out else []
        changes += [f"it marked {self.marked} rows as deleted"] if self.marked else []
        changes += [f"it added {self.matched} equality deletes, for all rows that they match"] if self.matched else []
        if self.wrong:
            return f"it replaced {self.taken_out} rows by {self.added}, but a compaction changes none"
        return "" if self.same else "; ".join(changes)


def row_change(snapshot: Snapshot) -> RowChange:
    if snapshot.summary is None:
        return RowChange()
    sums = snapshot.summary.additional_properties
    deletes = ("total-delete-files", "removed-delete-files", "added-delete-files")
    return RowChange(
        added=_sum(sums, "added-records"),
        taken_out=_sum(sums, "deleted-records"),
        marked=_sum(sums, "added-position-deletes"),
        matched=_sum(sums, "added-equality-deletes"),
        same=snapshot.summary.operation is Operation.REPLACE and not any(_sum(sums, key) for key in deletes),
    )


def live_rows(snapshot: Snapshot) -> int | None:
    """Return the number of live rows by a snapshot's own summary; ``None``: unknown."""
    sums = snapshot.summary.additional_properties if snapshot.summary else {}
    if "total-records" not in sums or _sum(sums, "total-equality-deletes"):
        return None
    return _sum(sums, "total-records") - _sum(sums, "total-position-deletes")


def _sum(sums: Mapping[str, str], key: str) -> int:
    text = sums.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else 0
