# SPDX-License-Identifier: Apache-2.0
"""A table's own story: what its manifests say, with each corruption a finding that hides no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles

from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.ledger.branch import ensure_branch
from airflow_provider_lakecommit.iceberg.ledger.compaction import debt_of
from airflow_provider_lakecommit.iceberg.ledger.ledger import tag_name
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.landing import Landing, Maintain
from airflow_provider_lakecommit.operations.kafka_connect.rescue import RESCUED_BY as WRITTEN_BY_RESCUES
from airflow_provider_lakecommit.status.history import KEPT_FOR_EVER, RESCUED_BY, read_history
from airflow_provider_lakecommit.status.table_history import Severity, TableHistory
from airflow_provider_lakecommit.status.verify import check_landing
from airflow_provider_lakecommit.status.verify_table import check_table
from tests.fakes.lake import NAME, Lake, at, data_file, section, staged
from tests.fakes.position_deletes import delete_positions


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table with a ledger and nothing in it."""
    made = Lake(tmp_path)
    made.create()
    made.join()
    yield made
    made.catalog.close()


def landed(lake: Lake, start: int, end: int, *, rows: int | None = None) -> StagedSlice:
    """One slice in one real file of as many bytes as it says."""
    section = lake.state().sections[0]
    path = Path(urlsplit(lake.load().location()).path) / "data" / f"{start}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(start, start + (end - start if rows is None else rows)))}), path)
    file = data_file(f"file://{path}", end - start, file_size_in_bytes=path.stat().st_size)
    one = staged((0, start, end), epoch=section.epoch, files=(file,))
    lake.publish(lake.request(one))
    return one


def history(lake: Lake, files: bool | None = False, lines: list[str] | None = None) -> TableHistory:
    progress = [] if lines is None else lines
    return read_history(lake.tables, NAME, "main", files=files, progress=progress.append)


def texts(found: TableHistory, level: Severity = Severity.WRONG) -> list[str]:
    return [p.text for p in found.problems if p.level is level]


def tag(lake: Lake, snapshot_id: int, max_ref_age_ms: int | None) -> None:
    values = {"ref-name": tag_name("main"), "type": "tag", "snapshot-id": snapshot_id, "max-ref-age-ms": max_ref_age_ms}
    lake.catalog.commit_table(lake.load(), (), (SetSnapshotRefUpdate.model_validate(values),))


def head(lake: Lake) -> int:
    snapshot = lake.load().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_a_sound_table_reports_each_snapshot_with_the_files_that_it_added(lake: Lake) -> None:
    slices = [landed(lake, 0, 5), landed(lake, 5, 12)]
    found = history(lake, files=True)
    assert [s.record.rows for s in found.snapshots] == [0, 5, 7]
    paths = [[path for path, _ in s.files] for s in found.snapshots]
    assert paths == [[], *([f.file_path for f in s.files] for s in slices)]
    assert sorted(found.head) == sorted(p for some in paths for p in some)
    assert (found.whole, found.problems) == (True, ())
    assert list(check_table(found)) == []


def test_a_table_of_format_version_1_holds_the_files_that_it_reports(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={"format-version": "1"})
    lake.create()
    lake.join()
    landed(lake, 0, 5)
    found = history(lake, files=True)
    assert lake.load().format_version == 1
    assert [len(s.files) for s in found.snapshots] == [0, 1]
    assert list(check_table(found)) == []
    debt = debt_of(lake.load().metadata, "main", Maintain())
    assert debt is not None
    assert (debt.files, debt.needed) == (1, 1)


def test_a_table_that_is_missing_is_one_finding(lake: Lake) -> None:
    found = read_history(lake.tables, "shop.none", "main", progress=print)
    assert texts(found) == ["the table does not exist"]
    assert found.snapshots == ()


def test_only_a_catalog_that_is_away_raises(lake: Lake) -> None:
    lake.catalog.away = True
    with pytest.raises(CatalogError):
        history(lake)


