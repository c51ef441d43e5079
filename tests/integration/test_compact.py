# SPDX-License-Identifier: Apache-2.0
"""Compaction of real tables: the same rows in fewer files, whatever else happens to the table meanwhile.

Rows are read by DuckDB and by pyiceberg, before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core import Counts
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS
from airflow_provider_lakecommit.iceberg.ledger import trim
from airflow_provider_lakecommit.iceberg.ledger.compaction import compacted_of, debt_of
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.overwrite import Rewrite
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord, to_summary
from airflow_provider_lakecommit.iceberg.ledger.trim import expire_older
from airflow_provider_lakecommit.landing import Maintain
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace_preview
from airflow_provider_lakecommit.operations.maintenance import compact as compaction
from airflow_provider_lakecommit.operations.maintenance.background import RunCompaction
from airflow_provider_lakecommit.operations.maintenance.compact import CompactedTable, compact
from tests.fakes.catalog import Fault
from tests.fakes.lake import coverage
from tests.fakes.position_deletes import delete_equal, delete_positions
from tests.fakes.replaced_lake import RowsLake, lake_at
from tests.integration.test_replace import TABLES, taken_out

pytestmark = pytest.mark.integration

SIX = {"first": [(0, 0, 60), (1, 0, 30)]}


FEW = Maintain(max_files=5, max_snapshots=5)


def compacted(lake: RowsLake, **options: Any) -> CompactedTable:
    (done,) = compact(lake.session(), write=True, **options)
    return done


def land_six(lake: RowsLake) -> None:
    for n in range(6):
        lake.land((0, n * 10, n * 10 + 10), (1, n * 5, n * 5 + 5))


def scanned(lake: RowsLake) -> list[int]:
    return sorted(lake.load().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def meanwhile(lake: RowsLake, act: Callable[[], object]) -> None:
    """Have something happen right before the next commit request."""

    def once() -> None:
        lake.catalog.before_commit = lambda: None
        act()

    lake.catalog.before_commit = once


@pytest.fixture
def lake(tmp_path: Path) -> RowsLake:
    made = lake_at(tmp_path)
    made.join()
    return made


@pytest.mark.heavy(but=("day", "sorted"))
@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
def test_the_rows_stay_and_the_files_are_fewer(tmp_path: Path, options: dict[str, object]) -> None:
    lake = lake_at(tmp_path, **options)
    lake.join()
    land_six(lake)
    lake.append_rows()
    before, files, ledger = lake.found(), lake.files(), lake.state().sections
    places = {(f.spec_id, str(f.partition)) for f in files}
    done = compacted(lake)
    after = lake.files()
    assert (done.error, lake.found(), lake.state().sections) == ("", before, ledger)
    assert len(after) < len(files)
    assert {(f.spec_id, str(f.partition)) for f in after} == places
    assert {f.sort_order_id for f in after} <= {f.sort_order_id for f in files}
    assert scanned(lake) == sorted(n[0] for n in before.elements())
    head = lake.load().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is Operation.REPLACE
    assert int(head.summary.additional_properties["total-data-files"]) == len(after)
    assert int(head.summary.additional_properties["total-records"]) == before.total()
    assert lake.findings() == []
    assert compacted(lake).bins == 0


def test_a_check_changes_nothing_and_reports_what_would_be_done(lake: RowsLake) -> None:
    land_six(lake)
    head = lake.load().metadata.current_snapshot_id
    (preview,) = compact(lake.session(), write=False)
    assert (preview.bins, preview.files, preview.snapshots) == (1, 6, [])
    assert lake.load().metadata.current_snapshot_id == head


@pytest.mark.heavy
def test_a_sorted_table_stays_sorted_in_each_file(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, **{**TABLES["sorted"], "spec": TABLES["bucket"]["spec"]})
    lake.join()
    land_six(lake)
    files = len(lake.files())
    compacted(lake)
    assert len(lake.files()) < files
    for file in lake.files():
        with lake.load().io.new_input(file.file_path).open() as stream:
            ids = pa.parquet.read_table(stream)["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)


@pytest.mark.parametrize("options", [TABLES["plain"], TABLES["sorted"]], ids=["plain", "sorted"])
def test_deleted_rows_are_left_out_and_late_ones_are_deleted_in_the_new_file(
    tmp_path: Path, options: dict[str, object]
) -> None:
    lake = lake_at(tmp_path, **{**options, **({"spec": TABLES["bucket"]["spec"]} if options else {})})
    lake.join()
    land_six(lake)

    def delete(position: int) -> None:
        delete_positions(lake.load(), "main", [(f, position) for f in files if f.record_count > position])

    files = lake.files()
    delete(1)
    before = lake.found()
    meanwhile(lake, lambda: delete(2))
    done = compacted(lake)
    (record,) = (r for r in landing_snapshots(lake.load().metadata, "main") if r.kind is SnapshotKind.COMPACT)
    numbers = compacted_of(record)
    assert numbers is not None
    assert (numbers.dead_rows, numbers.moved_rows) == (
        sum(f.record_count > 1 for f in files),
        sum(f.record_count > 2 for f in files),
    )
    assert lake.found().total() == before.total() - numbers.moved_rows
    assert scanned(lake) == sorted(n[0] for n in lake.found().elements())
    live = {f.file_path for f in lake.files()}
    for d in lake.files(ManifestContent.DELETES):
        with lake.load().io.new_input(d.file_path).open() as stream:
            assert set(pa.parquet.read_table(stream)["file_path"].to_pylist()) <= live
    assert (done.given_up, lake.findings()) == (0, [])
    head = lake.load().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert int(head.summary["added-position-deletes"] or 0) == numbers.moved_rows


def test_a_landing_in_between_is_no_reason_to_write_again(lake: RowsLake) -> None:
    land_six(lake)
    meanwhile(lake, lambda: lake.land((0, 60, 70)))
    done = compacted(lake)
    assert (done.numbers.files_in, done.given_up) == (6, 0)
    assert lake.found() == lake.expected({"first": [(0, 0, 70), (1, 0, 30)]})
    assert lake.state().covered() == coverage((0, 0, 70), (1, 0, 30))
    assert lake.findings() == []


@pytest.mark.heavy(but=("own",))
@pytest.mark.parametrize("other", ["engine", "own", "replay"])
def test_a_bin_whose_sources_another_writer_took_is_given_up(lake: RowsLake, other: str) -> None:
    land_six(lake)

    def take() -> None:
        match other:
            case "engine":
                lake.compact()
            case "own":
                compacted(lake)
            case _:
                taken_out(lake, (0, 5, 15))

    meanwhile(lake, take)
    before = lake.parquet_files()
    done = compacted(lake)
    assert (done.given_up, done.snapshots, done.error) == (1, [], "")
    removed = [(0, 0, 5), (0, 15, 60), (1, 0, 30)] if other == "replay" else SIX["first"]
    assert lake.found() == lake.expected({"first": removed})
    assert lake.findings() == []
    held = {f.file_path for f in lake.files()} | before
    assert {p for p in lake.parquet_files() if p not in held and "compact" in p} == set()


def test_rows_are_replayed_from_compacted_files(lake: RowsLake) -> None:
    land_six(lake)
    compacted(lake)
    (previewed,) = replace_preview(lake.session(), coverage((0, 5, 15)))
    assert (previewed.replaced.rows, previewed.missing) == (10, 0)
    taken_out(lake, (0, 5, 15))
    assert lake.found() == lake.expected({"first": [(0, 0, 5), (0, 15, 60), (1, 0, 30)]})
    assert lake.findings() == []


def test_files_to_which_equality_deletes_apply_are_left_alone(lake: RowsLake) -> None:
    land_six(lake)
    delete_equal(lake.load(), "main", lake.files()[0], "id", 7)
    for n in range(6, 12):
        lake.land((0, n * 10, n * 10 + 10))
    before = {f.file_path for f in lake.files()}
    done = compacted(lake)
    assert (done.files, done.numbers.files_in) == (6, 6)
    assert len({f.file_path for f in lake.files()} & before) == 6
    for n in range(12, 17):
        lake.land((0, n * 10, n * 10 + 10))
    meanwhile(lake, lambda: delete_equal(lake.load(), "main", lake.files()[0], "id", 65))
    assert compacted(lake).given_up == 1
    assert lake.findings() == []


def test_a_rolled_back_table_is_not_compacted(lake: RowsLake) -> None:
    land_six(lake)
    before = lake.load().metadata.snapshots[5].snapshot_id
    meanwhile(lake, lambda: lake.roll_back(before))
    assert "[LC3043]" in compacted(lake).error
    assert "[LC3043]" in compacted(lake).error
    assert lake.load().metadata.current_snapshot_id == before


@pytest.mark.heavy(but=("LOST_ANSWER", "ON_ITS_WAY"))
@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.FALSE_SUCCESS], ids=lambda f: f.name)
def test_whatever_becomes_of_the_request_the_rows_are_there_once(lake: RowsLake, fault: Fault) -> None:
    land_six(lake)
    lake.catalog.faults.append(fault)
    done = compacted(lake)
    lake.catalog.away = False
    if lake.catalog.on_its_way:
        with pytest.raises(Exception, match=r"(?s)."):
            lake.catalog.deliver()
    assert lake.found() == lake.expected(SIX)
    assert lake.findings() == []
    assert len(lake.files()) == 1 or done.error


def test_files_of_older_schemas_get_the_columns_of_now(lake: RowsLake) -> None:
    land_six(lake)
    with lake.load().update_schema() as schema:
        schema.add_column("later", StringType())
        schema.rename_column("note", "remark")
        schema.delete_column("parts")
    with lake.load().update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    for n in range(6, 12):
        lake.land((0, n * 10, n * 10 + 10))
    before = sorted(lake.load().scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    compacted(lake)
    assert sorted(lake.load().scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == before
    assert Counter(f.spec_id for f in lake.files()) == {0: 1, 1: 2}
    assert lake.findings() == []


def test_the_budget_leaves_bins_for_the_next_run(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, **TABLES["bucket"])
    lake.join()
    land_six(lake)
    done = compacted(lake, most_bytes=1)
    assert (done.bins, done.later) == (1, 2)
    assert compacted(lake, most_time=timedelta(0)).later == 2
    assert compacted(lake).bins == 2
    assert lake.found() == lake.expected(SIX)
    assert lake.findings() == []


def test_the_debt_is_known_from_the_metadata_and_a_compaction_clears_it(lake: RowsLake) -> None:
    land_six(lake)
    before = debt_of(lake.load().metadata, "main", FEW)
    assert before is not None
    assert (before.files, before.needed, before.rows, before.dead_rows, before.snapshots) == (6, 1, 90, 0, 7)
    assert before.share > 1
    compacted(lake)
    after = debt_of(lake.load().metadata, "main", FEW)
    assert after is not None
    assert (after.files, after.needed, after.snapshots, after.share) == (1, 1, 0, 0)


@pytest.mark.heavy
def test_files_of_many_partitions_are_no_debt_once_a_compaction_has_observed_them(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, **TABLES["identity"])
    lake.join(lake.starting("live", *((p, 0) for p in range(8))))
    lake.land(*((p, 0, 5) for p in range(8)))
    before = debt_of(lake.load().metadata, "main", FEW)
    assert before is not None
    assert before.share > 1
    (done,) = compact(lake.session(max_debt_files=5), write=True)
    after = debt_of(lake.load().metadata, "main", FEW)
    assert after is not None
    assert (done.bins, after.files, after.needed, after.share) == (0, 8, 8, 0)
    assert lake.findings() == []
    assert compacted(lake).snapshots == []


def test_replaced_files_stay_while_a_tag_has_them(lake: RowsLake) -> None:
    land_six(lake)
    before = {f.file_path for f in lake.files()}
    lake.load().manage_snapshots().create_tag(lake.load().metadata.snapshots[3].snapshot_id, "audit").commit()
    compacted(lake)
    lake.land((0, 60, 70))
    old = int(lake.session().now().timestamp() * 1000) + 60_000
    assert expire_older(lake.tables, lake.name, "main", before_ms=old) > 5
    assert before <= lake.parquet_files()
    assert lake.load().scan(snapshot_id=lake.load().metadata.refs["audit"].snapshot_id).to_arrow().num_rows == 45
    assert lake.findings() == []


@pytest.mark.heavy(but=("brought-back",))
@pytest.mark.parametrize("back", [False, True], ids=["gone", "brought-back"])
def test_replaced_files_are_removed_when_their_snapshots_expire(lake: RowsLake, back: bool) -> None:
    land_six(lake)
    files = lake.files()
    compacted(lake)
    if back:
        table = lake.load()
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(files[0])
    lake.land((0, 60, 70))
    expire_older(lake.tables, lake.name, "main", before_ms=int(lake.session().now().timestamp() * 1000) + 60_000)
    left = {f.file_path for f in files} & lake.parquet_files()
    assert left == ({files[0].file_path} if back else set())
    assert lake.found().total() == 100 + (files[0].record_count if back else 0)


@pytest.mark.parametrize(("rows", "message"), [(-1, "1 are missing"), (0, "took out 5")])
def test_a_forged_compaction_is_found(lake: RowsLake, rows: int, message: str) -> None:
    """Rows are missing, or other files, whatever its summary says."""
    land_six(lake)
    state, table = lake.state(), lake.load()
    removed = [f.file_path for f in lake.files()[:5]]
    extra = {"compacted": f'{{"rows_in":90,"rows_out":{90 + rows},"files_in":6}}'}
    record = SnapshotRecord(kind=SnapshotKind.COMPACT, branch="main", landing="orders", lane="live", extra=extra)
    rewrite = Rewrite(removed=frozenset(removed), same_rows=True)
    forged = stage(table, "main", Change(summary=to_summary(record, state.sections), why=None, rewrite=rewrite))
    lake.tables.commit(table, forged.requirements, forged.updates)
    assert any(message in text for text in lake.findings()), lake.findings()


def test_a_landing_two_compactions_and_deletes_of_others_at_once(tmp_path: Path) -> None:
    """None of them starves, and the rows are those that were landed and not deleted."""
    # pyiceberg would retry a delete on a head that lacks its file.
    lake = lake_at(tmp_path, properties={"commit.retry.num-retries": "0"})
    lake.join()
    windows, deleted = 30, set[int]()
    lake.land((1, 0, 5))
    ended, first = Event(), Event()

    def delete() -> None:
        while not ended.wait(0.3):
            table = lake.load()
            with suppress(CommitFailedException):
                files = [f for f in lake.files() if f.record_count > 3]
                file = files[len(files) // 2]
                with table.io.new_input(file.file_path).open() as stream:
                    row = pa.parquet.read_table(stream)["id"].to_pylist()[1]
                delete_positions(table, "main", [(file, 1)])
                deleted.add(row)
                first.set()

    def rewrite() -> None:
        while not ended.wait(0.2):
            (done,) = compact(lake.session(tables=Tables(lake.catalog_properties)), write=True)
            assert "LC" not in done.error, done.error

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(rewrite), pool.submit(rewrite), pool.submit(delete)]
        try:
            for n in range(windows):
                lake.land((0, n * 10, n * 10 + 10))
            # On a busy machine a delete, which never retries, may lose to every landing.
            first.wait(300)
        finally:
            ended.set()
        for one in others:
            one.result()
    due = set(range(windows * 10)) | {1_000_000 + n for n in range(5)}
    assert deleted
    assert scanned(lake) == sorted(due - deleted)
    assert {row[0] for row in lake.found()} == due - deleted
    assert any(r.kind is SnapshotKind.COMPACT for r in landing_snapshots(lake.load().metadata, "main"))
    assert lake.findings() == []


def test_an_interrupt_in_the_request_leaves_the_files_of_what_was_applied(
    lake: RowsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_six(lake)
    commit = lake.catalog.commit_table

    def interrupted(*request: Any) -> Any:
        commit(*request)
        raise KeyboardInterrupt

    monkeypatch.setattr(lake.catalog, "commit_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compacted(lake)
    assert len(lake.files()) == 1
    assert lake.found() == lake.expected(SIX)
    assert lake.findings() == []


def test_a_file_that_cannot_be_read_stops_its_own_bin_alone(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, **TABLES["bucket"])
    lake.join()
    land_six(lake)
    broken = lake.files()[0]
    path = Path(broken.file_path.removeprefix("file://"))
    content = path.read_bytes()
    path.write_bytes(b"x" * len(content))
    done = compacted(lake)
    assert "[LC3330]" in done.error
    assert len(done.snapshots) == 1
    assert {str(f.partition) for f in lake.files() if f.record_count < 20} == {str(broken.partition)}
    path.write_bytes(content)
    assert lake.found() == lake.expected(SIX)
    assert lake.findings() == []


def test_equality_deletes_in_a_data_manifest_are_observed_and_that_manifest_stays(lake: RowsLake) -> None:
    land_six(lake)
    (added,) = lake.written((0, 60, 61))
    delete_equal(lake.load(), "main", lake.files()[0], "id", 7, among=[added])
    before = {f.file_path for f in lake.files()}
    assert (compacted(lake).bins, {f.file_path for f in lake.files()}) == (0, before)


@pytest.mark.parametrize("why", ["gc.enabled", "elsewhere"])
def test_files_that_may_be_another_tables_are_not_removed(lake: RowsLake, why: str, tmp_path: Path) -> None:
    land_six(lake)
    before = {f.file_path for f in lake.files()}
    with lake.load().transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    compacted(lake)
    if why == "elsewhere":
        lake.load().transaction().remove_properties("gc.enabled").commit_transaction()
        moved = lake.load().metadata.model_copy(update={"location": "file:///another/table"})
        expired = [s for s in moved.snapshots if s.snapshot_id != moved.current_snapshot_id]
        head = moved.model_copy(update={"snapshots": [moved.current_snapshot()], "snapshot_log": []})
        assert trim._replaced_files(lake.load().io, head, "main", expired) == set()
        return
    lake.land((0, 60, 70))
    expire_older(lake.tables, lake.name, "main", before_ms=int(lake.session().now().timestamp() * 1000) + 60_000)
    assert before <= lake.parquet_files()


@pytest.mark.parametrize(
    ("made", "compact", "does"),
    [(True, None, True), (False, None, False), (True, False, False), (False, True, True)],
    ids=["made-by-a-landing", "of-others", "declared-off", "declared-on"],
)
def test_a_run_compacts_what_is_due_in_the_tables_that_it_may(
    tmp_path: Path, made: bool, compact: bool | None, does: bool
) -> None:
    lake = lake_at(tmp_path)
    lake.join()
    if not made:
        lake.load().transaction().remove_properties(KEEP_SNAPSHOTS).commit_transaction()
    lines: list[str] = []
    land_six(lake)
    few = lake.session(compact=compact, max_debt_files=10)
    with RunCompaction(few, lines.append) as compaction:
        for _ in range(2):
            compaction.begin()
    assert (len(lake.files()), lines) == ((1, ["shop.orders: compacted 6 files into 1"]) if does else (6, []))
    assert lake.found() == lake.expected(SIX)


def test_each_group_of_bins_has_storage_keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a catalog hands out expire while a large table is compacted."""
    lake = lake_at(tmp_path, **TABLES["identity"])
    lake.join(lake.starting("live", *((p, 0) for p in range(3))))
    for n in range(5):
        lake.land(*((p, n * 5, n * 5 + 5) for p in range(3)))
    monkeypatch.setattr(compaction, "BINS_OF_A_COMMIT", 1)
    used, write = list[int](), compaction.write_bin

    def noted(table: Table, *rest: Any) -> compaction.WrittenBin:
        used.append(id(table.io))
        kept.append(table.io)
        return write(table, *rest)

    kept: list[Any] = []
    monkeypatch.setattr(compaction, "write_bin", noted)
    (done,) = compact(lake.session(), write=True)
    assert (done.error, len(done.snapshots), len(set(used))) == ("", 3, 3)
    assert lake.findings() == []


