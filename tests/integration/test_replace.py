# SPDX-License-Identifier: Apache-2.0
"""Ranges taken out of real tables, and landed anew: exactly the rows of these ranges go, in one snapshot, once.

What is in a table before and after is read by DuckDB, which shares no code with us, and compared row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from airflow_provider_lakecommit.core import LIVE, Coverage
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import StagedSlice
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.merge_section import merge_section
from airflow_provider_lakecommit.iceberg.ledger.overwrite import Rewrite
from airflow_provider_lakecommit.iceberg.ledger.replace import Removal
from airflow_provider_lakecommit.iceberg.ledger.replaced import REPLACED, Replaced, replaced_of, sections_after
from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord, to_summary
from airflow_provider_lakecommit.iceberg.ledger.swap import Swapped
from airflow_provider_lakecommit.iceberg.parquet import parquet_rows
from airflow_provider_lakecommit.operations.backfill import survey
from airflow_provider_lakecommit.operations.backfill.range_replacement import (
    ReplacePreview,
    check_rows,
    replace,
    replace_all,
    replace_preview,
)
from airflow_provider_lakecommit.status.landing_history import table_history
from airflow_provider_lakecommit.status.table_history import Severity
from tests.fakes.lake import at, coverage, section, spans
from tests.fakes.position_deletes import delete_positions
from tests.fakes.replaced_lake import ROWS_SCHEMA, Ranges, RowsLake, lake_at

pytestmark = pytest.mark.integration

REPLAY = "replay-1"
DAY = PartitionSpec(PartitionField(3, 1000, DayTransform(), "day_day"))
BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "id_bucket"))
IDENTITY = PartitionSpec(PartitionField(11, 1000, IdentityTransform(), "of_partition"))
BY_NOTE = SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC), order_id=1)
TABLES = {
    "plain": {},
    "day": {"spec": DAY},
    "bucket": {"spec": BUCKET},
    "identity": {"spec": IDENTITY},
    "sorted": {"order": BY_NOTE, "spec": DAY},
    "v1": {"properties": {"format-version": "1"}, "spec": BUCKET},
}


def taken_out(
    lake: RowsLake, *ranges: Ranges, commit_id: object = None, **options: object
) -> tuple[ReplacePreview, Swapped[Removal]]:
    """A range deleted: what was reported before, and what was done."""
    session, ranges_out = lake.session(), coverage(*ranges)
    (previewed,) = replace_preview(session, ranges_out)
    return previewed, replace(session, ranges_out, commit_id=uuid4(), **options)[lake.name]  # type: ignore[arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> RowsLake:
    made = lake_at(tmp_path)
    made.join()
    return made


def landed_anew(
    session: LandingSession,
    ranges: Coverage,
    slices: Sequence[StagedSlice],
    commit: UUID,
    *,
    lane: str = LIVE,
    previews: Sequence[ReplacePreview] | None = None,
) -> dict[str, Swapped[Removal]]:
    """Put slices in the place of the rows of some ranges."""
    found = replace_preview(session, ranges) if previews is None else previews
    check_rows(found, fewer=False)
    return replace_all(session, [p.request(session, commit, slices=tuple(slices), lane=lane) for p in found])


@pytest.mark.heavy(but=("as-landed-day", "compacted-bucket"))
@pytest.mark.parametrize("options", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("compacted", [False, True], ids=["as-landed", "compacted"])
def test_exactly_the_rows_of_the_range_go(tmp_path: Path, options: dict[str, object], compacted: bool) -> None:
    lake = lake_at(tmp_path, **options)
    lake.join()
    lake.land((0, 0, 40), (1, 0, 30))
    lake.land((0, 40, 80))
    lake.append_rows()
    lake.land((0, 80, 100), (1, 30, 50))
    if compacted:
        lake.compact()
    assert lake.found() == lake.expected({"first": [(0, 0, 100), (1, 0, 50)]}) + lake.foreign()
    before = {f.file_path for f in lake.files()}
    preview, done = taken_out(lake, (0, 35, 85))
    after = {f.file_path for f in lake.files()}
    assert lake.found() == lake.expected({"first": [(0, 0, 35), (0, 85, 100), (1, 0, 50)]}) + lake.foreign()
    assert lake.state().covered() == coverage((0, 0, 35), (0, 85, 100), (1, 0, 50))
    assert done.made.replaced == preview.replaced
    assert (preview.replaced.rows, len(before - after)) == (
        50,
        preview.replaced.dropped_files + preview.replaced.rewritten_files,
    )
    assert len(after - before) == preview.replaced.rewritten_files
    assert lake.findings() == []


@pytest.mark.heavy
@pytest.mark.parametrize("options", [TABLES["sorted"], TABLES["bucket"]], ids=["sorted", "bucket"])
def test_a_copy_is_a_file_of_the_table_as_the_one_before_was(tmp_path: Path, options: dict[str, object]) -> None:
    lake = lake_at(tmp_path, **options)
    lake.join()
    lake.land((0, 0, 60))
    before = {(str(f.partition), f.spec_id, f.sort_order_id) for f in lake.files()}
    taken_out(lake, (0, 7, 9))
    files = lake.files()
    assert {(str(f.partition), f.spec_id, f.sort_order_id) for f in files} == before
    for file in files:
        names = ("id", "note", "day", "kafka_topic", "kafka_partition", "kafka_offset")
        ids = {lake.load().schema().find_field(name).field_id for name in names}
        assert {file.value_counts[i] for i in ids} == {file.record_count}
        assert ids <= set(file.lower_bounds) & set(file.upper_bounds)
    # The scan prunes by these statistics and partitions, and the schema of the file is found by its field ids.
    table = lake.load()
    assert sorted(table.scan("kafka_offset >= 5 and kafka_offset < 12").to_arrow()["kafka_offset"].to_pylist()) == [
        5,
        6,
        *range(9, 12),
    ]
    ids = table.scan().to_arrow()["id"].to_pylist()
    if "order" in options:
        by_day = [
            table.scan(f"day >= '2026-01-0{d}T00:00:00+00:00' and day < '2026-01-0{d + 1}T00:00:00+00:00'")
            for d in (1, 2)
        ]
        for scan in by_day:
            found = scan.to_arrow()["id"].to_pylist()
            assert found == sorted(found, reverse=True)
    assert sorted(ids) == [*range(7), *range(9, 60)]


def test_a_range_is_landed_anew_by_another_stream_and_live_goes_on(lake: RowsLake) -> None:
    lake.land((0, 0, 10), (1, 0, 10))
    lake.land((0, 10, 20))
    live = lake.state().section("orders", "live")
    lane = lake.join(lake.starting(REPLAY, (0, 5)))
    session, ranges = lake.session(), coverage((0, 5, 15))
    anew = lake.slice((0, 5, 15), epoch=lane.epoch, note="anew")
    commit = uuid4()
    previews = replace_preview(session, ranges)
    landed_anew(session, ranges, [anew], commit, lane=REPLAY, previews=previews)
    assert lake.found() == lake.expected({"first": [(0, 0, 5), (0, 15, 20), (1, 0, 10)], "anew": [(0, 5, 15)]})
    after = {s.lane: s for s in lake.state().sections}
    assert live is not None
    assert after["live"].epoch == live.epoch
    assert after["live"].covered == coverage((0, 0, 5), (0, 15, 20), (1, 0, 10))
    assert after[REPLAY].covered == ranges
    assert after[REPLAY].epoch == lane.epoch
    record = next(landing_snapshots(lake.load().metadata))
    assert (record.kind, record.rows, record.ranges) == (SnapshotKind.REPLACE, 10, ranges)
    assert record.token is not None
    again = landed_anew(session, ranges, [anew], commit, lane=REPLAY, previews=previews)[lake.name]
    assert (again.made, again.snapshot_id, again.requests) == (None, None, 0)
    assert lake.findings() == []
    lake.land((0, 20, 25), note="later")
    assert lake.found()[(22, "later", "orders", 0, 22)] == 1
    assert lake.findings() == []


@pytest.mark.heavy
def test_a_stream_that_was_closed_since_is_no_reason_to_do_it_again(lake: RowsLake) -> None:
    lake.land((0, 0, 20))
    lane = lake.join(lake.starting(REPLAY, (0, 5)))
    session, ranges, commit = lake.session(), coverage((0, 5, 15)), uuid4()
    anew = [lake.slice((0, 5, 15), epoch=lane.epoch, note="anew")]
    previews = replace_preview(session, ranges)
    for _ in range(2):
        landed_anew(session, ranges, anew, commit, lane=REPLAY, previews=previews)
        merge_section(lake.tables, lake.name, ("orders", REPLAY), had={})
    assert lake.found() == lake.expected({"first": [(0, 0, 5), (0, 15, 20)], "anew": [(0, 5, 15)]})
    assert lake.findings() == []
    with pytest.raises(LedgerError, match="LC3026"):
        landed_anew(session, ranges, anew, uuid4(), lane=REPLAY, previews=previews)
    taken_out(lake, (0, 10, 20))
    assert lake.found() == lake.expected({"first": [(0, 0, 5)], "anew": [(0, 5, 10)]})
    assert lake.findings() == []


@pytest.mark.heavy
def test_a_copy_has_all_values_that_its_rows_had(lake: RowsLake) -> None:
    """Lists, maps, decimals and uuids too, of files of our own and of another writer's."""
    columns = "id, note, day, parts::varchar, ref::varchar, named::varchar, kafka_timestamp, kafka_key"
    lake.land((0, 0, 60))
    for compacted in (False, True):
        if compacted:
            lake.compact()
        before = lake.found(columns)
        taken_out(lake, (0, 20, 40) if compacted else (0, 40, 60))
        left = range(20) if compacted else range(40)
        assert lake.found(columns) == Counter({row: n for row, n in before.items() if row[0] in left})


