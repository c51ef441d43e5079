# SPDX-License-Identifier: Apache-2.0
"""Whether snapshots that replaced ranges add up, for `verify`: rows of the history less what was replaced are the rows.

Contract: pure. A replacement says which ranges it took out, how many rows these were, and how many rows of others were
copied; the files that are gone by its manifests, and those that came, must hold just as many. It takes out no more rows
than were landed of its ranges. A compaction has as many rows out and deleted as in. Any other landing snapshot takes no
file out. A file that was replaced and is in the
table again has rows that no ledger counts.

Failure story: a replacement that does not say what it took out, or says it of ranges that no ledger had, is a finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from airflow_provider_lakecommit.committer import SnapshotKind, SnapshotRecord, compacted_of, replaced_of, replay_of
from airflow_provider_lakecommit.core import Coverage
from airflow_provider_lakecommit.exceptions import WireError

__all__ = [
    "back_again",
    "copied_rows",
    "removal_problems",
    "replaced_rows",
    "replayed_rows",
    "rows_problems",
    "taken_from",
]


def taken_from(record: SnapshotRecord, landing: str) -> Coverage:
    """What a snapshot took out of the ledger of a landing, by its own word."""
    replaced = replaced_of(record) if record.landing == landing else None
    return Coverage() if replaced is None else replaced.ranges


def copied_rows(record: SnapshotRecord) -> int:
    """Return the rows in its files that were in the table before."""
    replaced, compacted = replaced_of(record), compacted_of(record)
    return (replaced.copied_rows if replaced else 0) + (compacted.rows_out if compacted else 0)


def replaced_rows(record: SnapshotRecord) -> int:
    """Rows that it took out."""
    replaced = replaced_of(record)
    return 0 if replaced is None else replaced.rows


def removal_problems(record: SnapshotRecord, removed: Collection[int], had: Coverage) -> Iterator[str]:
    """What is wrong with what one snapshot took out.

    :param removed: the record counts of the files that its manifests mark as gone
    :param had: what the ledger before had of its landing
    """
    if record.kind is SnapshotKind.COMPACT:
        yield from _compaction_problems(record, removed)
        return
    replaced = replaced_of(record)
    if replaced is None:
        if record.kind is SnapshotKind.REPLACE:
            yield "replaced ranges, and does not say which"
        elif removed:
            yield f"took out {len(removed)} files of {sum(removed)} rows, and says nothing of it"
        return
    if sum(removed) != replaced.file_rows:
        yield (
            f"says that it took out {replaced.rows} rows, copied {replaced.copied_rows} and left out "
            f"{replaced.deleted_rows} deleted ones, but the {len(removed)} files that it took out held {sum(removed)}"
        )
    if len(removed) != replaced.dropped_files + replaced.rewritten_files:
        said = f"{replaced.dropped_files} files dropped and {replaced.rewritten_files} rewritten"
        yield f"says {said}, {len(removed)} are gone"
    if unknown := replaced.ranges - had:
        yield f"says that it replaced {unknown}, which the ledger did not have"


def _compaction_problems(record: SnapshotRecord, removed: Collection[int]) -> Iterator[str]:
    """Rows in are rows out and deleted rows, and the files that are gone held the rows in."""
    numbers = compacted_of(record)
    if numbers is None:
        yield "compacted files, but does not state their numbers"
        return
    if numbers.rows_in != numbers.rows_out + numbers.dead_rows:
        yield (
            f"compacted {numbers.rows_in} rows into {numbers.rows_out} and left out {numbers.dead_rows} deleted ones: "
            f"{numbers.rows_in - numbers.rows_out - numbers.dead_rows} are missing"
        )
    if (sum(removed), len(removed)) != (numbers.rows_in, numbers.files_in):
        yield (
            f"says that it compacted {numbers.files_in} files of {numbers.rows_in} rows, but took out {len(removed)} "
            f"of {sum(removed)}"
        )


def rows_problems(records: Sequence[SnapshotRecord], *, whole: bool) -> Iterator[tuple[int, bool, str]]:
    """Replacements that took out other numbers of rows than were landed: the snapshot, whether it is wrong, and why.

    :param records: of one landing, oldest first
    :param whole: no older ones were expired
    """
    landed: dict[int, tuple[Coverage, int]] = {}
    for record in records:
        replaced = replaced_of(record)
        if replaced is not None:
            taken = replaced.ranges | replaced.past
            touched = {n: one for n, one in landed.items() if one[0].overlaps(taken)}
            most = sum(rows for _, rows in touched.values())
            exact = all(not ranges - taken for ranges, _ in touched.values())
            took = f"took out {replaced.rows} rows of {taken}"
            if whole and replaced.rows > most:
                yield record.snapshot_id, True, f"{took}, of which {most} were landed at most"
            elif whole and exact and replaced.rows < most:
                yield record.snapshot_id, False, f"{took}, of which {most} were landed: the rest was not there"
            landed = {n: (r - taken, rows) for n, (r, rows) in landed.items()}
        if ranges := record.ranges or replayed_rows(record):
            landed[record.snapshot_id] = ranges, record.rows


def replayed_rows(record: SnapshotRecord) -> Coverage:
    """Offsets whose dead letters are its rows; what cannot be read is a finding of another check."""
    try:
        told = replay_of(record)
    except WireError:
        return Coverage()
    return Coverage() if told is None else told[0]


def back_again(removed: Iterable[str], head: Collection[str]) -> list[str]:
    """Files that were replaced and are in the table."""
    there = set(head)
    return sorted(path for path in removed if path in there)
