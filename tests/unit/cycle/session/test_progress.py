# SPDX-License-Identifier: Apache-2.0
"""How far a window is, told from the control log while its jobs run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.progress import Progress, report_progress
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.spark.job import DECODED, WindowJob, decoded_of, note_decoded
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job

DEADLINE = 30.0


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[FakeLanding]:
    made = FakeLanding(tmp_path)
    yield made
    made.session.close()
    made.catalog.close()


def job_of(landing: FakeLanding, opened: Opened) -> WindowJob:
    found = group_job(landing.session.landing, landing.control, opened.groups[0], "fake")
    assert found is not None
    return found


class Recorded:
    """What was reported, and waiting for it."""

    def __init__(self) -> None:
        self.all: list[Progress] = []
        self._news = threading.Condition()

    def __call__(self, progress: Progress) -> None:
        with self._news:
            self.all.append(progress)
            self._news.notify_all()

    def wait_for(self, slices: int) -> Progress:
        with self._news:
            assert self._news.wait_for(lambda: self.all and self.all[-1].slices == slices, DEADLINE)
            return self.all[-1]

    def wait_for_trouble(self) -> Progress:
        with self._news:
            assert self._news.wait_for(lambda: self.all[-1].trouble, DEADLINE)
            return self.all[-1]


def test_slices_and_records_are_reported_as_they_are_reported(landing: FakeLanding) -> None:
    opened, reported = landing.open(), Recorded()
    first, *rest = opened.slices
    with report_progress(landing.control, [job_of(landing, opened)], reported, 0.01):
        reported.wait_for(0)
        landing.report(opened, lambda s: s is first)
        one = reported.wait_for(1)
        landing.report(opened, lambda s: s in rest)
        every = reported.wait_for(len(opened.slices))
    assert (one.records, one.all_records, one.all_slices) == (len(first), 30, len(opened.slices))
    assert (every.records, every.left) == (30, 0.0)
    assert one.start > 0.0, "what engines take to start is no part of the rate"
    assert [p.slices for p in reported.all].count(len(opened.slices)) == 1, "what is done is told once"
    count = len(reported.all)
    threading.Event().wait(0.05)
    assert len(reported.all) == count, "it ends with the block"


def test_decoded_records_of_slices_that_are_not_reported_count(
    landing: FakeLanding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, reported = landing.open(), Recorded()
    first, second, *_ = opened.slices
    monkeypatch.setenv(DECODED, str(tmp_path))
    note_decoded(first, 3)
    note_decoded(second, 1_000_000)
    assert decoded_of([first]) == 3
    with report_progress(landing.control, [job_of(landing, opened)], reported, 0.01):
        begun = reported.wait_for(0)
        landing.report(opened)
        ended = reported.wait_for(len(opened.slices))
    assert (begun.slices, begun.records) == (0, 30), "never more than there are"
    assert (ended.records, begun.left) == (30, 0.0)
    (tmp_path / str(second.slice_id)).unlink()
    assert decoded_of(opened.slices) == 3
    monkeypatch.delenv(DECODED)
    note_decoded(second, 7)
    assert decoded_of(opened.slices) == 0


def test_what_was_reported_before_is_no_part_of_it(landing: FakeLanding) -> None:
    opened, reported = landing.open(), Recorded()
    landing.report(opened, lambda s: s is opened.slices[0])
    with report_progress(landing.control, [job_of(landing, opened)], reported, 0.01):
        assert reported.wait_for(0).all_slices == len(opened.slices) - 1


def test_a_log_that_cannot_be_read_is_checked_again_and_stops_nothing(landing: FakeLanding) -> None:
    opened, reported = landing.open(), Recorded()
    job = job_of(landing, opened)
    with report_progress(landing.control, [job], reported, 0.01):
        reported.wait_for(0)
        landing.control.away = ControlTopicError("LC9999", "away")
        landing.control.away = None
        landing.report(opened)
        reported.wait_for(len(opened.slices))
    landing.control.away = ControlTopicError("LC9999", "away")
    with report_progress(landing.control, [job], reported, 0.01):
        pass
    with report_progress(landing.control, [], reported, 0.01):
        pass


def test_brokers_that_are_away_are_reported_with_what_was_known_before(landing: FakeLanding) -> None:
    opened, reported = landing.open(), Recorded()
    first = opened.slices[0]
    with report_progress(landing.control, [job_of(landing, opened)], reported, 0.01):
        landing.report(opened, lambda s: s is first)
        reported.wait_for(1)
        landing.control.away = ControlTopicError("LC9999", "no answer from Kafka")
        line = str(reported.wait_for_trouble())
        assert line.startswith(f"1 of {len(opened.slices)} slices, {len(first)} of 30 records were reported")
        assert "no answer from Kafka" in line
        assert "left" not in line, "nobody knows how long it takes then"
        landing.control.away = None
        landing.report(opened, lambda s: s is not first)
        assert not reported.wait_for(len(opened.slices)).trouble


def test_an_error_of_the_job_passes_through(landing: FakeLanding) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        report_progress(landing.control, [job_of(landing, landing.open())], Recorded(), 0.01),
    ):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ((0, 29, 0, 580_000, 12.4, 12.4), "0 of 29 slices, 0 of 580,000 records after 12 s"),
        (
            (12, 29, 240_000, 580_000, 8.0, 0.0),
            "12 of 29 slices, 240,000 of 580,000 records, 30,000 records/s, about 11 s left",
        ),
        (
            (2, 20, 30_000, 300_000, 50.0, 40.0),
            "2 of 20 slices, 30,000 of 300,000 records, 3,000 records/s, about 1 min left",
        ),
        ((1, 2, 1, 3, 0.0, 0.0), "1 of 2 slices, 1 of 3 records, 0 records/s, about 0 s left"),
    ],
)
def test_it_is_one_line(progress: tuple[int, int, int, int, float, float], text: str) -> None:
    slices, all_slices, records, all_records, seconds, start = progress
    made = Progress(
        slices=slices, all_slices=all_slices, records=records, all_records=all_records, seconds=seconds, start=start
    )
    assert text == str(made)
    assert f"{text}; Spark runs 3 tasks" == str(replace(made, running=3))