@pytest.mark.heavy
def test_a_copy_is_written_in_small_groups_from_small_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a file is, a block and a row group of it are held at most; deletes are of places in the file."""
    lake = lake_at(tmp_path, properties={"write.parquet.row-group-limit": "10"})
    lake.join()
    lake.land((0, 0, 95))
    delete_positions(lake.load(), "main", [(lake.files()[0], n) for n in (0, 6, 7, 13, 50, 94)])
    monkeypatch.setattr(parquet_rows, "BLOCK_ROWS", 7)
    taken_out(lake, (0, 45, 52), fewer=True)
    (file,) = lake.files()
    groups = pq.read_metadata(file.file_path.removeprefix("file://"))
    sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert (max(sizes), sum(sizes)) == (10, 95 - 6 - 6)
    left = [n for n in range(95) if n not in (0, 6, 7, 13, 50, 94, *range(45, 52))]
    assert lake.load().scan().to_arrow()["kafka_offset"].to_pylist() == left
    assert lake.findings() == []


def test_a_stream_may_land_its_own_ranges_anew(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    own = lake.state().section("orders", "live")
    assert own is not None
    session, ranges, commit = lake.session(), coverage((0, 2, 6)), uuid4()
    anew = [lake.slice((0, 2, 6), epoch=own.epoch, note="anew")]
    previews = replace_preview(session, ranges)
    for attempt in range(2):
        done = landed_anew(session, ranges, anew, commit, previews=previews)[lake.name]
        assert done.requests == 1 - attempt
    assert lake.found() == lake.expected({"first": [(0, 0, 2), (0, 6, 10)], "anew": [(0, 2, 6)]})
    now = lake.state().section("orders", "live")
    assert now is not None
    assert (now.covered, now.epoch == own.epoch) == (coverage((0, 0, 10)), False)
    assert lake.findings() == []


def test_what_is_landed_anew_must_be_what_is_taken_out(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    lane, session = lake.join(lake.starting(REPLAY, (0, 5))), lake.session()
    head = lake.state().head_id
    for slices, message in (
        ([lake.slice((0, 4, 8), epoch=lane.epoch)], r"\[4, 5\) is already in the table"),
        ([lake.slice((0, 5, 8), epoch=uuid4())], "it is of epoch"),
        ([lake.slice((0, 5, 8), epoch=lane.epoch, rows=2)], "LC3028"),
    ):
        with pytest.raises(LedgerError, match=message):
            landed_anew(session, coverage((0, 5, 10)), slices, uuid4(), lane=REPLAY)
    assert lake.state().head_id == head


def test_a_request_of_before_takes_out_nothing_that_was_landed_since(lake: RowsLake) -> None:
    """A zombie: its range was deleted by another, and landed again."""
    lake.land((0, 0, 10))
    session, ranges = lake.session(), coverage((0, 5, 10))
    previews, commit = replace_preview(session, ranges), uuid4()
    first = replace(session, ranges, commit_id=commit, previews=previews)[lake.name]
    assert first.made is not None
    lake.land((0, 5, 10), note="again")
    again = replace(session, ranges, commit_id=commit, previews=previews)[lake.name]
    assert (again.made, again.requests) == (None, 0)
    with pytest.raises(LedgerError, match="LC3027"):
        replace(session, ranges, commit_id=uuid4(), previews=previews)
    assert lake.found() == lake.expected({"first": [(0, 0, 5)], "again": [(0, 5, 10)]})
    assert lake.findings() == []


def test_a_retry_after_all_history_was_expired_replaces_nothing_twice(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    session, ranges = lake.session(), coverage((0, 5, 10))
    previews, commit = replace_preview(session, ranges), uuid4()
    replace(session, ranges, commit_id=commit, previews=previews)
    lake.land((0, 5, 10), note="again")
    table = lake.load()
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    again = replace(session, ranges, commit_id=commit, previews=previews)[lake.name]
    assert again.requests == 0
    assert lake.found() == lake.expected({"first": [(0, 0, 5)], "again": [(0, 5, 10)]})


def test_a_slice_of_before_the_deletion_is_not_taken_again(lake: RowsLake) -> None:
    """Its report is in the control log still: the new epoch says that it is over, in every stream."""
    lane = lake.join(lake.starting(REPLAY, (1, 0)))
    own = lake.state().section("orders", "live")
    assert own is not None
    old = lake.slice((0, 0, 10), epoch=own.epoch)
    lake.publish(lake.request(old))
    taken_out(lake, (0, 5, 10))
    refused = lake.publish(lake.request(lake.slice((0, 5, 10), epoch=own.epoch)))
    assert not refused.published
    assert "epoch" in str(refused.refused[0])
    now = {s.lane: s.epoch for s in lake.state().sections}
    assert now.keys() == {"live", REPLAY}
    assert {own.epoch, lane.epoch}.isdisjoint(now.values())


def test_rows_of_another_landing_stay(lake: RowsLake) -> None:
    lake.join(section("returns", starts={at(5): 0}))
    lake.land((0, 0, 20))
    lake.land((5, 0, 20), landing="returns", note="theirs")
    lake.compact()
    theirs = lake.state().section("returns", "live")
    with pytest.raises(LedgerError, match=r"does not have orders\[5\].*LC3022"):
        replace(lake.session(), coverage((0, 5, 10), (5, 5, 10)), commit_id=uuid4(), previews=_of_both(lake))
    taken_out(lake, (0, 5, 10), (5, 5, 10))
    assert lake.found() == lake.expected({"first": [(0, 0, 5), (0, 10, 20)], "theirs": [(5, 0, 20)]})
    assert lake.state().section("returns", "live") == theirs


def _of_both(lake: RowsLake) -> tuple[ReplacePreview, ...]:
    """A preview that claims what the landing has not."""
    (previewed,) = replace_preview(lake.session(), coverage((0, 5, 10)))
    return (changed(previewed, replaced=changed(previewed.replaced, ranges=coverage((0, 5, 10), (5, 5, 10)))),)


def test_a_branch_is_replaced_on_its_own(tmp_path: Path) -> None:
    lake = RowsLake(tmp_path)
    lake.make()
    lake.append_rows()
    head = lake.load().metadata.current_snapshot_id
    lake.load().manage_snapshots().create_branch(head, "audit", max_snapshot_age_ms=1000).commit()
    lake.branch = "audit"
    lake.join(branch="audit")
    lake.land((0, 0, 20))
    taken_out(lake, (0, 10, 20))
    assert lake.found() == lake.expected({"first": [(0, 0, 10)]}) + lake.foreign()
    metadata = lake.load().metadata
    assert metadata.current_snapshot_id == head
    assert metadata.refs["audit"].max_snapshot_age_ms == 1000
    assert lake.findings() == []


@pytest.mark.heavy
def test_files_of_older_schemas_and_specs_keep_what_they_have(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, spec=DAY)
    lake.join()
    lake.land((0, 0, 30))
    with lake.load().update_schema() as schema:
        schema.add_column("later", StringType())
        schema.rename_column("note", "remark")
        schema.add_column("more", LongType())
        schema.delete_column("parts")
    with lake.load().update_spec() as spec:
        spec.add_field("id", BucketTransform(2), "id_bucket")
    lake.land((0, 30, 60))
    before = Counter(lake.found("id, kafka_offset"))
    taken_out(lake, (0, 20, 40))
    assert lake.found("id, kafka_offset") == before - Counter({(o, o): 1 for o in range(20, 40)})
    read = lake.load().scan().to_arrow()
    assert sorted(read["kafka_offset"].to_pylist()) == [*range(20), *range(40, 60)]
    assert {f.spec_id for f in lake.files()} == {0, 1}
    assert set(read.column_names) >= {"remark", "later", "more"}
    assert lake.findings() == []


@pytest.mark.heavy
def test_files_of_a_partitioning_whose_column_is_missing_can_be_dropped_and_rewritten(tmp_path: Path) -> None:
    lake = lake_at(tmp_path, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "note")))
    lake.join()
    lake.land((0, 0, 20), note="one")
    lake.land((0, 20, 40), note="two")
    with lake.load().update_spec() as spec:
        spec.remove_field("note")
    with lake.load().update_schema() as schema:
        schema.delete_column("note")
    taken_out(lake, (0, 15, 30))
    assert lake.found("id") == Counter({(n,): 1 for n in (*range(15), *range(30, 40))})
    assert sorted(lake.load().scan().to_arrow()["id"].to_pylist()) == [*range(15), *range(30, 40)]
    assert lake.findings() == []


@pytest.mark.heavy
def test_statistics_that_were_cut_or_are_missing_are_made_up_for_by_reading(tmp_path: Path) -> None:
    """All topics of more than 16 letters begin alike, as far as statistics tell."""
    lake = lake_at(tmp_path, properties={"write.metadata.metrics.column.kafka_offset": "none"})
    lake.join()
    lake.land((0, 0, 20), (1, 0, 20))
    lake.land((0, 20, 30))
    preview, _ = taken_out(lake, (0, 10, 30))
    assert (preview.replaced.rows, preview.replaced.dropped_files, preview.replaced.rewritten_files) == (20, 1, 1)
    assert lake.found() == lake.expected({"first": [(0, 0, 10), (1, 0, 20)]})


@pytest.mark.heavy
def test_files_of_other_windows_are_not_read_however_wide_their_statistics_are(
    lake: RowsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file has two partitions at other offsets, so its least and greatest offset tell nothing."""
    for n in range(4):
        lake.land((0, n * 10, n * 10 + 10), (1, n * 1000, n * 1000 + 1000))
    read: list[str] = []
    real = survey.opened
    monkeypatch.setattr(survey, "opened", lambda io, path, mapping: [read.append(path), real(io, path, mapping)][1])
    (previewed,) = replace_preview(lake.session(), coverage((0, 25, 35)))
    assert (previewed.replaced.rows, len(read)) == (10, 2)
    lake.compact()
    (previewed,) = replace_preview(lake.session(), coverage((0, 25, 35)))
    assert previewed.replaced.rows == 10


