# SPDX-License-Identifier: Apache-2.0
"""What snapshots of other writers say that they did to the rows."""

from __future__ import annotations

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from airflow_provider_lakecommit.status.other_writers import RowChange, row_change


def snapshot(operation: Operation, **sums: str) -> Snapshot:
    summary = Summary(operation, **{key.replace("_", "-"): value for key, value in sums.items()})
    return Snapshot(snapshot_id=1, manifest_list="list", timestamp_ms=1, sequence_number=1, summary=summary)


@pytest.mark.parametrize(
    ("operation", "sums", "fewer", "message"),
    [
        (Operation.APPEND, {"added_records": "5"}, 0, "added 5 rows"),
        (Operation.OVERWRITE, {"added_records": "93", "deleted_records": "100"}, 7, "removed 100 rows and added 93"),
        (Operation.OVERWRITE, {"added_records": "100", "deleted_records": "100"}, 0, "removed 100 rows and added 100"),
        (Operation.DELETE, {"deleted_records": "9"}, 9, "removed 9 rows and added 0"),
        (Operation.OVERWRITE, {"added_position_deletes": "4"}, 4, "marked 4 rows"),
        (Operation.OVERWRITE, {"added_equality_deletes": "2"}, 0, "2 equality deletes, for all rows that they match"),
        (Operation.REPLACE, {"added_records": "100", "deleted_records": "100"}, 0, ""),
        (Operation.DELETE, {"deleted_records": "many"}, 0, ""),
    ],
)
def test_what_they_took_out_is_reported_in_rows(
    operation: Operation, sums: dict[str, str], fewer: int, message: str
) -> None:
    change = row_change(snapshot(operation, **sums))
    assert (change.fewer, change.wrong) == (fewer, False)
    assert message in str(change)
    assert bool(message) == bool(str(change))


@pytest.mark.parametrize("added", ["93", "107"])
def test_a_compaction_with_other_rows_than_before_is_wrong(added: str) -> None:
    change = row_change(snapshot(Operation.REPLACE, added_records=added, deleted_records="100"))
    assert change.wrong
    assert str(change) == f"it replaced 100 rows by {added}, but a compaction changes none"


def test_a_compaction_that_works_delete_files_off_has_fewer_rows() -> None:
    sums = {"added_records": "93", "deleted_records": "100", "removed_delete_files": "1"}
    assert not row_change(snapshot(Operation.REPLACE, **sums)).wrong


def test_a_snapshot_without_a_summary_reports_nothing() -> None:
    bare = Snapshot(snapshot_id=1, manifest_list="list", timestamp_ms=1, sequence_number=1, summary=None)
    assert row_change(bare) == RowChange()
