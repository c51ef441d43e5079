# SPDX-License-Identifier: Apache-2.0
"""In which order the tasks of a job take its slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_lakecommit.spark import task, window
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job


@pytest.fixture
def job(tmp_path: Path) -> Iterator[WindowJob]:
    landing = FakeLanding(tmp_path)
    found = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    assert found is not None
    yield replace(found, replicas=3)
    landing.session.close()
    landing.catalog.close()


@pytest.mark.parametrize(("replica", "order"), [(0, [0, 1, 2]), (1, [2, 1, 0]), (2, [0, 1, 2])])
def test_every_second_replica_begins_at_the_other_end(
    job: WindowJob, replica: int, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def run_task(job: WindowJob, _: Secrets, index: int, *, deaths: int) -> SliceResult:
        taken.append(index)
        return SliceResult(slice=str(job.plan.slices[index]), status=SliceStatus.DONE, detail=f"{deaths}")

    monkeypatch.setattr(task, "run_task", run_task)
    text = replace(job, replica=replica).to_json()
    assert len(job.plan.slices) == len(order)
    for number in range(len(order)):
        list(window._slices(text, lambda: Secrets(kafka={}, io={}))([number]))
    assert taken == order
