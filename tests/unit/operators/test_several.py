# SPDX-License-Identifier: Apache-2.0
"""What a commit task for several landings is told, and how the outcome of one of them is read from it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ControlTopicError,
    LakecommitError,
    SourceUnavailableError,
    SpecError,
    StorageError,
    TableError,
)
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import CLOSED, FAILURE
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings

A, B = (Landing(name=name, topics=name, table=f"shop.{name}") for name in "ab")


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"landing": A},
        {"plan_task_id": "plan"},
        {"landings": [A, B]},
        {"landings": [A, B], "plan_task_ids": ["a"]},
        {"landings": [], "plan_task_ids": []},
        {"landings": [A], "plan_task_ids": ["a"], "landing": B},
        {"landings": [A], "plan_task_ids": ["a"], "plan_task_id": "b"},
        {"landing": A, "plan_task_id": "a", "plan_task_ids": ["a"]},
    ],
)
def test_one_landing_or_several_each_with_its_plan(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give either `landing` and `plan_task_id`, or `landings`"):
        LakeCommitOperator(task_id="commit", **told)


def test_landings_of_one_task_have_different_names() -> None:
    with pytest.raises(SpecError, match="a is there twice"):
        LakeCommitOperator(task_id="commit", landings=[A, A], plan_task_ids=["one", "two"])


def test_every_landing_has_its_asset_as_an_outlet() -> None:
    task = LakeCommitOperator(task_id="commit", landings=[A, B], plan_task_ids=["a", "b"])
    assert task.outlets == [asset_of(A), asset_of(B)]


def test_the_outcome_tells_why_the_first_group_failed() -> None:
    asked: dict[str, Any] = {"task_ids": "write", "key": FAILURE, "map_indexes": 1}
    states = {"plan": "success", "write_0": "success", "write_1": "failed", "write_2": "failed", "commit": "skipped"}
    ti = SimpleNamespace(
        dag_id="dag",
        run_id="run",
        get_task_states=lambda **_: {"run": states},
        xcom_pull=lambda **told: "SpecError: no such connection" if told == asked else None,
    )
    task = OutcomeOperator(task_id="outcome", plan_task_id="plan", write_task_id="write", commit_task_id="commit")
    assert task._ended({"ti": ti}).unwritten == "SpecError: no such connection"  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    "error",
    [
        TableError("there is no table"),
        ControlTopicError("no answer from Kafka"),
        SourceUnavailableError("no answer from Kafka"),
        StorageError("not to be written"),
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

    monkeypatch.setattr("airflow_provider_lakecommit.cycle.close.close_cycle", close)
    monkeypatch.setattr(LakeCommitOperator, "session", lambda _: nullcontext())
    with DAG("judged"):
        task = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
        task >> OutcomeOperator(task_id="outcome", plan_task_id="plan", write_task_id="write", commit_task_id="commit")
    with pytest.raises(AirflowSkipException, match="nothing was planned, and nothing can be published"):
        task._close({"ti": ti})  # type: ignore[typeddict-item]
    assert str(error) in left[CLOSED][FAILURE]
    # Nobody else would keep the run from being green.
    alone = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
    with pytest.raises((LakecommitError, AirflowFailException)):
        alone._close({"ti": ti})  # type: ignore[typeddict-item]
    raised[0] = CatalogError("away")
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
    place = {"lane": "live", "slot": 0, "partition": 0, "read_from": 0}
    return {"landing": landing, "commit_id": str(UUID(int=1)), **place}


def test_the_plan_of_another_landing_is_refused_by_those_that_work_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
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
    told = r"plan that this task was given is of landing 'former', .* of landing 'a'\..*give it the name 'former' back"
    with pytest.raises(AirflowFailException, match=told):
        commit._close(context)
    assert "'former'" in left[CLOSED][FAILURE]
    monkeypatch.setattr(ConcurrentLandings, "tables", lambda *_: pytest.fail("asked for connections"))
    several = LakeCommitOperator(task_id="several", landings=[A, B], plan_task_ids=["b", "a"])
    with pytest.raises(AirflowFailException, match=r"^2 of 2 landings failed: a: SpecError: .*plan_task_ids"):
        several._execute_several(context)
    group = {"cycle": ticket("former"), "group": 0, "slices": 1, "records": 1, "label": ""}
    write = WriteWindowOperator(task_id="write", landing=A, group=group)
    with pytest.raises(AirflowFailException, match=told):
        write._execute()


def test_an_outcome_of_tasks_that_are_not_there_names_them() -> None:
    """Before, it said for ever that the commit task *ended None*."""
    with DAG("d"):
        plan = PlanWindowOperator(task_id="plan", landing=A)
        commit = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
        task = OutcomeOperator(
            task_id="outcome", plan_task_id="plan", write_task_id="land.write", commit_task_id="comit"
        )
        plan >> commit >> task
    with pytest.raises(AirflowFailException) as told:
        OutcomeOperator.execute.__wrapped__(task, {})  # type: ignore[attr-defined]
    assert "commit_task_id='comit' is no task of its DAG (did you mean 'commit'?)" in str(told.value)
    assert "write_task_id='land.write' is no task of its DAG" in str(told.value)
    assert "plan_task_id" not in str(told.value)


@pytest.mark.parametrize(
    ("whose", "state", "failure"), [(A, "success", None), (B, "failed", "the catalog is away")], ids=["a", "b"]
)
def test_the_failure_of_another_landing_is_none_of_ones_own(whose: Landing, state: str, failure: str | None) -> None:
    closed = {"a": Closed(commit_id=UUID(int=1), reason="nothing new").to_dict(), "b": {FAILURE: "the catalog is away"}}
    ti = SimpleNamespace(
        dag_id="dag",
        run_id="run",
        get_task_states=lambda **_: {"run": {"plan": "success", "commit": "failed"}},
        xcom_pull=lambda task_ids, key, map_indexes: closed if (task_ids, key) == ("commit", CLOSED) else None,
    )
    task = OutcomeOperator(
        task_id="outcome", plan_task_id="plan", write_task_id="write", commit_task_id="commit", landing=whose
    )
    ended = task._ended({"ti": ti})  # type: ignore[typeddict-item]
    assert ended.commit == state
    assert (ended.closed is None, ended.failure) == (failure is not None, failure or "")
