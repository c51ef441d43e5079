# SPDX-License-Identifier: Apache-2.0
"""What a task that follows is refused for when its DAG is parsed, and when it takes its DAG for paused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.plan.resume import cycles_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.tasks.following import CLOCKS, began, goes_on, is_paused
from tests.fakes.session import FakeLanding

LANDING = Landing(name="orders", topics="orders", table="shop.orders")
TEN = timedelta(minutes=10)


def made(**options: Any) -> KafkaToIcebergOperator:
    return KafkaToIcebergOperator(task_id="land", landing=LANDING, **options)


def test_without_a_lifetime_a_task_ends_when_it_is_caught_up() -> None:
    assert made().follow is None


def test_a_lifetime_with_its_window_age_is_taken() -> None:
    options = made(follow_for=TEN, window_age=timedelta(seconds=5), execution_timeout=timedelta(minutes=11)).follow
    assert options is not None
    assert (options.lifetime, options.window_age) == (TEN, timedelta(seconds=5))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"follow_for": TEN, "execution_timeout": TEN}, "must end a minute before execution_timeout 0:10:00.*LC8353"),
        ({"follow_for": timedelta(0)}, "lifetime datetime.timedelta.0. is not a time above zero.*LC6216"),
        ({"follow_for": TEN, "window_age": timedelta(seconds=-1)}, "window_age .* is not a time above zero.*LC6216"),
        ({"follow_for": TEN, "max_cycles": 3}, "max_cycles and follow_for exclude each other.*LC8334"),
    ],
    ids=["timeout", "lifetime", "age", "cycles"],
)
def test_what_does_not_go_together_is_refused_when_the_dag_is_parsed(options: dict[str, Any], text: str) -> None:
    with pytest.raises((SpecError, ValueError), match=text):
        made(**options)


@pytest.mark.parametrize(("paused", "expected"), [(True, True), (False, False), (None, False)])
def test_a_dag_is_running_until_airflow_reports_that_it_is_paused(paused: bool | None, expected: bool) -> None:
    def get_dag(_: str) -> Any:
        if paused is None:
            raise RuntimeError("no answer")
        return SimpleNamespace(is_paused=paused)

    context: Any = {"ti": SimpleNamespace(dag_id="land", get_dag=get_dag)}
    assert is_paused(context) is expected


@pytest.mark.parametrize("context", [{}, {"dag_run": None}, {"dag_run": SimpleNamespace(start_date=None)}])
def test_of_a_run_whose_start_is_not_known_all_of_the_log_is_read(context: Any) -> None:
    assert began(context) is None


def test_a_run_is_searched_for_from_its_start_on_but_for_what_clocks_may_differ() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    context: Any = {"dag_run": SimpleNamespace(start_date=start)}
    assert began(context) == start - CLOCKS


@pytest.mark.parametrize(
    ("turn", "others", "again"),
    [
        (0, [], True),
        (5, [], True),
        (5, [("before", 3)], True),
        (5, [("by hand", 0)], True),
        (5, [("later", 9)], False),
        (5, [("later", 9), ("before", 3)], False),
    ],
)
def test_a_run_that_left_nothing_open_follows_again_unless_a_later_one_does(
    make_landing: Callable[..., FakeLanding], turn: int, others: list[tuple[str, int]], again: bool
) -> None:
    landing = make_landing()
    run = landing.run_identity("first")
    opened = open_cycle(landing.session, replace(run, turn=turn))
    landing.report(opened)
    landing.close("first", opened)
    for other, its in others:
        open_cycle(landing.connect(), replace(landing.run_identity(other), turn=its))
    earlier = cycles_of(landing.session, run)
    assert earlier is not None
    assert earlier.finished(None)
    assert goes_on(landing.session, run, earlier) is again
