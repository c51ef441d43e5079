# SPDX-License-Identifier: Apache-2.0
"""Whose attempt it is, whose cycles are over, and how a run ends: without any connection."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.core.identity import cycle_id
from airflow_provider_lakecommit.core.model import LIVE, Counts, Cycle
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator, is_over
from airflow_provider_lakecommit.operators.tasks.asset_event import event_extra
from tests.support.airflow_events import stored_events

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
SESSION: Any = SimpleNamespace(landing=ORDERS, lane=LIVE)
IDENTITY = RunIdentity(deployment="here", dag_id="dag", run_id="now")


@pytest.mark.parametrize(
    "declared", [ORDERS, LandingSet(name="all", topics=["orders"], table="shop.{topic}")], ids=["one", "set"]
)
def test_a_further_attempt_knows_which_snapshots_events_have_reported(declared: Landing | LandingSet) -> None:
    operator = KafkaToIcebergOperator(task_id="land", landing=declared)
    due = datetime(2026, 1, 2, tzinfo=UTC)

    def context(number: int) -> Any:
        return {"ti": SimpleNamespace(try_number=number), "dag_run": SimpleNamespace(run_after=due)}

    ours = event_extra(ORDERS, Closed(commit_id=UUID(int=1), table="shop.orders", published=(SNAPSHOT,)))
    with stored_events([ours, {"from_rest_api": True}, None]) as requests:
        assert operator.in_events(context(1)) is None
        assert requests == []
        assert operator.in_events(context(2)) == {SNAPSHOT.snapshot_id}
    assert [request.after for request in requests] == [due]


def cycle_of(run_identity: RunIdentity, number: int = 0) -> Cycle:
    commit_id = cycle_id(run_identity.deployment, ORDERS.name, LIVE, run_identity.dag_id, run_identity.run_id, number)
    return Cycle(commit_id=commit_id, dag=run_identity.dag_id, run=run_identity.run_id, number=number, slot=0)


def ti(states: dict[str, str], map_index: int = -1) -> Any:
    def task_states(dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str]]:
        return {run: states for run in run_ids if states}

    return SimpleNamespace(task_id="land", map_index=map_index, get_task_states=task_states)


@pytest.mark.parametrize(
    ("states", "over"),
    [
        ({"land": "failed"}, True),
        ({"land": "success", "other": "running"}, True),
        ({"land": "running"}, False),
        ({"land": "up_for_retry"}, False),
        ({"land": "queued", "other": "success"}, False),
        ({}, True),  # the run was deleted
        ({"plan": "success", "write": "running"}, False),  # of a task group that stood here before
        ({"plan": "success", "write": "failed"}, True),
    ],
)
def test_a_cycle_of_another_run_is_over_when_its_task_is(states: dict[str, str], over: bool) -> None:
    theirs = cycle_of(replace(IDENTITY, run_id="before"), number=2)
    assert is_over(theirs, IDENTITY, SESSION, ti(states)) is over


def test_of_a_mapped_task_its_own_index_counts() -> None:
    theirs = cycle_of(replace(IDENTITY, run_id="before"))
    states = {"land_0": "failed", "land_1": "running"}
    assert is_over(theirs, IDENTITY, SESSION, ti(states, map_index=0))
    assert not is_over(theirs, IDENTITY, SESSION, ti(states, map_index=1))


@pytest.mark.parametrize(
    "theirs",
    [
        cycle_of(IDENTITY, number=1),
        cycle_of(replace(IDENTITY, run_id="before", deployment="elsewhere")),
        cycle_of(replace(IDENTITY, run_id="before", dag_id="another")),
    ],
    ids=["its own", "of another Airflow", "of another DAG"],
)
def test_other_cycles_are_not_evaluated(theirs: Cycle) -> None:
    assert not is_over(theirs, IDENTITY, SESSION, ti({"land": "failed"}))


SNAPSHOT = PublishedSnapshot(
    table="shop.orders", snapshot_id=1, commit_id=UUID(int=1), coverage=Coverage(), rows=1, files=1, counts=Counts()
)


@pytest.mark.parametrize(
    ("closed", "end", "message"),
    [
        ({"published": (SNAPSHOT,)}, None, ""),
        ({"published": (SNAPSHOT,), "left": 9}, None, ""),
        ({"reason": "nothing new"}, AirflowSkipException, "nothing new"),
        ({"waiting": ("a slice waits",)}, AirflowSkipException, "a slice waits"),
        ({"finished": True, "note": "it is there"}, AirflowSkipException, "it is there"),
        ({"published": (SNAPSHOT,), "missing": ("orders[0][0, 5)",)}, SparkJobError, "orders"),
        ({"published": (SNAPSHOT,), "blocked": ("orders[0][0, 5): bad",)}, AirflowFailException, "needs a hand"),
    ],
)
def test_a_task_ends_as_its_run_did(closed: dict[str, Any], end: type[Exception] | None, message: str) -> None:
    operator = KafkaToIcebergOperator(task_id="land", landing=ORDERS)
    whole = Closed(commit_id=UUID(int=1), table="shop.orders", **closed)
    if end is None:
        operator._end_as_it_went(whole)
    else:
        with pytest.raises(end, match=message):
            operator._end_as_it_went(whole)
