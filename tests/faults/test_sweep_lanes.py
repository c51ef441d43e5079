# SPDX-License-Identifier: Apache-2.0
"""A sweep knows the files of all streams: it leaves what an open one needs, and takes what a closed one left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core import locations
from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.locations import file_mark, file_name
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.maintenance.garbage import Kept, Why
from airflow_provider_lakecommit.spark import task
from tests.faults.test_lanes import LaneWorld, lane
from tests.faults.test_replay import DECISION
from tests.faults.test_sweep import age, files, killed_task, paths_in, swept
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults


@pytest.fixture
def late(make_world: Callable[..., World], produce: Callable[..., object]) -> World:
    """A landing that began behind thirty of fifty records."""
    world = make_world(1, dead_letter_table=None)
    world.landing = world.landing.changed(window={"start": "latest"})
    produce(world.landing.topics, records(0, 30), partition=0)
    world.settle()
    produce(world.landing.topics, records(30, 20), partition=0)
    world.settle()
    return world


@pytest.fixture
def past(late: World) -> LaneWorld:
    return lane(late, "0=0-30", name="past")


ALL = Counter(range(50))


@pytest.mark.heavy
def test_what_an_open_stream_has_staged_stays_and_what_its_killed_task_left_goes(
    late: World, past: LaneWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, left = killed_task(past, "killed", monkeypatch)
    before = files(late)
    opened = past.open("staged")
    past.write(opened)
    staged = files(late) - before
    assert left
    assert staged
    age(files(late))
    done = swept(late)
    assert (done.error, done.found.keys(), done.removed) == ("", {Why.UNREPORTED.value}, len(left))
    assert done.kept[Kept.WAITS][0] == len(staged)
    past.close("staged", opened)
    past.finish()
    late.check(ALL)
    check_verified(late)
    assert files(late) == set(paths_in(late))


def test_a_zombie_of_an_open_stream_whose_files_are_missing_is_ignored(
    late: World, past: LaneWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real, before = past.open("zombie"), task.send_report, files(late)
    removed: list[int] = []

    def slow(*args: Any, **kwargs: Any) -> Any:
        age(files(late) - before)
        removed.append(swept(late).removed)
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(task, "send_report", slow)
        past.write(opened)
    assert removed[0] > 0
    past.close("zombie", opened)
    past.finish()
    late.check(ALL)
    check_verified(late)


def test_what_a_closed_stream_left_goes_though_its_log_reports_that_it_waits(
    late: World, past: LaneWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some was written twice, and nobody can publish it any more. What is reported is published when it is closed."""
    held = files(late)
    killed_task(past, "killed", monkeypatch)
    past.write(past.open("staged"))
    with past.session() as session:
        close_lane(session, decision=DECISION)
    published = set(paths_in(late)) - held
    left = files(late) - held - published
    assert published
    assert left
    age(files(late))
    preview = swept(late, remove=False)
    assert preview.found.keys() == {Why.CLOSED.value}
    assert swept(late).removed == len(left)
    assert files(late) == held | published
    late.check(ALL)
    check_verified(late)


@pytest.mark.heavy
def test_forgotten_streams_are_reported_by_the_names_of_their_files(late: World) -> None:
    with late.session() as session:
        uuid = session.tables.load(late.landing.table).metadata.table_uuid
    folder = next(iter(files(late))).parent

    def left_by(landing: str, name: str) -> Path:
        path = folder / file_name(attempt_id(uuid, uuid4()), file_mark(uuid, landing, name), 0)
        path.write_bytes(b"x")
        return path

    own, other = left_by("rows", "a-lane-of-long-ago"), left_by("others", "a-lane-of-long-ago")
    age({own, other})
    done = swept(late)
    assert (done.removed, done.kept[Kept.OTHERS][0]) == (1, 1)
    assert not own.exists()
    assert other.exists()


@pytest.mark.heavy
def test_a_stream_that_is_begun_between_the_check_and_the_removal_keeps_its_files(
    late: World, past: LaneWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had no section when the sweep began; by the time that it removes, its slices are staged."""
    from airflow_provider_lakecommit.operations.maintenance.sweep import _TableSweep

    before, real = files(late), _TableSweep.run
    lines: list[Why] = []

    def begins(self: Any, *args: Any) -> None:
        past.write(past.open("first", release=False))
        age(files(late) - before)
        real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(_TableSweep, "run", begins)
        done = swept(late, report=lambda _table, _file, why: lines.append(why))
    assert set(lines) == {Why.CLOSED}
    assert done.removed == 0
    past.finish()
    late.check(ALL)
    check_verified(late)


@pytest.mark.heavy
def test_two_streams_of_one_mark_keep_all_of_their_files(
    late: World, past: LaneWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = locations._digits
    monkeypatch.setattr(locations, "_digits", lambda many, *of: "7" * many if of[0] == "lane" else digits(many, *of))
    _, left = killed_task(past, "killed", monkeypatch)
    age(files(late))
    assert (swept(late).removed, swept(late).kept[Kept.OTHERS][0]) == (0, len(left))
    past.finish()
    late.check(ALL)
