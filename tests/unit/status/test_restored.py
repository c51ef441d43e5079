# SPDX-License-Identifier: Apache-2.0
"""`verify` sees rows that were rolled back, and that another writer put into the table again file by file."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.fakes.lake import data_file
from tests.fakes.session import DATA, P0, P1, FakeLanding


def additions(landing: FakeLanding) -> list[tuple[Severity, str]]:
    history = read_history(landing.session.tables, DATA, "main", files=False, progress=landing.lines.append)
    found = check_landing(landing.session.landing, [history])
    return [(f.level, f.text) for f in found if f.text.startswith("another writer added")]


def add(landing: FakeLanding, *paths: str, rows: int = 10) -> None:
    table = landing.session.tables.load(DATA)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for path in paths:
            append.append_data_file(data_file(path, rows))


@pytest.fixture
def rolled_back(landing: FakeLanding) -> list[str]:
    """Two files of ten rows, of the second of two cycles, which was rolled back."""
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.cycle("b")
    table = landing.session.tables.load(DATA)
    newest = table.metadata.current_snapshot()
    assert newest is not None
    entries = [e for m in newest.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]
    assert newest.parent_snapshot_id is not None
    table.manage_snapshots().rollback_to_snapshot(newest.parent_snapshot_id).commit()
    return [e.data_file.file_path for e in entries if e.snapshot_id == newest.snapshot_id]


@pytest.mark.parametrize("first", ["added", "read again"])
def test_rows_that_are_read_again_and_brought_back_are_off(
    landing: FakeLanding, rolled_back: list[str], first: str
) -> None:
    if first == "added":
        add(landing, *rolled_back)
        with pytest.raises(LedgerError, match="LC3007"):
            landing.cycle("again")
    else:
        landing.cycle("again")
        assert additions(landing) == []
        add(landing, *rolled_back)
    ((level, text),) = additions(landing)
    assert level is Severity.WRONG
    assert text.startswith("another writer added 2 files of landing rows with 20 rows")


def test_a_later_assertion_of_a_user_is_trusted(landing: FakeLanding, rolled_back: list[str]) -> None:
    add(landing, *rolled_back)
    assert_tables(landing.session, from_offsets(landing.session, {("orders", 0): 40}, [DATA]))
    assert [level for level, _ in additions(landing)] == [Severity.NOTE]
    landing.cycle("goes on")
    assert sum(int(s.get("lakecommit.rows", 0)) for s in landing.snapshots()) == 50


def test_files_of_others_and_those_that_the_ledger_counts_report_nothing(
    landing: FakeLanding, rolled_back: list[str]
) -> None:
    add(landing, "file:///theirs/00000-0-0a0b0c0d-0000-4000-8000-000000000000.parquet")
    landing.cycle("again")
    assert additions(landing) == []
