# SPDX-License-Identifier: Apache-2.0
"""A table's own story for `verify`: damaged places become findings and hide nothing else."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.cycle.history import read_history
from airflow_provider_lakecommit.cycle.verify import Severity, TableHistory
from airflow_provider_lakecommit.exceptions import CatalogError
from tests.fakes.session import DATA, FakeLanding


def history(landing: FakeLanding, *, files: bool = False) -> TableHistory:
    return read_history(landing.session.tables, DATA, "main", files=files, progress=lambda _: None)


def wrong(found: TableHistory) -> list[str]:
    return [f.text for f in found.problems if f.level is Severity.WRONG]


def test_what_each_snapshot_added_is_read_from_its_manifests(landing: FakeLanding) -> None:
    landing.cycle()
    found = history(landing)
    assert [sum(f.rows for f in s.files) for s in found.snapshots] == [0, 30]
    assert (found.whole, len(found.head), wrong(found)) == (True, 3, [])


def test_files_that_are_gone_are_named_only_where_storage_is_asked(landing: FakeLanding) -> None:
    landing.cycle()
    assert [text.endswith("of 10 rows is gone") for text in wrong(history(landing, files=True))] == [True] * 3


def test_a_table_that_is_missing_is_a_finding_and_a_catalog_that_is_away_an_error(landing: FakeLanding) -> None:
    assert wrong(history(landing)) == ["there is no such table"]
    landing.catalog.away = True
    with pytest.raises(CatalogError):
        history(landing)


def test_a_tag_that_expires_takes_the_ledger_with_it(landing: FakeLanding) -> None:
    landing.cycle()
    table = landing.session.tables.load(DATA)
    (tag,) = (name for name in table.metadata.refs if name != "main")
    head = table.metadata.refs[tag].snapshot_id
    table.manage_snapshots().create_tag(head, tag, max_ref_age_ms=1000).commit()
    assert wrong(history(landing)) == [f"tag {tag} expires after 1000 ms, and the ledger with it"]
