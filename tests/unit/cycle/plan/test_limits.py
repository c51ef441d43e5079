# SPDX-License-Identifier: Apache-2.0
"""The limits of a window: as declared, and by target as the newest windows of the table tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.core.planning.window_target import ASSUMED_RATE
from airflow_provider_lakecommit.cycle.plan import read_landing_state
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.landing import Landing, Window
from tests.fakes.session import P0, P1, FakeLanding
from tests.support.declared import landing_of
from tests.support.groups import group_job

MakeLanding = Callable[..., FakeLanding]
PLENTY = 10_000_000
pytestmark = pytest.mark.usefixtures("no_sample")
SECOND = SliceCost(read_seconds=0.5, decode_seconds=0.25, write_seconds=0.25, bytes=1_000_000)


@pytest.fixture
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker to ask how large records are."""
    monkeypatch.setattr(read_landing_state, "sizes", lambda *_: {})


def with_targets(make_landing: MakeLanding, **fields: object) -> FakeLanding:
    """A backlog, and slices of a second each."""
    landing = make_landing(**{"slice_records": Window.slice_records, **fields})
    landing.source.ends = {P0: PLENTY, P1: PLENTY}
    landing.cost = SECOND
    return landing


def cycle(landing: FakeLanding, run: str) -> int:
    opened = landing.open(run)
    landing.report(opened)
    landing.close(run, opened)
    return len(opened.plan.coverage)


def test_without_a_target_all_there_is_makes_a_window_and_measurements_change_nothing(
    make_landing: MakeLanding,
) -> None:
    landing = with_targets(make_landing)
    assert cycle(landing, "a") == 2 * PLENTY
    assert "measured" in "".join(landing.snapshots()[-1])
    assert not any("target" in line for line in preview(landing.session).explain)


def test_windows_follow_what_the_windows_before_took(make_landing: MakeLanding) -> None:
    landing = with_targets(make_landing, target_window=timedelta(seconds=4))
    assert cycle(landing, "a") == 4 * ASSUMED_RATE
    # One slice of a second: 200,000 records a second would make 800,000, the step allows half of that.
    second = landing.open("b")
    assert second.explain[0].startswith("window.target 4 s: 1 window measured, ")
    assert len(second.plan.coverage) == 8 * ASSUMED_RATE
    assert second.explain[1] == "2 slices of about 1.0 s, 1 in parallel"


def test_the_same_log_and_tables_make_the_same_plan(make_landing: MakeLanding) -> None:
    landing = with_targets(make_landing, target_window="4s", target_file_size=5_000_000)
    cycle(landing, "a")
    first, again = preview(landing.session), preview(landing.connect())
    assert (first.plan.slices, first.explain) == (again.plan.slices, again.explain)


def test_files_come_to_their_size(make_landing: MakeLanding) -> None:
    landing = with_targets(make_landing, target_file_size=2_000_000, max_records=1_000_000)
    assert cycle(landing, "a") == 1_000_000
    assert {len(s) for s in landing.open("b").slices} == {500_000}


def test_groups_by_load_share_a_hot_partition(make_landing: MakeLanding) -> None:
    landing = make_landing(groups=2, group_by="load")
    landing.source.ends = {P0: 80, P1: 10}
    assert [(g.group, g.records) for g in landing.open().groups] == [(0, 50), (1, 40)]


def test_a_lopsided_window_is_named(make_landing: MakeLanding) -> None:
    landing = make_landing(groups=3)
    landing.source.ends = {P0: 80, P1: 10}
    assert any("group 0 has 80 of 90 records; `window.group_by: load`" in line for line in landing.open().explain)


def test_an_executor_of_the_release_before_gets_no_target(make_landing: MakeLanding) -> None:
    landing = make_landing(target_window=60, target_file_size=1_000_000, group_by="load")
    job = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    assert job is not None
    landing_of_job = json.loads(job.to_json())["landing"]
    assert not {"target_window", "target_file_size", "group_by"} & landing_of_job.keys()
    assert landing_of_job["slice_records"] == 10


def test_a_target_changes_no_row() -> None:
    fields = {"name": "a", "topics": "a", "table": "shop.a"}
    landing = landing_of(**fields, target_window=60, target_file_size=1, group_by="load")
    assert landing.window.target == timedelta(minutes=1)
    assert Landing.from_dict(landing.to_dict()) == landing
    assert landing_of(**fields).spec_version == landing.spec_version
