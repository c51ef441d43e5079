# SPDX-License-Identifier: Apache-2.0
"""Whose claims a plan may take over: asked of Airflow, and only where the answer is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pytest

from airflow_provider_lakecommit.core.identity import cycle_id
from airflow_provider_lakecommit.core.model import LIVE, Cycle
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.hooks.settings import Settings
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.tasks.ended_runs import EndedRuns

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")


@dataclass
class Answers:
    """A task instance that knows some runs, or gets no answer at all."""

    runs: dict[tuple[str, str], str]
    away: bool = False
    dag_id: str = "land"
    run_id: str = "own"

    def get_dr_count(self, dag_id: str, run_ids: Sequence[str], states: Sequence[str] | None = None) -> int:
        if self.away:
            raise ConnectionError("the API server is away")
        found = [self.runs[dag_id, run] for run in run_ids if (dag_id, run) in self.runs]
        return sum(states is None or state in states for state in found)


@dataclass
class Here:
    landing: Landing
    lane: str = LIVE


def cycle(run: str, *, dag: str = "land", deployment: str | None = None, number: int = 0) -> Cycle:
    owner = deployment or Settings.read().deployment_id
    made = cycle_id(owner, ORDERS.name, LIVE, dag, run, number)
    return Cycle(commit_id=made, dag=dag, run=run, number=number, slot=0)


def has_ended(answers: Answers, of: Cycle) -> bool:
    task = PlanWindowOperator(task_id="plan", landing=ORDERS)
    return EndedRuns(answers, task.log).of(cast(LandingSession, Here(ORDERS)))(of)


@pytest.mark.parametrize(
    ("state", "ended"),
    [("queued", False), ("running", False), ("restarting", False), ("success", True), ("failed", True), (None, True)],
)
def test_a_run_is_missing_when_it_has_ended_or_is_not_there(state: str | None, ended: bool) -> None:
    runs = {("land", "other"): state} if state else {}
    assert has_ended(Answers(runs), cycle("other", number=2)) is ended


def test_a_run_of_another_dag_of_this_airflow_is_requested_there() -> None:
    assert has_ended(
        Answers({("renamed", "other"): "failed", ("land", "other"): "running"}), cycle("other", dag="renamed")
    )


def test_a_run_that_is_not_there_may_be_of_an_airflow_of_the_same_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert has_ended(Answers({}), cycle("other"))
    assert "another Airflow also has the [lakecommit] deployment_id 'airflow'" in capsys.readouterr().out


def test_the_own_run_is_alive_whatever_airflow_reports() -> None:
    assert not has_ended(Answers({}), cycle("own"))


def test_cycles_of_other_deployments_and_of_the_command_line_are_not_ours_to_evaluate() -> None:
    assert not has_ended(Answers({}), cycle("other", deployment="elsewhere"))
    assert not has_ended(Answers({}), replace(cycle("other"), run="another"))


def test_without_an_answer_everybody_is_alive() -> None:
    assert not has_ended(Answers({}, away=True), cycle("other"))
