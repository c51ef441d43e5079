# SPDX-License-Identifier: Apache-2.0
"""A commit that nobody evaluates keeps a run from being green over what failed in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from uuid import UUID

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import FAILURE
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator

A, B = (Landing(name=name, topics=name, table=f"shop.{name}") for name in "ab")
NOTHING_NEW = Closed(commit_id=UUID(int=1), reason="nothing new")
WELL = {"plan": "success", "write_0": "success", "write_1": "success"}


def ended(
    monkeypatch: pytest.MonkeyPatch,
    states: Mapping[str, str],
    closed: Closed,
    *,
    with_outcome: bool = False,
    write: bool = True,
) -> BaseException:
    """How a commit ends that closed its cycle so, behind tasks that ended so."""

    def pulled(*, task_ids: str, key: str, map_indexes: int) -> str | None:
        return "SpecError: no such connection" if (task_ids, key, map_indexes) == ("write", FAILURE, 1) else None

    ti = SimpleNamespace(
        dag_id="d",
        run_id="r",
        try_number=1,
        max_tries=0,
        xcom_pull=pulled,
        xcom_push=lambda *_: None,
        get_task_states=lambda **_: {"r": dict(states)},
    )
    monkeypatch.setattr("airflow_provider_lakecommit.cycle.commit.close.close_cycle", lambda *_, **__: closed)
    monkeypatch.setattr(LakeCommitOperator, "session", lambda _: nullcontext())
    with DAG("d"):
        plan = PlanWindowOperator(task_id="plan", landing=A)
        commit = LakeCommitOperator(task_id="commit", landing=A, plan_task_id="plan")
        written = WriteWindowOperator.partial(task_id="write", landing=A).expand(group=plan.output)
        (written if write else plan) >> commit
        if with_outcome:
            outcome = OutcomeOperator(
                task_id="outcome", landing=A, plan_task_id="plan", write_task_id="write", commit_task_id="commit"
            )
            # Not right behind it: a check of the author's stands between.
            commit >> LakeCommitOperator(task_id="more", landing=B, plan_task_id="plan") >> outcome
    with pytest.raises((AirflowSkipException, AirflowFailException)) as found:
        LakeCommitOperator.execute.__wrapped__(commit, {"ti": ti})  # type: ignore[attr-defined]
    return found.value


@pytest.mark.parametrize("missing", [(), ("orders[0][0, 20)",)])
def test_a_failed_write_makes_the_run_red_with_its_cause_first(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    found = ended(monkeypatch, WELL | {"write_1": "failed"}, Closed(commit_id=UUID(int=1), missing=missing))
    assert isinstance(found, AirflowFailException)
    assert str(found).startswith("SpecError: no such connection; task write_1 ended failed; ")
    assert "OutcomeOperator" in str(found)


@pytest.mark.parametrize(
    ("closed", "message"),
    [
        (Closed(commit_id=UUID(int=1), blocked=("orders[0] [0, 20): bad",)), "orders[0] [0, 20): bad"),
        (Closed(commit_id=UUID(int=1), missing=("orders[0][0, 20)",)), "orders[0][0, 20)"),
        (Closed(commit_id=UUID(int=1), missing=("orders[0][0, 20)",), causes=("disk full",)), "disk full"),
    ],
    ids=["blocked by an earlier run", "missing", "cause"],
)
def test_so_does_what_the_window_lacks(monkeypatch: pytest.MonkeyPatch, closed: Closed, message: str) -> None:
    found = ended(monkeypatch, WELL, closed)
    assert isinstance(found, AirflowFailException)
    assert str(found).startswith(message) or message in str(found).split(";")[0]


def test_nothing_new_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ended(monkeypatch, WELL, NOTHING_NEW)
    assert isinstance(found, AirflowSkipException)


def test_with_an_outcome_task_behind_it_the_commit_leaves_that_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ended(monkeypatch, WELL | {"write_1": "failed"}, NOTHING_NEW, with_outcome=True)
    assert isinstance(found, AirflowSkipException)


@pytest.mark.parametrize("write", [True, False])
def test_a_write_task_that_is_missing_or_not_before_the_commit_is_named(
    monkeypatch: pytest.MonkeyPatch, write: bool
) -> None:
    found = ended(monkeypatch, WELL, Closed(commit_id=UUID(int=1), missing=("orders[0][0, 20)",)), write=write)
    assert ("no WriteWindowOperator is upstream of task commit" in str(found)) is not write


def test_where_nothing_was_to_be_written_none_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(ended(monkeypatch, WELL, NOTHING_NEW, write=False), AirflowSkipException)
