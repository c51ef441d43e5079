# SPDX-License-Identifier: Apache-2.0
"""Cycle after cycle: when a run ends, what it makes of jobs that die, and that a cycle that was opened is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from unittest.mock import Mock

import pytest

from airflow_provider_lakecommit.cycle.commit import drain
from airflow_provider_lakecommit.cycle.jobs import window_writer
from airflow_provider_lakecommit.cycle.run import loop, pauses
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run.pauses import MOST_IDLE_CYCLES, REFUSED_PAUSES
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ControlTopicError,
    LakecommitError,
    SourceError,
    SourceUnavailableError,
    SparkJobError,
    SpecError,
)
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError
from tests.fakes.engine import FakeEngine
from tests.fakes.session import P0, P1, FakeLanding
from tests.support.declared import changed_landing


@pytest.fixture
def engine(landing: FakeLanding) -> FakeEngine:
    return FakeEngine(landing)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, without their time."""
    made: list[float] = []
    monkeypatch.setattr(LandingRunner, "_pause", lambda _self, seconds: made.append(seconds))
    monkeypatch.setattr(pauses, "PAUSES", (0.0,))
    return made


def runner(engine: FakeEngine) -> LandingRunner:
    run = engine.landing.run_identity()
    return LandingRunner(engine.landing.session, engine, lambda n: replace(run, number=n))


def cycles(engine: FakeEngine, most: int | None = None) -> list[CycleOutcome]:
    return list(runner(engine).cycles(most=most))


def die(_: WindowJob) -> list[SliceResult]:
    raise SparkJobError("LC9999", "java is gone")


def test_a_run_that_is_caught_up_opens_no_cycle_more_to_see_that(engine: FakeEngine) -> None:
    (only,) = cycles(engine)
    assert only.caught_up
    assert only.closed.rows == 30
    assert engine.landing.kinds().count("CycleOpened") == 1


def test_a_run_that_was_deleted_and_made_anew_under_its_id_lands_what_is_new(engine: FakeEngine) -> None:
    runs = 2 * MOST_IDLE_CYCLES
    for n in range(runs):
        engine.landing.source.ends = {P0: 20 + 10 * n, P1: 10}
        assert [c.closed.rows for c in cycles(engine) if c.closed.published] == [30 if n == 0 else 10]
    assert engine.landing.kinds().count("CycleOpened") == runs


def test_a_cycle_of_a_deleted_run_does_not_count_as_one_of_the_most_cycles(engine: FakeEngine) -> None:
    cycles(engine)
    engine.landing.source.ends = {P0: 40, P1: 10}
    again = cycles(engine, most=1)
    assert [(c.number, c.opened.finished, c.closed.rows) for c in again] == [(0, True, 0), (1, False, 20)]


def test_a_run_that_can_plan_nothing_publishes_what_is_reported_before_it_ends(engine: FakeEngine) -> None:
    landing = engine.landing
    cycles(engine)
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("pending"))
    landing.source.ends, landing.source.starts = {P0: 80, P1: 10}, {P0: 60}
    other = LandingRunner(landing.session, engine, lambda n: replace(landing.run_identity("b"), number=n))
    found = other.cycles()
    assert next(found).closed.rows == 20
    with pytest.raises(SourceError, match=r"orders\[0\] \[40, 60\).*LC1303"):
        next(found)
    again = LandingRunner(landing.session, engine, lambda n: replace(landing.run_identity("c"), number=n))
    outcomes = list(_until_error(again))
    assert outcomes == [], "nothing is left to publish, and no cycle is opened for it"


@pytest.mark.parametrize(
    ("planning", "draining", "lines"),
    [
        (SourceUnavailableError("LC9999", "no answer"), ControlTopicError("LC9999", "no answer"), 0),
        (SourceUnavailableError("LC9999", "no answer"), SourceUnavailableError("LC9999", "no answer"), 0),
        (SourceUnavailableError("LC9999", "no answer"), CatalogError("LC9999", "away"), 1),
        (SourceError("LC9999", "offsets are gone"), ControlTopicError("LC9999", "no answer"), 1),
        (SpecError("LC9999", "the type is wrong"), SpecError("LC9999", "the type is wrong"), 0),
    ],
    ids=str,
)
def test_brokers_that_are_away_are_reported_once(
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    planning: LakecommitError,
    draining: LakecommitError,
    lines: int,
) -> None:
    monkeypatch.setattr(loop, "open_cycle", Mock(side_effect=planning))
    monkeypatch.setattr(drain, "drain", Mock(side_effect=draining))
    with pytest.raises(type(planning), match=planning.message + ".*LC9999"):
        cycles(engine)
    assert sum("could not publish the reported slices" in line for line in engine.landing.lines) == lines


