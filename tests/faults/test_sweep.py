# SPDX-License-Identifier: Apache-2.0
"""A sweep removes what nothing needs, and nothing else: next to windows, staged slices, zombies and other writers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.locations import REPLAY, REWRITE, data_roots, file_mark, file_name
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.maintenance.garbage import Kept, Why
from airflow_provider_lakecommit.operations.maintenance.sweep import SweptTable, sweep
from airflow_provider_lakecommit.spark.job import WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from tests.support.groups import group_job
from tests.support.world import World, records

pytestmark = pytest.mark.faults

DAYS = 5 * 24 * 3600.0


def swept(
    world: World, *, older_than: timedelta = timedelta(days=3), remove: bool = True, **options: Any
) -> SweptTable:
    """Of the data table."""
    with world.session() as session:
        found = sweep(session, older_than=older_than, remove=remove, **options)
    return next(t for t in found if t.table == world.landing.table)


def files(world: World, pattern: str = "*.parquet", table: str | None = None) -> set[Path]:
    """Those below the folders of a table."""
    with world.session() as session:
        metadata = session.tables.load(table or world.landing.table).metadata
    roots = data_roots(metadata.location, metadata.properties)
    return {path for root in roots for path in Path(root.removeprefix("file://")).rglob(pattern)}


def age(some: set[Path], seconds: float = DAYS) -> None:
    """As if they had been written long ago."""
    then = time.time() - seconds
    for path in some:
        os.utime(path, (then, then))


def killed_task(world: World, run: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, set[Path]]:
    """A cycle whose slices were written and never reported."""
    before = files(world)
    opened = world.open(run)
    with monkeypatch.context() as patch:
        patch.setattr("airflow_provider_lakecommit.spark.task.send_report", _die)
        for job in jobs_of(world, opened):
            for index in range(len(job.numbers)):
                run_task(job, world.secrets, index)
    return opened, files(world) - before


def jobs_of(world: World, opened: Opened) -> list[WindowJob]:
    with world.session() as session:
        found = [group_job(world.landing, session.control, ticket, "test") for ticket in opened.groups]
    return [job for job in found if job is not None]


def _die(*_: object, **__: object) -> None:
    raise OSError("killed before its report")


@pytest.fixture
def world(make_world: Callable[..., World], produce: Callable[..., object]) -> World:
    world = make_world(1, dead_letter_table=None)
    produce(world.landing.topic_names[0], records(0, 60))
    world.settle()
    return world


def test_files_of_a_killed_task_go_and_its_range_is_landed(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = files(world)
    produce(world.landing.topic_names[0], records(60, 40))
    _, left = killed_task(world, "killed", monkeypatch)
    assert left
    assert swept(world).kept[Kept.YOUNG][0] == len(left)
    age(held | left)
    preview = swept(world, remove=False)
    assert (preview.files, preview.removed) == (len(left), 0)
    assert preview.bytes == sum(f.stat().st_size for f in left)
    assert files(world) == held | left
    done = swept(world)
    assert (done.removed, done.removed_bytes) == (preview.files, preview.bytes)
    assert files(world) == held
    world.settle()
    world.check(Counter(range(100)))


@pytest.mark.heavy
def test_what_is_staged_stays_however_old_and_is_published_after(world: World, produce: Callable[..., object]) -> None:
    before = files(world)
    produce(world.landing.topic_names[0], records(60, 40))
    opened = world.open("staged")
    world.write(opened)
    staged = files(world) - before
    age(files(world))
    done = swept(world)
    assert (done.files, done.kept[Kept.WAITS][0]) == (0, len(staged))
    world.close("staged", opened)
    world.check(Counter(range(100)))
    assert staged <= files(world)


def test_a_zombie_that_reports_after_the_sweep_is_ignored(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are missing, its claim is open, its report says nothing of that."""
    from airflow_provider_lakecommit.spark import task

    produce(world.landing.topic_names[0], records(60, 40))
    opened, before, real = world.open("zombie"), files(world), task.send_report
    removed: list[int] = []

    def late(*args: Any, **kwargs: Any) -> Any:
        age(files(world) - before)
        removed.append(swept(world).removed)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(task, "send_report", late)
        world.write(opened)
    assert removed[0] > 0
    world.close("zombie", opened)
    world.settle()
    world.check(Counter(range(100)))
    assert not [p for p in paths_in(world) if not p.exists()]


