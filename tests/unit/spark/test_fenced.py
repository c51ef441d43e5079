# SPDX-License-Identifier: Apache-2.0
"""A report whose sender was shut out by another attempt at the same slice: it is in the log, or it is said that not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import Slice
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.cycle.results import GroupTicket, Opened
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.report import TAKEOVERS, send_report
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job


class Attempts:
    """Attempts at the first slice of a window."""

    def __init__(self, path: Path) -> None:
        self.landing = FakeLanding(path, {"slice_records": 10})
        self.opened: Opened = self.landing.open()
        ticket: GroupTicket = self.opened.groups[0]
        job = group_job(self.landing.session.landing, self.landing.control, ticket, "lake")
        assert job is not None
        self.job: WindowJob = job
        self.work: Slice = job.plan.slices[0]

    def report(self, **problem: str) -> UUID:
        """Another attempt is faster."""
        (attempt,) = self.landing.report(self.opened, lambda s: s == self.work, **problem)
        return attempt

    def part(self, start: int, end: int, **problem: str) -> UUID:
        """Another attempt does offsets of the slice's first partition by themselves."""
        spans = (replace(self.work.spans[0], range=OffsetRange(start, end)),)
        own = slice_id(self.job.plan.window_id, spans, self.work.tables)
        part = replace(self.work, spans=spans, slice_id=own)
        (attempt,) = self.landing.report(replace(self.opened, slices=(part,)), **problem)
        return attempt

    def send(self, send: Callable[[], object], attempt: UUID | None = None, *, done: bool = True) -> SliceResult | None:
        control: Any = self.landing.control
        return send_report(control, self.job, self.work, attempt or uuid4(), send, done=done)

    def reports(self) -> int:
        return sum(isinstance(e, SliceReported) for e in self.landing.session.read_state(()).entries)


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    made = Attempts(tmp_path)
    yield made
    made.landing.session.close()
    made.landing.catalog.close()


def fenced(times: int, then: Callable[[], object] = lambda: None, before: Callable[[], object] = lambda: None) -> Any:
    """A sender that is shut out so many times."""
    left = [times]

    def send() -> object:
        if left[0]:
            left[0] -= 1
            before()
            raise FencedError("LC9999", "taken over")
        return then()

    return send


def test_what_is_sent_is_sent_once(attempts: Attempts) -> None:
    assert attempts.send(attempts.report) is None
    assert attempts.reports() == 1


@pytest.mark.parametrize("times", [1, TAKEOVERS])
def test_who_is_shut_out_by_one_that_reports_nothing_reports_itself(attempts: Attempts, times: int) -> None:
    assert attempts.send(fenced(times, attempts.report)) is None
    assert attempts.reports() == 1


def test_who_is_shut_out_for_ever_never_ends_in_success(attempts: Attempts) -> None:
    with pytest.raises(FencedError):
        attempts.send(fenced(TAKEOVERS + 1, attempts.report))
    assert attempts.reports() == 0


def test_what_another_attempt_has_reported_is_reported(attempts: Attempts) -> None:
    result = attempts.send(fenced(1, before=attempts.report))
    assert result is not None
    assert (result.status, result.status.is_reported) == (SliceStatus.REPORTED, True)
    assert attempts.reports() == 1


@pytest.mark.parametrize("problem", ["blocked", "failed"])
def test_what_another_attempt_could_not_do_either_is_reported_as_it_reported_it(
    attempts: Attempts, problem: str
) -> None:
    result = attempts.send(fenced(1, before=lambda: attempts.report(**{problem: "no such column"})), done=False)
    assert result is not None
    assert (result.status, result.detail) == (SliceStatus(problem), "no such column")
    assert attempts.reports() == 1


@pytest.mark.parametrize("problem", ["blocked", "failed"])
def test_what_another_attempt_could_not_do_is_reported_by_one_that_has_done_it(
    attempts: Attempts, problem: str
) -> None:
    """The other one may have said so an hour ago."""
    attempts.report(**{problem: "storage keys expired"})
    assert attempts.send(fenced(1, attempts.report)) is None
    assert attempts.reports() == 2


def test_what_failed_as_one_does_not_hide_which_part_of_it_fails(attempts: Attempts) -> None:
    attempts.report(failed="boom")
    spans = (replace(attempts.work.spans[0], range=OffsetRange(4, 5)),)
    own = slice_id(attempts.job.plan.window_id, spans, attempts.work.tables)
    attempts.work = replace(attempts.work, spans=spans, slice_id=own)
    assert attempts.send(fenced(1, lambda: attempts.part(4, 5, failed="boom")), done=False) is None
    assert attempts.reports() == 2


@pytest.mark.parametrize(
    ("problem", "status"), [({}, SliceStatus.REPORTED), ({"failed": "damaged"}, SliceStatus.FAILED)]
)
def test_what_another_attempt_has_done_in_parts_is_reported(
    attempts: Attempts, problem: dict[str, str], status: SliceStatus
) -> None:
    attempts.part(0, 4)
    result = attempts.send(fenced(1, before=lambda: attempts.part(4, 10, **problem)))
    assert result is not None
    assert result.status is status
    assert attempts.reports() == 2


def test_a_part_is_not_the_slice(attempts: Attempts) -> None:
    assert attempts.send(fenced(1, attempts.report, before=lambda: attempts.part(0, 4))) is None
    assert attempts.reports() == 2


def test_an_answer_that_was_lost_is_no_other_attempt(attempts: Attempts) -> None:
    lines: list[UUID] = []

    def send() -> None:
        lines.append(attempts.report())
        raise FencedError("LC9999", "taken over")

    attempt = uuid4()
    control: Any = attempts.landing.control
    # The id of the attempt is known when it is sent.
    result = send_report(control, attempts.job, attempts.work, attempt, send)
    assert result is not None
    assert result.detail == f"by attempt {lines[0]}"
    assert attempts.send(fenced(1), attempt=lines[0]) is None


def test_for_a_cycle_that_is_over_nothing_is_reported(attempts: Attempts) -> None:
    result = attempts.send(fenced(1, attempts.report, before=lambda: attempts.landing.complete(attempts.opened)))
    assert result is not None
    assert (result.status, result.status.is_reported) == (SliceStatus.SUPERSEDED, False)
    assert attempts.reports() == 0


def test_a_cycle_that_the_log_has_forgotten_is_over(attempts: Attempts) -> None:
    partition = attempts.opened.ticket.partition
    result = attempts.send(fenced(1, before=lambda: attempts.landing.control.cut(partition, 2)))
    assert result is not None
    assert result.status is SliceStatus.SUPERSEDED


def test_a_log_that_cannot_be_read_is_no_success(attempts: Attempts) -> None:
    def away() -> None:
        attempts.landing.control.away = ControlTopicError("LC9999", "away")

    with pytest.raises(ControlTopicError, match="LC9999"):
        attempts.send(fenced(1, before=away))


def test_an_unreadable_record_of_the_landing_is_passed_over(attempts: Attempts) -> None:
    sender = attempts.landing.session.sender("write", attempts.job.commit_id)
    entry = attempts.landing.control.logs[attempts.opened.ticket.partition][0]
    assert entry is not None
    corrupted = replace(entry, headers=(("lakecommit", b"{"),))
    assert sender.landing == "rows"
    attempts.landing.control.logs[attempts.opened.ticket.partition].append(corrupted)
    assert attempts.send(fenced(1, attempts.report)) is None