def test_brokers_that_do_not_answer_are_not_waited_for_twice(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = Mock()
    monkeypatch.setattr(loop, "open_cycle", Mock(side_effect=SourceUnavailableError("LC9999", "no answer")))
    monkeypatch.setattr(drain, "drain", drained)
    monkeypatch.setattr(engine.landing.session.control, "answers", lambda: False)
    with pytest.raises(SourceUnavailableError):
        cycles(engine)
    drained.assert_not_called()


def _until_error(run: LandingRunner) -> Iterator[CycleOutcome]:
    with suppress(SourceError):
        yield from run.cycles()


def test_a_job_that_dies_costs_what_it_had_in_hand_and_its_cycle_is_closed(engine: FakeEngine) -> None:
    def die_early(job: WindowJob) -> list[SliceResult]:
        engine.do(job, most=1)
        return die(job)

    engine.acts.append(die_early)
    first, second = cycles(engine)
    assert (first.written.slices[SliceStatus.DONE], first.written.died, first.closed.rows) == (
        1,
        ("java is gone [LC9999]",),
        10,
    )
    assert (second.closed.rows, second.caught_up) == (20, True)
    assert engine.landing.printed(
        "1 slices (10 records) are reported and will not be read again; 20 offsets will be read again: "
    )


def test_after_earlier_work_was_waited_for_what_is_left_is_run(engine: FakeEngine) -> None:
    def wait(job: WindowJob) -> list[SliceResult]:
        engine.do(job, most=1)
        raise EarlierWorkError("LC9999", "it has ended")

    engine.acts += [wait, wait]
    (only,) = cycles(engine)
    assert [job.numbers for job in engine.jobs] == [(0, 1, 2), (1, 2), (2,)]
    assert only.written.slices == {SliceStatus.REPORTED: 2, SliceStatus.DONE: 1}
    assert only.caught_up


def test_cycles_that_move_nothing_end_the_run_with_the_last_reason(engine: FakeEngine) -> None:
    engine.acts += [die] * MOST_IDLE_CYCLES
    with pytest.raises(SparkJobError, match="LC6217"):
        cycles(engine)
    assert engine.landing.kinds().count("CycleClosed") == MOST_IDLE_CYCLES


def test_a_window_that_is_refused_is_waited_for_a_while(
    make_landing: Callable[..., FakeLanding], waits: list[float]
) -> None:
    landing = make_landing(slice_records=10, max_open_cycles=1)
    landing.open("other")
    landing.source.ends = {P0: 40, P1: 10}
    outcomes = cycles(FakeEngine(landing))
    assert tuple(waits) == REFUSED_PAUSES
    assert [o.opened.plan.refused for o in outcomes] == ["open cycles"] * (len(REFUSED_PAUSES) + 1)


def test_an_error_of_the_engine_closes_the_cycle_first(engine: FakeEngine) -> None:
    def refuse(job: WindowJob) -> list[SliceResult]:
        engine.do(job)
        raise CatalogError("LC9999", "no session")

    engine.acts.append(refuse)
    with pytest.raises(CatalogError, match="LC9999"):
        cycles(engine)
    assert engine.landing.kinds()[-2:] == ["TablePublished", "CycleClosed"]
    assert engine.stopped == 1


def test_a_run_that_is_instructed_to_stop_reports_what_is_safe_and_publishes_nothing(engine: FakeEngine) -> None:
    working = runner(engine)

    def stop(job: WindowJob) -> list[SliceResult]:
        engine.do(job, most=1)
        working.stop()
        raise EarlierWorkError("LC9999", "stopped")

    engine.acts.append(stop)
    with pytest.raises(SparkJobError, match="LC6214"):
        list(working.cycles())
    assert len(engine.jobs) == 1
    assert "TablePublished" not in engine.landing.kinds()
    assert engine.landing.printed("the next run publishes the reported slices")


def test_keys_that_cannot_be_had_keep_a_job_from_beginning_and_no_cycle_from_closing(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Secrets:
        raise CatalogError("LC9999", "no keys")

    monkeypatch.setattr(window_writer, "secrets_for", away)
    (first,) = cycles(engine, most=1)
    assert first.written.died == ("the Spark job of group 0 did not begin: no keys [LC9999] [LC6234]",)
    assert engine.landing.kinds()[-1] == "CycleClosed"


class TestYields:
    """Others go first: no window is opened as long as the session says why."""

    def test_a_window_is_opened_when_nothing_goes_before_it_any_more(
        self, engine: FakeEngine, waits: list[float]
    ) -> None:
        why = ["live is behind", "live is behind", ""]
        engine.landing.session.yields = lambda: why.pop(0) if len(why) > 1 else ""
        (only,) = cycles(engine)
        assert only.closed.rows == 30
        assert waits == [loop.YIELD_SECONDS] * 2
        assert [line for line in engine.landing.lines if "live is behind" in line] == [
            "live is behind: no window opens until that is landed"
        ]

    def test_a_run_that_waits_and_is_instructed_to_stop_opens_nothing(
        self, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        engine.landing.session.yields = lambda: "live is behind"
        waiting = runner(engine)
        monkeypatch.setattr(LandingRunner, "_pause", lambda self, _seconds: self.stop())
        with pytest.raises(SparkJobError, match="LC6214"):
            list(waiting.cycles())
        assert engine.landing.kinds() == []

    def test_no_window_is_opened_ahead_meanwhile(self, engine: FakeEngine) -> None:
        engine.ahead, landing = 1, engine.landing
        landing.session.landing = changed_landing(landing.session.landing, max_records=10)
        opened: list[int] = []

        def yields() -> str:
            opened.append(landing.kinds().count("CycleOpened") - landing.kinds().count("CycleClosed"))
            return "live is behind" if opened[-1] else ""

        landing.session.yields = yields
        assert sum(c.closed.rows for c in cycles(engine)) == 30
        assert max(opened) == 1
