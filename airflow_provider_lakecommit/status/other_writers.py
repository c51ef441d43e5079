# SPDX-License-Identifier: Apache-2.0
"""What other writers did to the rows of a table, for `verify`: a landing's sums add up in any case.

Uses the sums that engines write into the summaries of their snapshots (none if missing), because files missing from the
metadata have no counts. Removing rows is legitimate, so it is a note, with numbers. A compaction (``replace``) has the
same rows before and after, unless it applies delete files.

Files of a landing that were rolled back and that another writer added to the table again (`add_files`).

No ledger counts the rows of such a file: the landing has read their offsets again, or will. A file's name shows that it
is of a landing (copies under other names are not recognised); a landing's snapshot outside the branch shows that it was
rolled back. The finding is a note if a user has stated since what the table holds, or if the file's landing is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.core import RESET_ASSERT, attempt_of, is_attempt_at
from airflow_provider_lakecommit.iceberg import SnapshotKind
from airflow_provider_lakecommit.status.table_history import AddedFile, Finding, LandingSnapshot, note_on, wrong_in


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


Beside = Callable[[], Iterable[LandingSnapshot]]


def brought_back(
    table: str,
    line: Sequence[int],
    added: Mapping[int, Sequence[AddedFile]],
    landing: Sequence[LandingSnapshot],
    beside: Beside,
    logged: int | None = None,
) -> Iterator[Finding]:
    """Yield the files that other writers restored to the table.

    :param line: the snapshots of the branch, newest first
    :param added: the files at the head, by the snapshot that added them
    :param landing: the landing snapshots of the branch, oldest first
    :param beside: those in the metadata but not on the branch; requested only if there is such a file
    :param logged: one of these whose restored rows are reported already
    """
    counted, ours = {path for s in landing for path, _ in s.files}, {s.record.snapshot_id for s in landing}
    found = {
        n: files
        for n in line
        if n not in ours and (files := [f for f in added.get(n, ()) if f[0] not in counted and _is_ours(f[0])])
    }
    if not found:
        return
    of = {path: s for s in beside() for path, _ in s.files}
    for n, files in found.items():
        if logged is not None and {s.record.snapshot_id for path, _ in files if (s := of.get(path))} == {logged}:
            continue
        yield _finding(table, n, files, of, landing, line)


def _finding(
    table: str,
    snapshot_id: int,
    files: Sequence[AddedFile],
    of: Mapping[str, LandingSnapshot],
    landing: Sequence[LandingSnapshot],
    line: Sequence[int],
) -> Finding:
    known = landing[-1].sections.keys() if landing else ()
    sources = {s.record.snapshot_id: s for path, _ in files if (s := of.get(path)) is not None and s.key in known}
    newer = line[: line.index(snapshot_id)]
    since = {s.key for s in landing if s.record.kind is SnapshotKind.INIT and s.record.snapshot_id in newer}
    wrong = any(s.key not in since for s in sources.values())
    whose = ", ".join(sorted({f"landing {s.record.landing}" for s in sources.values()})) or "a landing"
    rows = sum(n for _, n in files)
    text = (
        f"another writer added {len(files)} files of {whose} with {rows} rows, and no ledger counts them: they were "
        "rolled back, so their offsets are read again, and these rows are duplicated then. Remove the files, or assert "
        f"with `{RESET_ASSERT}` that they are in the table before they are read again"
    )
    return (wrong_in if wrong else note_on)(table, text, snapshot_id)


def _is_ours(path: str) -> bool:
    attempt = attempt_of(path)
    return attempt is not None and is_attempt_at(attempt, attempt) is not None
