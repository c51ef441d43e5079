# SPDX-License-Identifier: Apache-2.0
"""Windows that are under way next to the one that is closed next: their order, their number, and what a failure, a stop
or a retry makes of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.jobs.window_writer import WindowWrite
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.plan.resume import cycles_of
from airflow_provider_lakecommit.cycle.run import loop
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, ControlTopicError, SparkJobError
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.launch.base import AHEAD
from tests.fakes.session import P0, P1, FakeLanding
from tests.unit.cycle.run.test_loop import FakeEngine

SECONDS = 30.0
"""For what other threads do at once."""


@dataclass
class ByWindow(FakeEngine):
    """``on`` is done instead of the job of the window that begins at so many of the first partition, once."""

    ahead: int = AHEAD
    on: dict[int, Callable[[WindowJob], list[SliceResult]]] = field(default_factory=dict)
    begun: dict[int, threading.Event] = field(default_factory=dict)

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        first = job.plan.slices[0].spans[0].range.start
        self.jobs.append(job)
        self.has_begun(first).set()
        return self.on.pop(first, self.do)(job)

    def has_begun(self, first: int) -> threading.Event:
        return self.begun.setdefault(first, threading.Event())

    def after(self, other: int) -> Callable[[WindowJob], list[SliceResult]]:
        """A job that is done only when that of another window has begun."""

        def act(job: WindowJob) -> list[SliceResult]:
            if not self.has_begun(other).wait(SECONDS):
                raise SparkJobError("LC9999", f"the window at {other} did not begin")
            return self.do(job)

        return act


@pytest.fixture
def engine(make_landing: Callable[..., FakeLanding]) -> ByWindow:
    """Forty records of one partition, in windows of ten."""
    return engine_of(make_landing())


def engine_of(landing: FakeLanding) -> ByWindow:
    landing.source.ends = {P0: 40, P1: 0}
    return ByWindow(landing)


@pytest.fixture
def make_landing(make_landing: Callable[..., FakeLanding]) -> Callable[..., FakeLanding]:
    return lambda **fields: make_landing(**{"max_records": 10, **fields})


def runner(engine: FakeEngine, run: str = "a") -> LandingRunner:
    identity = engine.landing.run_identity(run)
    return LandingRunner(engine.landing.session, engine, lambda n: replace(identity, number=n))


def windows(outcomes: list[CycleOutcome]) -> list[tuple[int, int]]:
    """Number and rows of each."""
    return [(o.number, o.closed.rows) for o in outcomes]


def test_windows_are_written_side_by_side_and_closed_in_order(engine: ByWindow) -> None:
    engine.on = {0: engine.after(20), 10: engine.after(20)}
    outcomes = list(runner(engine).cycles())
    assert windows(outcomes)[0][0] == 0
    assert [o.number for o in outcomes] == [0, 1, 2, 3]
    assert sum(o.closed.rows for o in outcomes) == 40
    assert [o.caught_up for o in outcomes] == [False, False, False, True]
    kinds = [k for k in engine.landing.kinds() if k in ("CycleOpened", "CycleClosed")]
    assert kinds[: 1 + AHEAD] == ["CycleOpened"] * (1 + AHEAD)
    assert sorted(kinds) == ["CycleClosed"] * 4 + ["CycleOpened"] * 4


def test_each_offset_is_planned_once(engine: ByWindow) -> None:
    list(runner(engine).cycles())
    spans = sorted((s.range.start, s.range.end) for job in engine.jobs for each in job.plan.slices for s in each.spans)
    assert spans == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_windows_under_way_have_slots_of_their_own(engine: ByWindow) -> None:
    engine.on = {0: engine.after(20), 10: engine.after(20)}
    list(runner(engine).cycles())
    assert [job.slot for job in sorted(engine.jobs, key=lambda j: j.plan.slices[0].spans[0].range.start)][:3] == [
        0,
        1,
        2,
    ]


@pytest.mark.heavy(but=("2-2",))
@pytest.mark.parametrize(("limit", "at_once"), [(1, 1), (2, 2), (9, 1 + AHEAD)])
def test_no_more_windows_are_open_than_the_landing_allows(
    make_landing: Callable[..., FakeLanding], limit: int, at_once: int
) -> None:
    engine = engine_of(make_landing(max_open_cycles=limit))
    outcomes = list(runner(engine).cycles())
    assert not any(o.deferred for o in outcomes), "none is opened only to be refused"
    assert sum(o.closed.rows for o in outcomes) == 40
    open_, most = 0, 0
    for kind in engine.landing.kinds():
        open_ += {"CycleOpened": 1, "CycleClosed": -1}.get(kind, 0)
        most = max(most, open_)
    assert most == at_once


def test_windows_that_take_so_long_that_claims_might_end_are_done_one_by_one(
    make_landing: Callable[..., FakeLanding], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(make_landing(completion_timeout=3600))
    monkeypatch.setattr(WindowWrite, "seconds", property(lambda _: 601.0))
    outcomes = list(runner(engine).cycles())
    assert sum(o.closed.rows for o in outcomes) == 40
    kinds = [k for k in engine.landing.kinds() if k in ("CycleOpened", "CycleClosed")]
    assert kinds[-2:] == ["CycleOpened", "CycleClosed"], "as soon as it is known, none is ahead"


def test_a_run_of_one_cycle_opens_no_other(engine: ByWindow) -> None:
    assert windows(list(runner(engine).cycles(most=1))) == [(0, 10)]
    assert engine.landing.kinds().count("CycleOpened") == 1


def test_a_window_that_fails_is_done_again_alone_while_newer_ones_wait(engine: ByWindow) -> None:
    def die(job: WindowJob) -> list[SliceResult]:
        engine.has_begun(20).wait(SECONDS)
        raise SparkJobError("LC9999", "java is gone")

    engine.on = {0: die}
    outcomes = list(runner(engine).cycles())
    assert [o.number for o in outcomes] == [0, 1, 2, 3, 4]
    assert [o.written.slices[SliceStatus.DONE] for o in outcomes] == [0, 1, 1, 1, 1]
    assert [o.closed.rows for o in outcomes[:3]] == [0, 0, 0], "what is newer waits for the hole"
    assert outcomes[1].closed.waiting
    again = outcomes[3].opened.plan.coverage
    assert again == Coverage.of((span.partition, span.range) for s in outcomes[0].opened.slices for span in s.spans)
    assert outcomes[3].closed.rows == 30, "the hole, and all that waited for it"
    assert outcomes[-1].caught_up
    kinds = [k for k in engine.landing.kinds() if k in ("CycleOpened", "CycleClosed")]
    assert kinds[6:9] == ["CycleOpened", "CycleClosed", "CycleOpened"], "nothing is ahead of the one that mends"


def test_a_last_window_does_not_end_a_run_that_lacks_an_older_one(engine: ByWindow) -> None:
    engine.landing.source.ends = {P0: 20, P1: 0}

    def die(job: WindowJob) -> list[SliceResult]:
        engine.has_begun(10).wait(SECONDS)
        raise SparkJobError("LC9999", "java is gone")

    engine.on = {0: die}
    outcomes = list(runner(engine).cycles())
    assert outcomes[1].caught_up, "by itself"
    assert windows(outcomes) == [(0, 0), (1, 0), (2, 20)]


def test_the_next_run_of_the_process_ends_what_a_run_that_raised_has_claimed(
    engine: ByWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.on = {n: lambda job: [] for n in (0, 10, 20)}
    with monkeypatch.context() as patched:
        patched.setattr(loop, "close_cycle", Mock(side_effect=CatalogError("LC9999", "gone")))
        with pytest.raises(CatalogError):
            list(runner(engine).cycles())
    outcomes = list(runner(engine, "b").cycles())
    assert sum(outcome.closed.rows for outcome in outcomes) == 40
    assert outcomes[-1].caught_up


def test_a_run_that_is_done_again_in_its_process_goes_on_with_its_own_cycles(
    engine: ByWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(loop, "close_cycle", Mock(side_effect=CatalogError("LC9999", "gone")))
        with pytest.raises(CatalogError):
            list(runner(engine).cycles())
    outcomes = list(runner(engine).cycles())
    assert sum(outcome.closed.rows for outcome in outcomes) == 40
    assert not any(outcome.released for outcome in outcomes)


def test_a_cycle_whose_start_could_not_be_read_back_is_ended_by_the_next_run(
    engine: ByWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*args: Any, **options: Any) -> None:
        open_cycle(*args, **options)
        raise ControlTopicError("LC9999", "cannot be read back")

    with monkeypatch.context() as patched:
        patched.setattr(loop, "open_cycle", opened)
        with pytest.raises(ControlTopicError):
            list(runner(engine).cycles())
    assert sum(outcome.closed.rows for outcome in runner(engine, "b").cycles()) == 40


def test_a_commit_that_fails_ends_the_run_when_the_windows_ahead_have_reported(
    engine: ByWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failing = loop.close_cycle, [True]
    released = threading.Event()

    def refuse(*args: object, **options: object) -> object:
        if failing:
            failing.clear()
            released.set()
            raise CommitUnknownError("LC9999", "no")
        return real(*args, **options)  # type: ignore[arg-type]

    def late(job: WindowJob) -> list[SliceResult]:
        released.wait(SECONDS)
        return engine.do(job)

    monkeypatch.setattr(loop, "close_cycle", refuse)
    engine.on = {10: late, 20: late}
    with pytest.raises(CommitUnknownError):
        list(runner(engine).cycles())
    assert engine.landing.printed("2 windows are still being written; the next run publishes their slices")
    assert engine.landing.kinds().count("SliceReported") == 3
    begun = len(engine.jobs)

    again = runner(engine)
    earlier = cycles_of(engine.landing.session, engine.landing.run_identity())
    assert earlier is not None
    assert (earlier.number, earlier.finished(None)) == (0, False)
    outcomes = list(again.cycles(earlier.number))
    assert [o.number for o in outcomes] == [0, 1, 2, 3]
    assert sum(o.closed.rows for o in outcomes) == 40
    assert len(engine.jobs) == begun + 1, "what was reported is not read again"


def test_a_run_whose_older_window_was_not_done_is_not_finished(engine: ByWindow) -> None:
    """Its process died after the newer windows were closed and before the hole was planned again."""
    landing = engine.landing
    landing.source.ends = {P0: 20, P1: 0}
    session, run = landing.session, landing.run_identity()
    older = loop.open_cycle(session, run)
    newer = loop.open_cycle(session, replace(run, number=1))
    landing.report(newer)
    for n, opened in enumerate((older, newer)):
        loop.close_cycle(session, replace(run, number=n), opened.ticket)
    earlier = cycles_of(session, run)
    assert earlier is not None
    assert (earlier.number, earlier.finished(None)) == (2, False)
    assert [o.closed.rows for o in runner(engine).cycles(earlier.number)] == [20]
    after = cycles_of(session, run)
    assert after is not None
    assert after.finished(None)


def test_what_keeps_a_window_ahead_from_being_opened_is_raised_when_the_others_are_closed(
    engine: ByWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, opened = loop.open_cycle, []

    def refuse(*args: object, **options: object) -> object:
        if len(opened) == 2:
            raise CatalogError("LC9999", "gone")
        opened.append(real(*args, **options))  # type: ignore[arg-type]
        return opened[-1]

    monkeypatch.setattr(loop, "open_cycle", refuse)
    found = runner(engine).cycles()
    done = [next(found), next(found)]
    assert ([o.number for o in done], sum(o.closed.rows for o in done)) == ([0, 1], 20)
    with pytest.raises(CatalogError, match="LC9999"):
        next(found)


def test_a_stop_ends_all_windows_under_way_and_reports_what_of_each_is_saved(engine: ByWindow) -> None:
    working = runner(engine)

    def stop(job: WindowJob) -> list[SliceResult]:
        engine.has_begun(20).wait(SECONDS)
        working.stop()
        raise SparkJobError("LC9999", "it was told to stop")

    engine.on = {0: stop}
    with pytest.raises(SparkJobError, match="LC6214"):
        list(working.cycles())
    assert "CycleClosed" not in engine.landing.kinds()
    assert sum("records) are reported" in line for line in engine.landing.lines) >= 3
    assert engine.stopped
    earlier = cycles_of(engine.landing.session, engine.landing.run_identity())
    assert earlier is not None
    assert earlier.number == 0
    assert sum(o.closed.rows for o in runner(engine).cycles(0)) == 40


def test_who_stops_asking_for_cycles_stops_the_windows_under_way(engine: ByWindow) -> None:
    found = runner(engine).cycles()
    next(found)
    assert engine.stopped == 0
    found.close()
    assert engine.stopped == 1
