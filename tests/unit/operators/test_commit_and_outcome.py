# SPDX-License-Identifier: Apache-2.0
"""What a commit task makes of its plan, and what an outcome task reads of the tasks before it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ControlTopicError,
    LakecommitError,
    SourceUnavailableError,
    StorageError,
    TableError,
)
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import CLOSED, FAILURE
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator

A = Landing(name="a", topics="a", table="shop.a")
TASKS = {"plan_task_id": "plan", "write_task_id": "write", "commit_task_id": "commit"}


def test_the_outcome_reports_why_the_first_group_failed() -> None:
    requested: dict[str, Any] = {"task_ids": "write", "key": FAILURE, "map_indexes": 1}
    states = {"plan": "success", "write_0": "success", "write_1": "failed", "write_2": "failed", "commit": "skipped"}
    ti = SimpleNamespace(
        dag_id="dag",
        run_id="run",
        get_task_states=lambda **_: {"run": states},
        xcom_pull=lambda **options: "SpecError: no such connection" if options == requested else None,
    )
    task = OutcomeOperator(task_id="outcome", landing=A, **TASKS)
    assert task._ended({"ti": ti}).unwritten == "SpecError: no such connection"  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    "error",
    [
        TableError("LC9999", "there is no table"),
        ControlTopicError("LC9999", "no answer from Kafka"),
        SourceUnavailableError("LC9999", "no answer from Kafka"),
        StorageError("LC9999", "not to be written"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_commit_that_fails_of_what_the_plan_failed_of_is_skipped_and_another_error_is_its_own(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One mistake is one red task."""
    left: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="dag", run_id="run", try_number=1, max_tries=0, xcom_pull=lambda **_: None, xcom_push=left.__setitem__
    )
    raised: list[Exception] = [error]

    def close(*_: object, **__: object) -> Closed:
        raise raised[0]

    monkeypatch.setattr("airflow_provider_lakecommit.cycle.commit.close.close_cycle", close)
    monkeypatch.setattr(LakeCommitOperator, "session", lambda _: nullcontext())
    with DAG("judged"):
        task = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
        task >> OutcomeOperator(task_id="outcome", landing=A, **TASKS)
    with pytest.raises(AirflowSkipException, match="nothing was planned, and nothing can be published"):
        task._close({"ti": ti})  # type: ignore[typeddict-item]
    assert str(error) in left[CLOSED][FAILURE]
    # Nobody else would keep the run from being green.
    alone = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
    with pytest.raises((LakecommitError, AirflowFailException)):
        alone._close({"ti": ti})  # type: ignore[typeddict-item]
    raised[0] = CatalogError("LC9999", "away")
    with pytest.raises(CatalogError):
        task._close({"ti": ti})  # type: ignore[typeddict-item]
    # Of a landing that never reached its catalog the plan fails, too.
    ti.xcom_pull = lambda *, key, **_: "CatalogError: away" if key == FAILURE else None
    with pytest.raises(AirflowSkipException, match="nothing was planned"):
        task._close({"ti": ti})  # type: ignore[typeddict-item]
    ti.xcom_pull = lambda *, key, **_: "SourceError: no such topic" if key == FAILURE else None
    with pytest.raises(CatalogError):
        task._close({"ti": ti})  # type: ignore[typeddict-item]


def ticket(landing: str) -> dict[str, Any]:
    position = {"lane": "live", "slot": 0, "partition": 0, "read_from": 0}
    return {"landing": landing, "commit_id": str(UUID(int=1)), **position}


def test_the_plan_of_another_landing_is_refused_by_those_that_work_by_it() -> None:
    """A landing that was renamed while a run was under way: the run was green, and nothing of it in the table."""
    left: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="dag",
        run_id="run",
        try_number=1,
        max_tries=0,
        xcom_pull=lambda **_: ticket("former"),
        xcom_push=left.__setitem__,
    )
    context: Any = {"ti": ti}
    commit = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
    message = r"the plan is of landing 'former', .* of landing 'a'\..*restore the name 'former'"
    with pytest.raises(AirflowFailException, match=message):
        commit._close(context)
    assert "'former'" in left[CLOSED][FAILURE]
    group = {"cycle": ticket("former"), "group": 0, "slices": 1, "records": 1, "label": ""}
    write = WriteWindowOperator(task_id="write", landing=A, group=group)
    with pytest.raises(AirflowFailException, match=message):
        write._execute()


def test_an_outcome_of_tasks_that_are_not_there_names_them() -> None:
    """Before, it said for ever that the commit task *ended None*."""
    with DAG("d"):
        plan = PlanWindowOperator(task_id="plan", landing=A)
        commit = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
        task = OutcomeOperator(
            task_id="outcome", landing=A, plan_task_id="plan", write_task_id="land.write", commit_task_id="comit"
        )
        plan >> commit >> task
    with pytest.raises(AirflowFailException) as raised:
        OutcomeOperator.execute.__wrapped__(task, {})  # type: ignore[attr-defined]
    assert "commit_task_id='comit' is no task of its DAG (did you mean 'commit'?)" in str(raised.value)
    assert "write_task_id='land.write' is no task of its DAG" in str(raised.value)
    assert "plan_task_id" not in str(raised.value)