def test_a_cycle_requests_a_compaction_of_what_is_due_or_after_it_left_everything(lake: RowsLake) -> None:
    land_six(lake)
    found = debt_of(lake.load().metadata, "main", Maintain(max_files=5))
    few = debt_of(lake.load().metadata, "main", Maintain(max_files=100))
    assert found is not None
    assert few is not None
    assert (found.due, few.due) == (True, False)
    published = {
        debt: PublishedSnapshot(
            table=lake.name,
            snapshot_id=1,
            commit_id=UUID(int=1),
            coverage=coverage(),
            rows=1,
            files=1,
            counts=Counts(),
            debt=debt,
        )
        for debt in (found, few)
    }
    closed = Closed(commit_id=UUID(int=1), published=tuple(published.values()))
    assert closed.asks_for_compaction
    assert not replace(closed, published=(published[few],), left=5).asks_for_compaction
    assert not replace(closed, published=()).asks_for_compaction
    assert replace(closed, published=(), left=5).asks_for_compaction


@pytest.mark.parametrize(("dead", "due"), [(2, False), (5, True)])
def test_deleted_rows_are_due_at_half_their_limit(lake: RowsLake, dead: int, due: bool) -> None:
    lake.land((0, 0, 100))
    metadata = lake.load().metadata
    head = metadata.snapshot_by_name("main")
    assert head is not None
    assert head.summary is not None
    head.summary.additional_properties["total-position-deletes"] = str(dead)
    found = debt_of(metadata, "main", Maintain())
    assert found is not None
    assert (found.dead_rows, found.due, round(found.share, 2)) == (dead, due, dead / 10)


def test_a_compaction_of_a_run_that_fails_is_reported_and_fails_no_run(lake: RowsLake) -> None:
    lines: list[str] = []
    land_six(lake)
    lake.catalog.away = True
    with RunCompaction(lake.session(max_debt_files=5), lines.append) as compaction:
        compaction.begin()
    assert "WARNING: could not compact" in lines[-1]
