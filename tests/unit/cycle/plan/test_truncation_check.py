# SPDX-License-Identifier: Apache-2.0
"""Slices that wait to be published and were read under several leader epochs: whose log is asked, and whose is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.outcome import Commit, Ended, decide
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.truncation_check import diverged_logs, truncated
from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import RunOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.status.status import read_status
from airflow_provider_lakecommit.status.status_rules import StatusVerdict, status_verdict
from tests.fakes.engine import FakeEngine
from tests.fakes.kafka import FakeSource
from tests.fakes.session import DATA, DEAD, P1, FakeLanding
from tests.support.story import ORDERS, P0, Story

ANEW = SourcePartition("orders", 0, "made anew")


def session(source: FakeSource) -> LandingSession:
    return cast(LandingSession, SimpleNamespace(source=source))


def read_under(*epochs: int) -> LandingState:
    """A slice of ten offsets for each epoch, none of them published."""
    story = Story()
    story.opens("a", [[(P0, 10 * n, 10 * n + 10)] for n in range(len(epochs))])
    for n, epoch in enumerate(epochs):
        story.reports("a", [(P0, 10 * n, 10 * n + 10)])
        last = story.entries[-1]
        assert isinstance(last, SliceReported)
        (span,) = last.report.spans
        read = replace(span, position=ReadPosition(offset=10 * n + 10, leader_epoch=epoch))
        story.entries[-1] = replace(last, report=replace(last.report, spans=(read,)))
    return story.landing_state()


def test_what_was_read_of_a_log_that_is_another_one_is_voided() -> None:
    state = read_under(0, 1)
    source = FakeSource({P0: 20}, epochs={P0: [0, 5]})
    first, _ = state.accepted[ORDERS]
    assert list(truncated(session(source), state, ORDERS)) == [first.report.attempt]


def test_what_was_read_of_a_topic_that_is_missing_or_recreated_is_kept() -> None:
    state = read_under(3, 4)
    assert truncated(session(FakeSource({ANEW: 5})), state, ORDERS) == {}
    assert truncated(session(FakeSource({}, missing=("orders",))), state, ORDERS) == {}


def test_the_way_on_passes_over_nothing_that_a_table_still_lacks(tmp_path: Path) -> None:
    """Here what is reported and not published lies across the place where the log became another one. A dead-letter
    table that has passed all of it holds nothing back.
    """
    landing = FakeLanding(tmp_path, {"dead_letter_table": DEAD}, leader_epoch=0)
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("b"))
    landing.source.epochs = {P0: [0, 35], P1: [0]}
    plan = landing.open("c").plan
    assert plan.refused is RefusalState.DIVERGED
    assert "orders:0=20" in plan.stopped


@pytest.fixture
def diverged(make_landing: Callable[..., FakeLanding]) -> FakeLanding:
    """The first log lost five records that were landed, and grew to where it ended before; the second has new ones."""
    landing = make_landing()
    landing.leader_epoch = 0
    landing.cycle("a")
    landing.source.ends = {P0: 20, P1: 25}
    landing.source.epochs = {P0: [0, 15], P1: [0]}
    return landing


def test_other_partitions_are_planned_and_landed_behind_one_whose_log_is_another(diverged: FakeLanding) -> None:
    opened = diverged.open("b")
    assert {s.partition for each in opened.slices for s in each.spans} == {P1}
    assert "orders[0]" in opened.plan.stopped
    assert "orders[1]" not in opened.plan.stopped
    diverged.report(opened)
    closed = diverged.close("b", opened)
    assert (closed.rows, closed.stopped) == (15, opened.plan.stopped)
    assert closed.valid_through is None
    assert decide(_ended(closed))[0] == "failed"


def test_a_plan_with_nothing_else_to_read_names_the_log_too(diverged: FakeLanding) -> None:
    diverged.source.ends[P1] = 10
    closed = diverged.cycle("b")
    assert closed.stopped
    assert decide(_ended(closed))[0] == "failed"


def test_where_all_logs_are_others_nothing_is_opened(diverged: FakeLanding) -> None:
    diverged.source.epochs = {P0: [0, 15], P1: [0, 5]}
    with pytest.raises(SourceError):
        diverged.open("b")


def test_a_run_lands_the_other_partitions_to_their_end_and_is_red(diverged: FakeLanding) -> None:
    diverged.session = diverged.connect(max_records=5)
    run = diverged.run_identity("b")
    runner = LandingRunner(diverged.session, FakeEngine(diverged), lambda n: replace(run, number=n))
    outcomes = list(runner.cycles())
    assert sum(o.closed.rows for o in outcomes) == 15
    assert RunOutcome.of("rows", outcomes).closed.stopped


def test_status_names_a_log_that_grew_to_exactly_its_old_end(diverged: FakeLanding) -> None:
    diverged.source.ends[P1] = 10
    found = read_status(diverged.session)
    assert found.lag == 0
    assert "orders[0]" in found.diverged
    assert status_verdict(found)[0] is StatusVerdict.BLOCKED
    diverged.source.epochs = {P0: [0, 20]}
    assert status_verdict(read_status(diverged.session))[0] is StatusVerdict.WELL


def test_what_is_reported_of_a_lost_log_is_named_with_its_table(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing()
    landing.leader_epoch = 0
    landing.report(landing.open("a"))
    landing.source.epochs = {P0: [0, 5], P1: [0]}
    losses = diverged_logs(landing.session, *_observed(landing))[1]
    assert f"{DATA} gets rows of orders[0] [5, 20)" in losses
    landing.close("a")
    losses = diverged_logs(landing.session, *_observed(landing))[1]
    assert f"{DATA} has rows of orders[0] [5, 20)" in losses


def _observed(landing: FakeLanding) -> tuple[LandingState, SourceState]:
    ledgers = prepare_for_commit(landing.session).ledgers
    return landing.session.read_state(ledgers).state, landing.source.watermarks()


def _ended(closed: Closed) -> Ended:
    return Ended(plan="success", groups={}, commit="success", closed=Commit.from_dict(closed.to_dict()))