def test_a_range_without_rows_moves_the_ledger_alone(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    lake.land((1, 0, 10), files=(), rows=0)
    before = {f.file_path for f in lake.files()}
    preview, done = taken_out(lake, (1, 5, 10))
    assert (preview.replaced.rows, done.requests) == (0, 1)
    assert {f.file_path for f in lake.files()} == before
    assert lake.state().covered() == coverage((0, 0, 10), (1, 0, 5))


def test_nothing_is_replaced_where_the_table_has_nothing(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    assert replace_preview(lake.session(), coverage((0, 50, 60))) == ()
    assert replace(lake.session(), coverage((0, 50, 60)), commit_id=uuid4()) == {}


def test_a_table_without_metadata_columns_is_refused_with_the_remedy(tmp_path: Path) -> None:
    fields = [f for f in ROWS_SCHEMA.fields if not f.name.startswith("kafka_")]
    lake = lake_at(tmp_path, schema=Schema(*fields))
    lake.join()
    lake.land((0, 0, 10))
    with pytest.raises(LedgerError, match="LC3023"):
        replace_preview(lake.session(), coverage((0, 0, 5)))


@pytest.mark.heavy
def test_rows_that_were_landed_before_the_columns_are_refused(tmp_path: Path) -> None:
    fields = [f for f in ROWS_SCHEMA.fields if not f.name.startswith("kafka_")]
    lake = lake_at(tmp_path, schema=Schema(*fields))
    lake.join()
    lake.land((0, 0, 10))
    with lake.load().update_schema() as schema:
        for f in ROWS_SCHEMA.fields:
            if f.name.startswith("kafka_"):
                schema.add_column(f.name, f.field_type)
    lake.land((0, 10, 20))
    for compacted in (False, True):
        if compacted:
            lake.compact()
        with pytest.raises(LedgerError, match=r"orders\[0\] \[5, 10\).*LC3023"):
            replace_preview(lake.session(), coverage((0, 5, 15)))
        with pytest.raises(LedgerError, match=r"orders\[0\] \[0, 10\).*LC3023"):
            replace(lake.session(), coverage((0, 0, 20)), commit_id=uuid4())
    ranges = [(0, 10, 20)]
    preview, _ = taken_out(lake, *ranges)
    assert preview.missing == 0


@pytest.mark.heavy
def test_rows_that_are_missing_are_noticed_where_a_window_is_cut_in_two(lake: RowsLake) -> None:
    """Of forty that were landed together thirty are requested: the ten next to them account for as many."""
    lake.land((0, 0, 40))
    lake.load().delete("id >= 20 and id < 32")
    (previewed,) = replace_preview(lake.session(), coverage((0, 10, 40)))
    assert (previewed.replaced.rows, previewed.expected, previewed.missing) == (18, 30, 12)


@pytest.mark.heavy
def test_rows_that_others_deleted_are_taken_note_of(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    lake.load().delete("id == 7")
    session, ranges = lake.session(), coverage((0, 0, 10))
    with pytest.raises(LedgerError, match=r"has 9 rows.*LC7230"):
        replace(session, ranges, commit_id=uuid4())
    replace(session, ranges, commit_id=uuid4(), fewer=True)
    assert lake.found() == Counter()
    assert lake.findings() == []
    assert any("removed 9 rows" in text for text in lake.findings(Severity.NOTE))


@pytest.mark.heavy
def test_offsets_of_a_topic_recreated_are_distinguished_by_their_readings(lake: RowsLake) -> None:
    anew = "bmV3LXRvcGljLWlkLS0tLQ"
    lake.land((0, 0, 10))
    own = lake.state().section("orders", "live")
    assert own is not None
    later = spans((0, 0, 20), topic_id=anew)
    lake.publish(lake.request(lake.slice((0, 0, 20), epoch=own.epoch, spans=later, generation=2)))
    (previewed,) = replace_preview(lake.session(), coverage((0, 5, 10)))
    assert (previewed.replaced.rows, previewed.expected) == (5, 5)
    (previewed,) = replace_preview(lake.session(), coverage((0, 5, 20), topic_id=anew))
    assert (previewed.replaced.rows, previewed.expected) == (15, 15)
    session, both = lake.session(), coverage((0, 0, 10)) | coverage((0, 0, 20), topic_id=anew)
    replace(session, both, commit_id=uuid4())
    assert lake.found() == Counter()
    own = lake.state().section("orders", "live")
    assert own is not None
    later = spans((0, 0, 15), topic_id=anew)
    lake.publish(lake.request(lake.slice((0, 0, 15), epoch=own.epoch, spans=later, generation=3)))
    replace(session, coverage((0, 5, 15), topic_id=anew), commit_id=uuid4())
    assert lake.found() == lake.expected({"first": [(0, 0, 5)]}), "what was taken out before is in nobody's way"
    assert lake.findings() == []


def test_a_rollback_afterwards_is_a_rollback_as_any(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    before = lake.state().head_id
    session, ranges = lake.session(), coverage((0, 5, 10))
    previews, commit = replace_preview(session, ranges), uuid4()
    replace(session, ranges, commit_id=commit, previews=previews)
    assert before is not None
    lake.roll_back(before)
    with pytest.raises(LedgerError, match=r"rolled back.*LC3025"):
        replace(session, ranges, commit_id=commit, previews=previews)
    renew_epochs(lake.tables, lake.name, "orders", "live")
    with pytest.raises(LedgerError, match="LC3027"):
        replace(session, ranges, commit_id=commit, previews=previews)
    assert lake.found() == lake.expected({"first": [(0, 0, 10)]})
    taken_out(lake, (0, 5, 10))
    assert lake.found() == lake.expected({"first": [(0, 0, 5)]})
    assert lake.findings() == []


@pytest.mark.heavy(but=("replace-2*",))
@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        (
            SnapshotKind.REPLACE,
            2,
            "reports that it removed 10 rows, copied 0 and left out 0 deleted ones, but the 2 removed files",
        ),
        (SnapshotKind.REPLACE, 0, "but the 0 removed files had 0"),
        (SnapshotKind.APPEND, 1, "removed 1 files of 10 rows, but does not record it"),
    ],
)
def test_a_forged_replacement_is_found(lake: RowsLake, kind: SnapshotKind, files: int, message: str) -> None:
    """Its files are missing, or are not, whatever its summary says."""
    for n in range(3):
        lake.land((0, n * 10, n * 10 + 10))
    state, took = lake.state(), Replaced(ranges=coverage((0, 20, 30)), rows=10, dropped_files=1)
    token = uuid4()
    extra = {REPLACED: took.to_text()} if kind is SnapshotKind.REPLACE else {}
    record = SnapshotRecord(kind=kind, branch="main", landing="orders", lane="live", token=token, extra=extra)
    taken = took.ranges if kind is SnapshotKind.REPLACE else coverage()
    sections = sections_after(state.sections, ("orders", "live"), taken, (), token, {})
    removed = [f.file_path for f in lake.files()[:files]]
    table = lake.load()
    rewrite = Rewrite(removed=frozenset(removed))
    forged = stage(table, "main", Change(summary=to_summary(record, sections), why=None, rewrite=rewrite))
    lake.tables.commit(table, forged.requirements, forged.updates)
    assert any(message in text for text in lake.findings()), lake.findings()


def test_history_reports_a_replacement(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    taken_out(lake, (0, 5, 10))
    history = table_history(lake.name, lake.load().metadata, "main", "orders", {})
    (replaced,) = history["replaced"]
    assert (replaced["rows"], replaced["offsets"], replaced["rewritten_files"]) == (5, {"orders[0]": [[5, 10]]}, 1)
    assert history["epochs"][0]["why"] == "ranges were removed"
    assert [w["rows"] for w in history["windows"]] == [10]


def test_the_statement_of_what_was_replaced_comes_back(lake: RowsLake) -> None:
    lake.land((0, 0, 10))
    preview, _ = taken_out(lake, (0, 5, 10))
    assert replaced_of(next(landing_snapshots(lake.load().metadata))) == preview.replaced


@pytest.mark.heavy
def test_a_thousand_files(lake: RowsLake) -> None:
    own = lake.state().section("orders", "live")
    assert own is not None
    files = [f for n in range(100) for f in lake.written((0, n * 2, n * 2 + 2))]
    lake.publish(lake.request(lake.slice((0, 0, 200), epoch=own.epoch, files=tuple(files))))
    preview, _ = taken_out(lake, (0, 51, 151))
    assert (preview.replaced.rows, preview.replaced.dropped_files, preview.replaced.rewritten_files) == (100, 49, 2)
    assert lake.found() == lake.expected({"first": [(0, 0, 51), (0, 151, 200)]})
    assert lake.findings() == []
