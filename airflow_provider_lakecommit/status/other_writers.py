# SPDX-License-Identifier: Apache-2.0
"""What other writers did to the rows of a table, for `verify`: a landing's sums add up whatever they do.

Contract: pure; by the sums that engines write into the summaries of their snapshots, since files that are gone from the
metadata tell nothing. To take rows out is nobody's fault, so it is a note, with numbers. A compaction (``replace``) has
the same rows before and after, unless it works delete files off: one that has fewer or more is wrong.

Failure story: a sum that is missing, or is no number, counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.snapshots import Operation, Snapshot

__all__ = ["RowChange", "row_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """Of one snapshot. ``marked`` are rows that position deletes name, ``matched`` the number of equality deletes, each
    of which may hide any number of rows; ``same`` tells that the rows should be what they were.
    """

    added: int = 0
    taken_out: int = 0
    marked: int = 0
    matched: int = 0
    same: bool = False

    @property
    def fewer(self) -> int:
        """How many rows the table has less, as far as it is known."""
        put_back = self.added if self.taken_out else 0
        return max(0, self.taken_out + self.marked - put_back)

    @property
    def wrong(self) -> bool:
        """Return True if there are other rows than expected."""
        return self.same and self.added != self.taken_out

    def __str__(self) -> str:
        said = [f"it took out {self.taken_out} rows and added {self.added}"] if self.taken_out else []
        said += [f"it added {self.added} rows"] if self.added and not self.taken_out else []
        said += [f"it marked {self.marked} rows as deleted"] if self.marked else []
        said += [f"it added {self.matched} equality deletes, for as many rows as they match"] if self.matched else []
        if self.wrong:
            return f"it replaced {self.taken_out} rows by {self.added}, and a compaction changes none"
        return "" if self.same else "; ".join(said)


def row_change(snapshot: Snapshot) -> RowChange:
    """By its own summary."""
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


def _sum(sums: Mapping[str, str], key: str) -> int:
    text = sums.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else 0
