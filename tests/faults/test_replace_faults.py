# SPDX-License-Identifier: Apache-2.0
"""Replacements that go wrong, and what others do next to them: the rows of the range are missing once, or not
at all.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, LedgerError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.replace import Removal, replace_ranges
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.swap import Swapped
from airflow_provider_lakecommit.iceberg.parquet.parquet import OpenFile
from airflow_provider_lakecommit.operations.backfill import range_replacement as replacing
from airflow_provider_lakecommit.operations.backfill.copier import Copier
from airflow_provider_lakecommit.operations.backfill.range_replacement import ReplacePreview, replace, replace_preview
from tests.fakes.catalog import Fault
from tests.fakes.lake import coverage
from tests.fakes.position_deletes import delete_equal, delete_positions
from tests.fakes.replaced_lake import RowsLake, lake_at
from tests.support.dying import COMMIT_POINTS, Point, dying, killed_in
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.faults

BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
RANGES = coverage((0, 5, 25))
LEFT = {"first": [(0, 0, 5), (0, 25, 30), (1, 0, 10)]}
COMMIT = UUID(int=7)
REAL = RetryPolicy(seconds=60, first_wait=0.01, longest_wait=0.2)


@pytest.fixture
def lake(tmp_path: Path) -> RowsLake:
    return filled(lake_at(tmp_path))


def filled(lake: RowsLake) -> RowsLake:
    lake.join()
    lake.land((0, 0, 10), (1, 0, 10))
    lake.land((0, 10, 20))
    lake.land((0, 20, 30))
    return lake


def replaced(lake: RowsLake, previewed: tuple[ReplacePreview, ...] | None = None, **policy: Any) -> Swapped[Removal]:
    with pytest.MonkeyPatch.context() as patch:
        tried = partial(replace_ranges, retry_policy=lake.clock.retry_policy(**policy))
        patch.setattr(replacing, "replace_ranges", tried)
        return replace(lake.session(), RANGES, commit_id=COMMIT, previews=previewed)[lake.name]


def preview(lake: RowsLake) -> tuple[ReplacePreview, ...]:
    return replace_preview(lake.session(), RANGES)


def replacements(lake: RowsLake) -> int:
    return sum(1 for r in landing_snapshots(lake.load().metadata) if r.kind is SnapshotKind.REPLACE)


def check_done(lake: RowsLake, more: Counter[tuple[Any, ...]] | None = None, *, orphans: bool = False) -> None:
    assert lake.found() == lake.expected(LEFT) + (more or Counter())
    assert replacements(lake) == 1
    assert lake.findings() == []
    if not orphans:
        known = {f.file_path for s in lake.load().metadata.snapshots for f in _files(lake, s.snapshot_id)}
        assert lake.parquet_files() <= known


def _files(lake: RowsLake, snapshot_id: int) -> list[Any]:
    table = lake.load()
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return [e.data_file for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io)]


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [Fault.LYING_CONFLICT, Fault.LOST_ANSWER])
def test_a_replacement_that_was_applied_in_secret_is_recognised(lake: RowsLake, fault: Fault) -> None:
    lake.catalog.faults.append(fault)
    done = replaced(lake)
    assert (done.requests, done.snapshot_id) == (1, lake.load().metadata.current_snapshot_id)
    check_done(lake)


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.CONFLICT, Fault.FALSE_SUCCESS])
def test_a_replacement_that_was_not_applied_is_sent_again_with_the_same_copies(lake: RowsLake, fault: Fault) -> None:
    previewed = preview(lake)
    before = lake.parquet_files()
    lake.catalog.faults.extend([fault, fault])
    done = replaced(lake)
    assert (done.requests, done.made.replaced) == (3, previewed[0].replaced)
    assert len(lake.parquet_files() - before) == previewed[0].replaced.rewritten_files == 2
    check_done(lake)


@pytest.mark.heavy
def test_an_outage_that_lasts_leaves_all_as_it_may_be_and_the_next_call_finds_it(lake: RowsLake) -> None:
    previewed = preview(lake)
    lake.catalog.faults.append(Fault.AWAY_AFTER)
    with pytest.raises(CommitUnknownError, match="LC3019"):
        replaced(lake, previewed)
    lake.catalog.away = False
    assert replaced(lake, previewed).requests == 0
    check_done(lake)


@pytest.mark.heavy
def test_a_catalog_that_is_away_is_an_error_before_anything_is_written(lake: RowsLake) -> None:
    previewed, before = preview(lake), lake.parquet_files()
    lake.catalog.away = True
    with pytest.raises(CatalogError):
        replaced(lake, previewed)
    lake.catalog.away = False
    assert lake.parquet_files() == before
    assert replacements(lake) == 0


def test_a_request_that_arrives_late_can_not_be_applied(lake: RowsLake) -> None:
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    assert replaced(lake).requests == 2
    lake.land((0, 5, 25), note="again")
    with pytest.raises(CommitFailedException):
        lake.catalog.deliver()
    assert lake.found() == lake.expected({**LEFT, "again": [(0, 5, 25)]})


def test_the_copies_of_a_request_that_may_arrive_stay(lake: RowsLake) -> None:
    previewed = preview(lake)
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    with pytest.raises(CommitUnknownError):
        replaced(lake, previewed, requests=1)
    lake.catalog.deliver()
    assert replaced(lake, previewed).requests == 0
    check_done(lake)


def once(lake: RowsLake, act: Callable[[], object]) -> None:
    """Between the next look and its request."""

    def interfere() -> None:
        lake.catalog.before_commit = lambda: None
        act()

    lake.catalog.before_commit = interfere


def test_what_others_append_meanwhile_stays(lake: RowsLake) -> None:
    once(lake, lake.append_rows)
    assert replaced(lake).requests == 2
    check_done(lake, lake.foreign())


@pytest.mark.heavy
def test_what_others_compact_meanwhile_is_checked_again(lake: RowsLake) -> None:
    once(lake, lake.compact)
    done = replaced(lake)
    assert done.requests == 2
    assert done.made is not None
    assert (done.made.replaced.rewritten_files, done.made.replaced.copied_rows, done.made.replaced.rows) == (1, 20, 20)
    check_done(lake)


@pytest.mark.heavy
def test_what_is_landed_meanwhile_stays(lake: RowsLake) -> None:
    once(lake, lambda: lake.land((0, 30, 40), (1, 10, 15), note="live"))
    assert replaced(lake).requests == 2
    check_done(lake, lake.expected({"live": [(0, 30, 40), (1, 10, 15)]}))


@pytest.mark.heavy
def test_a_ledger_that_is_set_anew_meanwhile_ends_it(lake: RowsLake) -> None:
    previewed, before = preview(lake), lake.parquet_files()
    other = replace_preview(lake.session(), coverage((0, 20, 30)))
    once(lake, lambda: replace(lake.session(), coverage((0, 20, 30)), commit_id=uuid4(), previews=other))
    with pytest.raises(LedgerError, match="LC3027"):
        replaced(lake, previewed)
    assert lake.found() == lake.expected({"first": [(0, 0, 20), (1, 0, 10)]})
    assert len(lake.parquet_files() - before) == 2, "copies of a request that was sent stay for a clean-up"


@pytest.mark.heavy
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "buckets"])
@pytest.mark.parametrize("bounds", [False, True], ids=["plain", "bounds"])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_rows_that_position_deletes_took_out_do_not_come_back(
    tmp_path: Path, partitioned: bool, bounds: bool, meanwhile: bool
) -> None:
    lake = filled(lake_at(tmp_path, **({"spec": BUCKET} if partitioned else {})))

    def delete() -> None:
        rows = [f for f in lake.files() if f.record_count >= 4]
        delete_positions(lake.load(), "main", [(f, n) for f in rows for n in (0, 3)], bounds=bounds)

    before = lake.found()
    if meanwhile:
        once(lake, delete)
    else:
        delete()
        assert sum(lake.found().values()) < 40
    deleted = None if meanwhile else before - lake.found()
    done = replace(lake.session(), RANGES, commit_id=COMMIT, fewer=True)[lake.name]
    assert done.requests == 1 + meanwhile
    assert done.made is not None
    left = lake.found()
    assert not left - lake.expected(LEFT)
    if deleted is not None:
        assert left == lake.expected(LEFT) - deleted
        assert done.made.replaced.rows == 20 - sum((deleted - lake.expected(LEFT)).values())
        assert done.made.replaced.deleted_rows > 0
    assert lake.findings() == []


@pytest.mark.heavy
def test_a_file_whose_other_rows_are_all_deleted_is_dropped(lake: RowsLake) -> None:
    (file,) = [f for f in lake.files() if f.record_count == 20]
    rest = [n for n in range(20) if n not in range(5, 10)]
    delete_positions(lake.load(), "main", [(file, n) for n in rest])
    previewed = preview(lake)[0].replaced
    assert (previewed.dropped_files, previewed.rewritten_files, previewed.rows, previewed.deleted_rows) == (
        2,
        1,
        20,
        15,
    )
    replaced(lake)
    assert lake.found() == lake.expected({"first": [(0, 25, 30)]})
    assert lake.findings() == []


@pytest.mark.heavy
def test_equality_deletes_are_refused_by_name_where_they_apply(lake: RowsLake) -> None:
    delete_equal(lake.load(), "main", lake.files()[0], "id", 7)
    with pytest.raises(TableError, match="LC7234"):
        preview(lake)
    lake.land((0, 30, 40))
    (previewed,) = replace_preview(lake.session(), coverage((0, 32, 40)))
    assert previewed.replaced.rows == 8, "they are older than these rows"


@pytest.mark.heavy
def test_storage_that_is_full_leaves_nothing(lake: RowsLake, monkeypatch: pytest.MonkeyPatch) -> None:
    previewed, before, made = preview(lake), lake.parquet_files(), [0]
    close = OpenFile.close

    def full(self: OpenFile, *args: Any) -> Any:
        made[0] += 1
        if made[0] == 2:
            raise OSError(28, "No space left on device")
        return close(self, *args)

    monkeypatch.setattr(OpenFile, "close", full)
    with pytest.raises(CatalogError, match="LC7209"):
        replaced(lake, previewed)
    assert lake.parquet_files() == before
    monkeypatch.undo()
    replaced(lake, previewed)
    check_done(lake)


def test_two_at_once_replace_once(lake: RowsLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "replace_ranges", partial(replace_ranges, retry_policy=REAL))
    previewed, errors, sent = preview(lake), [], []

    def run() -> None:
        try:
            with lake.another() as other:
                tables = Tables(lake.catalog_properties, connect=lambda *_, **__: other)
                session = lake.session(tables)
                done = replace(session, RANGES, commit_id=COMMIT, previews=previewed)[lake.name]
                sent.append(done.made is not None)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert sorted(sent) == [False, False, False, True]
    check_done(lake)


KILLS: dict[str, Point] = {
    "a copy is begun": (OpenFile, "write", "before"),
    "a copy is made": (Copier, "_copied", "after"),
    **COMMIT_POINTS,
}


def killed(path: Path, previewed: tuple[ReplacePreview, ...], point: str) -> None:
    """In a process of its own."""
    with dying(KILLS[point]):
        replaced(RowsLake(path), previewed)


@pytest.mark.heavy(but=("nobody was told",))
@pytest.mark.parametrize("point", KILLS)
def test_whenever_it_is_killed_the_next_call_does_what_is_left(tmp_path: Path, point: str) -> None:
    lake = filled(lake_at(tmp_path))
    previewed = preview(lake)
    killed_in(killed, tmp_path, previewed, point)
    found = lake.found()
    assert found in (lake.expected(LEFT), lake.expected({"first": [(0, 0, 30), (1, 0, 10)]}))
    assert (found == lake.expected(LEFT)) == (point in ("nobody was told", "all is done"))
    for _ in range(2):
        replaced(lake, previewed)
        check_done(lake, orphans=True)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(12), ids=str)
def test_random_replacements_leave_what_a_set_of_rows_reports(tmp_path: Path, seed: int) -> None:
    """Landed, deleted, landed again, compacted, appended to by others: against a plain set, and `verify`."""
    choose = random.Random(seed)
    lake = lake_at(tmp_path, spec=BUCKET if seed % 2 else PartitionSpec())
    lake.join()
    rows, foreign = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for step in range(8):
        missing = [(p, a, b) for p in (0, 1) for a, b in _holes(_covered(lake, p))]
        ranges = missing or [(p, o, o + choose.randint(1, 40)) for p in (0, 1) for o in [_end(_covered(lake, p))]]
        lake.land(*ranges, note=f"step {step}")
        rows += lake.expected({f"step {step}": ranges})
        if choose.random() < 0.3:
            lake.compact()
        if choose.random() < 0.3 and not foreign:
            lake.append_rows()
            foreign = lake.foreign()
        p = choose.choice([0, 1])
        start, end = sorted(choose.randint(0, _end(_covered(lake, p))) for _ in range(2))
        session, target = lake.session(), coverage((p, start, end))
        if previewed := replace_preview(session, target):
            done = replace(session, target, commit_id=uuid4(), previews=previewed)[lake.name]
            assert done.made.replaced == previewed[0].replaced
            rows = Counter({r: n for r, n in rows.items() if not (r[3] == p and start <= r[4] < end)})
        assert lake.found() == rows + foreign
    assert lake.findings() == []


def _covered(lake: RowsLake, partition: int) -> list[OffsetRange]:
    return next((list(s) for p, s in lake.state().covered().parts.items() if p.partition == partition), [])


def _end(covered: list[OffsetRange]) -> int:
    return covered[-1].end if covered else 0


def _holes(covered: list[OffsetRange]) -> list[tuple[int, int]]:
    """What a stream that goes on from offset 0 lacks."""
    begins = [0, *(r.end for r in covered)]
    return [(a, r.start) for a, r in zip(begins, covered, strict=False) if r.start > a]
