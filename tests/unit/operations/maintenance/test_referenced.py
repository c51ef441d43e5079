# SPDX-License-Identifier: Apache-2.0
"""What any snapshot of the metadata refers to is held; what cannot be read keeps everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage
from airflow_provider_lakecommit.operations.maintenance.referenced import ReferencedFiles
from tests.fakes.lake import Lake, staged


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def referenced(lake: Lake) -> ReferencedFiles:
    return ReferencedFiles(lake.tables, lake.name, lake.load())


def names(lake: Lake) -> set[str]:
    return {t.file.file_path.rsplit("/", 1)[-1] for t in lake.load().scan().plan_files()}


def test_files_of_all_snapshots_are_kept_on_any_branch(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 5), epoch=ours.epoch)))
    first = lake.load().metadata.current_snapshot_id
    assert first is not None
    kept = names(lake)
    lake.load().manage_snapshots().create_tag(first, "kept").commit()
    lake.publish(lake.request(staged((0, 5, 9), epoch=ours.epoch)))
    found, late = referenced(lake), names(lake)
    assert kept < late
    assert all(name in found for name in late)
    assert "another-00000.parquet" not in found
    assert all(name in found for name in lake.metadata_files("*.avro"))
    lake.publish(lake.request(staged((0, 9, 12), epoch=ours.epoch)))
    new = names(lake) - late
    assert not any(name in found for name in new)
    found.refresh()
    assert all(name in found for name in names(lake))


def test_a_table_without_a_snapshot_holds_nothing(lake: Lake) -> None:
    found = referenced(lake)
    assert "a" not in found
    assert found.heads == {None}


def test_the_first_commit_to_a_new_branch_may_be_under_way_whatever_other_branches_have(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 5), epoch=ours.epoch)))
    attempt = stage(lake.load(), "audit", Change(why=None))
    assert attempt.snapshot.parent_snapshot_id in referenced(lake).heads


@pytest.mark.parametrize("corruption", ["gone", "cut", "empty"])
def test_a_manifest_that_cannot_be_read_keeps_everything(lake: Lake, corruption: str) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 5), epoch=ours.epoch)))
    path = next((lake.path / "warehouse").rglob("*-m0.avro"))
    if corruption == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 300 if corruption == "cut" else 0])
    with pytest.raises(CatalogError, match="LC7702"):
        referenced(lake)


def test_another_table_of_the_same_name_ends_it(lake: Lake) -> None:
    found = referenced(lake)
    lake.catalog.drop_table(lake.name)
    lake.create()
    with pytest.raises(LedgerError, match="LC7701"):
        found.refresh()