@pytest.mark.heavy
def test_a_report_just_before_the_sweep_speaks_is_kept(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports between the check the log and the word that its attempt is void."""
    from airflow_provider_lakecommit.operations.maintenance.sweep import _TableSweep
    from airflow_provider_lakecommit.spark import task

    produce(world.landing.topic_names[0], records(60, 40))
    opened, before, real, batch = world.open("late"), files(world), task.send_report, _TableSweep._remove_batch
    lines: list[int] = []

    def late(*args: Any, **kwargs: Any) -> Any:
        age(files(world) - before)

        def first(self: Any, *a: Any) -> None:
            real(*args, **kwargs)
            batch(self, *a)

        with monkeypatch.context() as patch:
            patch.setattr(_TableSweep, "_remove_batch", first)
            lines.append(swept(world).removed)

    with monkeypatch.context() as patch:
        patch.setattr(task, "send_report", late)
        world.write(opened)
    assert lines == [0] * len(lines)
    assert lines
    world.close("late", opened)
    world.check(Counter(range(100)))


@pytest.mark.heavy
def test_slices_that_were_done_twice_leave_one_copy(world: World, produce: Callable[..., object]) -> None:
    held = files(world)
    produce(world.landing.topic_names[0], records(60, 40))
    opened = world.open("twice")
    twice = [(job, n) for job in jobs_of(world, opened) for n in (*range(len(job.numbers)), *range(len(job.numbers)))]
    for job, n in twice:
        run_task(job, world.secrets, n)
    made = files(world) - held
    age(files(world))
    kept = swept(world)
    world.close("twice", opened)
    world.settle()
    assert (kept.files, kept.kept[Kept.WAITS][0]) == (0, len(files(world)) - len(held))
    assert swept(world).found.keys() == {Why.LANDED.value}
    assert files(world) == set(paths_in(world))
    assert len(made - files(world)) == len(made) // 2
    world.check(Counter(range(100)))


def paths_in(world: World) -> list[Path]:
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        return [Path(t.file.file_path.removeprefix("file://")) for t in table.scan().plan_files()]


def test_other_files_are_not_ours(world: World) -> None:
    """Names of other writers, of another landing, of an earlier table, without a mark."""
    folder = next(iter(files(world))).parent
    attempt = "8f14e45f-ceea-867a-9a36-dedd4bea2543"
    others = {
        folder / f"00000-0-{uuid4()}-00001.parquet",
        folder / f"00000-0-{uuid4()}.parquet",
        folder / f"{attempt}-00000.parquet",
        folder / f"{attempt}-{'7' * 20}00000.parquet",
        folder / "somebody.txt",
        folder.parent.parent / "metadata" / f"{uuid4()}-m0.avro",
        folder.parent.parent / "metadata" / f"snap-1-0-{uuid4()}.avro",
    }
    for path in others:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    age(others)
    done = swept(world)
    assert (done.files, done.removed) == (0, 0)
    assert (done.kept[Kept.OTHERS][0], done.kept[Kept.UNMARKED][0]) == (1, 1)
    assert all(path.exists() for path in others)


@pytest.mark.heavy
def test_a_lost_commit_leaves_nothing_once_the_head_has_moved(world: World, produce: Callable[..., object]) -> None:
    from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
    from airflow_provider_lakecommit.iceberg.ledger.stage import Change, stage

    with world.session() as session:
        table = session.tables.load(world.landing.table)
        kept = files(world, "*.avro")
        record = read_ledger(table.metadata).snapshot_id
        summary = dict(table.metadata.snapshot_by_id(record).summary.additional_properties)  # type: ignore[union-attr,arg-type]
        stage(table, "main", Change(summary=summary, why=None))
    lost = files(world, "*.avro") - kept
    assert lost
    assert swept(world).kept[Kept.YOUNG][0] == len(lost)
    age(lost)
    still = swept(world)
    assert (still.files, still.kept[Kept.IN_FLIGHT][0]) == (0, len(lost))
    produce(world.landing.topic_names[0], records(60, 10))
    world.settle()
    age(files(world, "*.avro"))
    assert swept(world).found == {Why.LOST_COMMIT.value: (len(lost), still.kept[Kept.IN_FLIGHT][1])}
    assert not lost & files(world, "*.avro")
    world.check(Counter(range(70)))


@pytest.mark.heavy
def test_a_table_recreated_in_the_same_place_keeps_the_files_of_the_old_one(world: World) -> None:
    before = files(world)
    location = next(iter(before)).parent.parent.parent
    with world.session() as session:
        session.tables.catalog.drop_table(world.landing.table)
        session.tables.catalog.create_table(
            world.landing.table, _schema(), location=f"file://{location}", properties={"format-version": "2"}
        )
    assert "remembers" in swept(world).error or "has landed nothing" in swept(world).error
    with world.session() as session:
        ledger_init(session, "earliest")
    world.settle()
    age(files(world))
    done = swept(world)
    assert (done.error, done.files, done.kept[Kept.OTHERS][0]) == ("", 0, len(before))
    assert files(world) >= before
    world.check(Counter(range(60)))


def _schema() -> Any:
    from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
    from tests.support.world import SCHEMA

    return create_from_spec(SCHEMA)[0]


def test_two_sweeps_at_once_and_one_that_was_killed_do_no_harm(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_lakecommit.operations.maintenance.listing import FileStore

    produce(world.landing.topic_names[0], records(60, 40))
    _, left = killed_task(world, "killed", monkeypatch)
    age(left)
    real, calls = FileStore.delete, 0

    class Ended(BaseException):
        pass

    def dies(self: FileStore, path: str) -> bool:
        nonlocal calls
        calls += path.endswith(".parquet")
        if calls == 2:
            raise Ended
        return real(self, path)

    def another(*_: object) -> None:
        monkeypatch.undo()
        swept(world)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "delete", dies)
        with pytest.raises(Ended):
            swept(world)
    assert left & files(world)
    done = swept(world, report=another)
    assert not done.error
    assert not left & files(world)
    world.settle()
    world.check(Counter(range(100)))


@pytest.mark.heavy
def test_what_another_landing_has_staged_into_the_table_stays(
    world: World, make_topic: Callable[..., str], produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, mine = replace(world, landing=replace(world.landing, name="others", topics=make_topic(1))), files(world)
    produce(other.landing.topic_names[0], records(500, 20))
    other.settle()
    produce(other.landing.topic_names[0], records(520, 20))
    opened = other.open("staged")
    other.write(opened)
    theirs = files(world) - mine
    produce(world.landing.topic_names[0], records(60, 40))
    _, left = killed_task(world, "killed", monkeypatch)
    staged = theirs - set(paths_in(world))
    age(files(world))
    assert staged
    done = swept(world)
    assert (done.removed, done.kept[Kept.OTHERS][0]) == (len(left), len(theirs))
    assert staged <= files(world)
    other.close("staged", opened)
    world.settle()
    world.check(Counter([*range(100), *range(500, 540)]))
    assert swept(other).files == 0


@pytest.mark.heavy
def test_a_renamed_table_is_swept_by_its_new_name(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(world.landing.topic_names[0], records(60, 40))
    _, left = killed_task(world, "killed", monkeypatch)
    age(files(world))
    with world.session() as session:
        session.tables.catalog.rename_table(world.landing.table, "shop.renamed")
    renamed = replace(world, landing=replace(world.landing, table="shop.renamed"))
    done = swept(renamed)
    assert (done.error, done.removed) == ("", len(left))
    assert not left & files(renamed)


@pytest.mark.heavy
def test_a_catalog_that_goes_away_in_the_middle_ends_it_and_nothing_is_wrong(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(world.landing.topic_names[0], records(60, 80))
    _, left = killed_task(world, "killed", monkeypatch)
    age(left)
    monkeypatch.setattr("airflow_provider_lakecommit.operations.maintenance.sweep.BATCH", 1)
    observed: list[int] = []

    def away(*_: object) -> Any:
        raise CatalogError("LC9999", "the catalog is away")

    with monkeypatch.context() as patch:

        def goes(table: SweptTable) -> None:
            observed.append(table.removed)
            patch.setattr(Tables, "load", away)

        done = swept(world, progress=goes)
    assert (done.error, observed) == ("the catalog is away [LC9999]", [1])
    assert swept(world).removed == len(left) - 1
    world.settle()
    world.check(Counter(range(140)))


@pytest.mark.heavy
@pytest.mark.parametrize("owner", [REPLAY, REWRITE])
def test_what_a_replay_or_a_compaction_left_goes_after_a_day_whatever_the_age(world: World, owner: str) -> None:
    with world.session() as session:
        uuid = session.tables.load(world.landing.table).metadata.table_uuid
    path = next(iter(files(world))).with_name(file_name(attempt_id(uuid, uuid4()), file_mark(uuid, "rows", owner), 0))
    path.write_bytes(b"x")
    age({path}, 3600.0)
    assert swept(world, older_than=timedelta(0)).kept[Kept.YOUNG] == (1, 1)
    age({path})
    assert swept(world).removed == 1
    assert not path.exists()