class _WithoutTheOldest(_FastAppendFiles):
    """A commit that leaves a manifest out and says nothing of it."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return super()._existing_manifests()[:-1]


def test_files_that_a_commit_lost_silently_are_wrong(lake: Lake) -> None:
    (lost,) = landed(lake, 0, 5).files
    landed(lake, 5, 12)
    table = lake.load()
    with table.transaction() as change:
        _WithoutTheOldest(operation=Operation.APPEND, transaction=change, io=table.io).commit()
    (text,) = texts(history(lake))
    assert "1 landed files of 5 rows are missing" in text
    assert lost.file_path in text


def test_files_that_others_took_out_by_a_commit_are_not_lost(lake: Lake) -> None:
    files = [f for n in range(3) for f in landed(lake, 5 * n, 5 * n + 5).files]
    with lake.load().transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(files[0])
    with lake.load().transaction() as change, change.update_snapshot().delete() as delete:
        delete.delete_data_file(files[1])
    landed(lake, 15, 17)
    assert texts(history(lake)) == []


def test_a_table_in_which_nothing_was_landed_reports_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    assert texts(history(lake), Severity.NOTE) == ["no landing has landed in this table yet"]
    lake.catalog.close()


def test_a_commit_of_another_writer_is_a_note(lake: Lake) -> None:
    landed(lake, 0, 5)
    foreign = lake.append_foreign()
    (note,) = history(lake).problems
    assert (note.level, note.snapshot_id, note.text) == (
        Severity.NOTE,
        foreign,
        "made by another writer (append): it added 1 rows",
    )


def test_the_empty_snapshot_at_which_a_branch_begins_is_of_no_other_writer(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create()
    ensure_branch(lake.tables, NAME, lake.load(), "audit")
    found = read_history(lake.tables, NAME, "audit", progress=print)
    assert [p.text for p in found.problems] == ["no landing has landed in this table yet"]
    assert found.live == 0, "nothing keeps the live rows from being compared"
    lake.catalog.close()


def test_files_that_others_removed_since_are_found_in_the_snapshot_s_own_manifests(lake: Lake) -> None:
    landed(lake, 0, 5)
    landed(lake, 5, 9)
    lake.load().delete()
    found = history(lake)
    assert [[rows for _, rows in s.files] for s in found.snapshots] == [[], [5], [4]]
    assert found.head == ()
    assert texts(found, Severity.NOTE) == ["made by another writer (delete): it removed 9 rows and added 0"]
    assert found.fewer == 9


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (1000, "expires after 1000 ms, and the ledger with it"),
        (None, "has no age of its own: it expires by the table's property"),
        (KEPT_FOR_EVER, None),
    ],
)
def test_a_tag_that_does_not_keep_the_ledger_for_ever_is_wrong(lake: Lake, age: int | None, text: str | None) -> None:
    landed(lake, 0, 5)
    tag(lake, head(lake), age)
    assert texts(history(lake)) == ([] if text is None else [f"tag lakecommit-main {text}"])


def test_a_tag_next_to_the_ledger_is_wrong(lake: Lake) -> None:
    landed(lake, 0, 5)
    before, now = lake.load().metadata.snapshots[0].snapshot_id, head(lake)
    tag(lake, before, KEPT_FOR_EVER)
    (text,) = texts(history(lake))
    assert text == f"tag lakecommit-main is on {before}, but the ledger is on {now}"


def test_a_rollback_is_a_note_and_what_was_rolled_back_is_no_part_of_the_story(lake: Lake) -> None:
    landed(lake, 0, 5)
    first = head(lake)
    landed(lake, 5, 9)
    lake.load().manage_snapshots().set_current_snapshot(first).commit()
    found = history(lake)
    assert [s.record.rows for s in found.snapshots] == [0, 5]
    assert texts(found) == []
    (note,) = texts(found, Severity.NOTE)
    assert note.endswith("the next cycle starts a new epoch and reads again what the source still has")


def test_a_history_whose_begin_was_expired_is_distinguished_from_where_it_begins(lake: Lake) -> None:
    landed(lake, 0, 5)
    origin = lake.load().metadata.snapshots[0].snapshot_id
    lake.load().maintenance.expire_snapshots().by_id(origin).commit()
    found = history(lake)
    assert not found.whole
    (note,) = texts(found, Severity.NOTE)
    assert note.startswith(f"the history starts at snapshot {head(lake)}: the sums do not include older ranges")
    assert list(check_table(found)) == []


def test_a_file_that_is_missing_and_one_of_another_size_are_both_named_if_the_storage_is_requested(lake: Lake) -> None:
    slices = [landed(lake, 0, 5), landed(lake, 5, 9)]
    missing, short = (s.files[0] for s in slices)
    Path(missing.file_path.removeprefix("file://")).unlink()
    Path(short.file_path.removeprefix("file://")).write_bytes(b"x")
    lines: list[str] = []
    # By default it is asked only where that costs nothing, as here.
    wrong = texts(history(lake, None, lines))
    assert sorted(wrong) == sorted(
        [
            f"file {missing.file_path} of 5 rows is missing",
            f"file {short.file_path}: 1 bytes, not the announced {short.file_size_in_bytes}",
        ]
    )
    assert lines == [f"{NAME}: checking 2 files"]
    assert texts(history(lake, files=False, lines=lines)) == []
    assert len(lines) == 1


def test_a_delete_file_that_is_missing_is_named_like_a_data_file(lake: Lake) -> None:
    (file,) = landed(lake, 0, 5).files
    delete_positions(lake.load(), "main", [(file, 1), (file, 3)])
    found = history(lake, files=True)
    assert (texts(found), len(found.head)) == ([], 1)
    (deletes,) = (Path(urlsplit(lake.load().location()).path) / "data").glob("*-deletes.parquet")
    deletes.unlink()
    assert texts(history(lake, files=True)) == [f"file file://{deletes} of 2 rows is missing"]


def test_a_storage_elsewhere_is_requested_only_on_request(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = landed(lake, 0, 5).files[0]
    Path(missing.file_path.removeprefix("file://")).unlink()
    monkeypatch.setattr(Table, "location", lambda _: "s3://lake/orders")
    assert texts(history(lake, None)) == []
    assert texts(history(lake, files=True)) == [f"file {missing.file_path} of 5 rows is missing"]


def test_a_manifest_that_cannot_be_read_is_a_finding_and_the_ledger_is_reported_all_the_same(lake: Lake) -> None:
    landed(lake, 0, 5)
    table = lake.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        Path(manifest.manifest_path.removeprefix("file://")).write_bytes(b"not avro")
    found = history(lake)
    assert [s.record.rows for s in found.snapshots] == [0, 5]
    wrong = texts(found)
    assert wrong
    assert all(text.startswith("its manifests cannot be read: ") for text in wrong)


def test_a_ledger_that_cannot_be_read_is_a_finding_and_the_snapshots_before_it_are_reported(lake: Lake) -> None:
    landed(lake, 0, 5)
    table = lake.load()
    with table.transaction() as transaction:
        properties = dict.fromkeys(ledger_keys(table), "{")
        with transaction.update_snapshot(snapshot_properties=properties).fast_append() as append:
            append.append_data_file(data_file("file:///x.parquet", 1))
    found = history(lake)
    assert [s.record.rows for s in found.snapshots] == [0, 5]
    assert texts(found)
    # It is ours all the same.
    assert texts(found, Severity.NOTE) == []


def ledger_keys(table: Table) -> list[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return [k for k in snapshot.summary.additional_properties if k.startswith("lakecommit")]


def test_a_file_with_other_rows_than_were_announced_is_wrong(lake: Lake) -> None:
    landed(lake, 0, 5)
    landed(lake, 5, 12, rows=9)
    (text,) = texts(history(lake, files=True))
    assert text.endswith(": 9 rows, not the announced 7")


def test_a_file_that_is_no_parquet_is_wrong(lake: Lake) -> None:
    one = landed(lake, 0, 5)
    path = Path(urlsplit(one.files[0].file_path).path)
    path.write_bytes(b"x" * path.stat().st_size)
    (text,) = texts(history(lake, files=True))
    assert "is not a readable Parquet file" in text


def test_a_file_of_another_table_is_wrong(lake: Lake) -> None:
    section = lake.state().sections[0]
    file = data_file(f"{lake.load().location()}-other/data/x.parquet", 5)
    lake.publish(lake.request(staged((0, 0, 5), epoch=section.epoch, files=(file,))))
    (text,) = texts(history(lake))
    assert "does not lie where the table has its data" in text


def test_a_rescue_in_the_history_reports_whose_it_was(lake: Lake) -> None:
    assert RESCUED_BY == WRITTEN_BY_RESCUES
    table = lake.load()
    with table.transaction() as transaction:
        properties = {RESCUED_BY: "2026-01-01 carla by DAG mend, run a, task r on host-1: the worker is gone"}
        with transaction.update_snapshot(snapshot_properties=properties).fast_append() as append:
            append.append_data_file(data_file("file:///x.parquet", 1))
    (text,) = (t for t in texts(history(lake), Severity.NOTE) if "rescue" in t)
    assert (
        "by `lakecommit connect rescue`, 2026-01-01 carla by DAG mend, run a, task r on host-1: the worker is gone"
        in text
    )


def test_a_landing_whose_first_snapshot_was_rolled_back_too_has_lost_its_rows(lake: Lake) -> None:
    """Nothing on the branch knows of it any more: no run of another landing brings its rows back."""
    landed(lake, 0, 5)
    before = head(lake)
    late = lake.join(section("late", starts={at(0, "another topic"): 0}))
    file = data_file(f"{lake.load().location()}/data/late.parquet", 7)
    slice_ = staged((0, 0, 7), epoch=late.epoch, topic_id="another topic", files=(file,))
    lake.publish(lake.request(slice_, landing="late"))
    owners = {name: Landing(name=name, topics="orders", table=NAME) for name in ("orders", "late")}
    assert not any(f.level is Severity.WRONG for name in owners for f in check_landing(owners[name], [history(lake)]))
    lake.roll_back(before)
    lost = [f.text for f in check_landing(owners["late"], [history(lake)]) if f.level is Severity.WRONG]
    assert lost == ["was rolled back to before the first snapshot of landing late, which removed 7 rows"]
    assert not any(f.level is Severity.WRONG for f in check_landing(owners["orders"], [history(lake)]))
    renew_epochs(lake.tables, NAME, "orders", LIVE, branch="main")
    lake.join(section("late", starts={at(0, "another topic"): 0}))
    assert not any(f.level is Severity.WRONG for f in check_landing(owners["late"], [history(lake)]))
