# SPDX-License-Identifier: Apache-2.0
"""Files that were rolled back and that another writer put into the table again stop a landing before it reads, or
commits, their offsets a second time.
"""

from __future__ import annotations

import pytest
from pyiceberg.expressions import AlwaysTrue

from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets, from_snapshot
from tests.fakes.lake import data_file
from tests.fakes.session import DATA, P0, P1, FakeLanding

BROUGHT_BACK = r"brought back 2 files with 20 rows of snapshot \d+ \(landing rows, live\).*orders\[0\] \[20, 40\) would"


def head(landing: FakeLanding) -> int:
    found = landing.session.tables.load(DATA).metadata.current_snapshot_id
    assert found is not None
    return found


def add(landing: FakeLanding, *paths: str, rows: int = 10) -> None:
    table = landing.session.tables.load(DATA)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path in paths:
            append.append_data_file(data_file(path, rows))


def roll_back(landing: FakeLanding, snapshot_id: int) -> None:
    landing.session.tables.load(DATA).manage_snapshots().rollback_to_snapshot(snapshot_id).commit()


def files_of(landing: FakeLanding, snapshot_id: int) -> list[str]:
    table = landing.session.tables.load(DATA)
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    entries = (e for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io))
    return [e.data_file.file_path for e in entries if e.snapshot_id == snapshot_id]


@pytest.fixture
def newest(landing: FakeLanding) -> int:
    """The second of two cycles, of two files with ten rows each; it is rolled back."""
    landing.cycle("a")
    first = head(landing)
    landing.source.ends = {P0: 40, P1: 10}
    landing.cycle("b")
    found = head(landing)
    roll_back(landing, first)
    return found


def test_a_plan_does_not_read_again_what_a_user_brought_back(landing: FakeLanding, newest: int) -> None:
    add(landing, *files_of(landing, newest))
    before = landing.snapshots()
    with pytest.raises(LedgerError, match=rf"{BROUGHT_BACK}.*LC3007"):
        landing.open("c")
    assert landing.snapshots() == before
    with pytest.raises(LedgerError, match="LC7003"):
        from_snapshot(landing.session, newest)
    assert_tables(landing.session, from_offsets(landing.session, {("orders", 0): 40, ("orders", 1): 10}, [DATA]))
    assert landing.open("d").slices == ()


@pytest.mark.heavy
def test_the_same_behind_the_new_epoch_and_other_writers(landing: FakeLanding, newest: int) -> None:
    landing.open("c")
    add(landing, "file:///foreign/0.parquet")
    add(landing, *files_of(landing, newest))
    add(landing, "file:///foreign/1.parquet")
    with pytest.raises(LedgerError, match=rf"{BROUGHT_BACK}.*LC3007"):
        landing.open("d")
    assert_tables(landing.session, from_offsets(landing.session, {("orders", 0): 40}, [DATA]))
    assert landing.open("e").slices == ()


def test_a_commit_does_not_publish_what_came_back_since_the_plan(landing: FakeLanding, newest: int) -> None:
    opened = landing.open("c")
    landing.report(opened)
    add(landing, *files_of(landing, newest))
    before = landing.snapshots()
    with pytest.raises(LedgerError, match=rf"{BROUGHT_BACK}.*LC3007"):
        landing.close("c", opened)
    assert landing.snapshots() == before


def test_rows_that_were_taken_out_again_hold_nothing_up(landing: FakeLanding, newest: int) -> None:
    at = head(landing)
    add(landing, *files_of(landing, newest))
    roll_back(landing, at)
    landing.cycle("c")
    assert [s["lakecommit.rows"] for s in landing.snapshots() if "lakecommit.rows" in s][-1] == "20"


@pytest.mark.heavy
def test_rows_that_were_deleted_again_hold_nothing_up(landing: FakeLanding, newest: int) -> None:
    add(landing, *files_of(landing, newest))
    landing.session.tables.load(DATA).delete(AlwaysTrue())
    assert len(landing.open("c").slices) == 2


@pytest.mark.heavy
@pytest.mark.parametrize("paths", [("file:///foreign/0.parquet",), ()])
def test_other_files_hold_nothing_up(landing: FakeLanding, newest: int, paths: tuple[str, ...]) -> None:
    add(landing, *paths)
    assert len(landing.open("c").slices) == 2


def test_what_is_read_again_already_does_not_stop_what_is_new(landing: FakeLanding, newest: int) -> None:
    """The rows are there twice, and `verify` reports it; to wait would mend nothing."""
    landing.cycle("c")
    add(landing, *files_of(landing, newest))
    landing.source.ends = {P0: 50, P1: 10}
    landing.cycle("d")


def test_a_table_without_such_a_reason_is_not_scanned(landing: FakeLanding, monkeypatch: pytest.MonkeyPatch) -> None:
    landing.cycle("a")
    add(landing, "file:///foreign/0.parquet")
    monkeypatch.setattr("pyiceberg.table.snapshots.Snapshot.manifests", None)
    assert landing.open("b").slices == ()
