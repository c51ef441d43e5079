# SPDX-License-Identifier: Apache-2.0
"""Which of several runs goes on following, whoever looks first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.cycle.session.turns import cycles_since, log_end, successor_of, turn_at
from tests.fakes.session import FakeLanding

RUN = RunIdentity(deployment="east", dag_id="follow", run_id="b", turn=20)


def cycle(run: str, turn: int, *, dag: str = "follow", deployment: str = "east", number: int = 0) -> Cycle:
    return Cycle(commit_id=uuid4(), dag=dag, run=run, number=number, slot=0, deployment=deployment, turn=turn)


@pytest.mark.parametrize(
    ("cycles", "successor"),
    [
        ([], None),
        ([cycle("b", 20)], None),
        # The earlier run's window that was opened after our first one.
        ([cycle("b", 20), cycle("a", 10, number=9)], None),
        ([cycle("c", 21), cycle("b", 20, number=4)], "c"),
        ([cycle("c", 21), cycle("d", 30)], "d"),
        # Both began at one place.
        ([cycle("a", 20)], None),
        ([cycle("c", 20)], "c"),
        # An earlier attempt of ours, or a later one.
        ([cycle("b", 5), cycle("b", 31)], None),
        # Others: they take no turns, or none of ours.
        ([cycle("z", 0)], None),
        ([cycle("z", 70, dag="other")], None),
        ([cycle("z", 70, deployment="west")], None),
    ],
)
def test_the_newest_run_of_the_dag_stays(cycles: list[Cycle], successor: str | None) -> None:
    assert successor_of(cycles, RUN) == successor
    assert successor_of(cycles, replace(RUN, turn=0)) is None


@pytest.mark.parametrize("turns", [(1, 1, 1), (1, 2, 2), (1, 2, 3), (2, 2, 1)])
def test_of_runs_that_begin_together_one_stays_in_whatever_order_they_are_observed(turns: tuple[int, ...]) -> None:
    runs = [cycle(run, turn) for run, turn in zip("abc", turns, strict=True)]
    for order in permutations(runs):
        stay = [c.run for c in runs if successor_of(order, replace(RUN, run_id=c.run, turn=c.turn)) is None]
        assert len(stay) == 1


def test_turns_grow_with_the_log_and_each_start_is_observed_once(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing()
    partition = landing.session.own_partition()
    first = log_end(landing.session, partition)
    assert turn_at(first) > 0
    landing.cycle("a")
    second = log_end(landing.session, partition)
    assert turn_at(second) > turn_at(first)
    landing.cycle("b")
    starts, end = cycles_since(landing.session, partition, first)
    assert [c.run for c in starts] == ["a", "b"]
    assert [c.run for c in cycles_since(landing.session, partition, second)[0]] == ["b"]
    assert cycles_since(landing.session, partition, end) == ([], end)
