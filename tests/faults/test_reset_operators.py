# SPDX-License-Identifier: Apache-2.0
"""The tasks that send a landing back with its rows: what is shown is done, by a user's decision, killed or not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.commands import RESET_HARD, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import Killed, World, deaths, records

pytestmark = pytest.mark.faults

CONTEXT: Any = {"ti": SimpleNamespace(dag_id="repairs", run_id="manual__1")}
Produce = Callable[..., object]


@pytest.fixture
def landed(make_world: Callable[..., World], produce: Produce, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two partitions of 30 records, one of which is a dead letter."""
    world = make_world(2, metadata_columns=True)
    produce(world.landing.topics, [*records(0, 29), ("bad", "{")], partition=0)
    produce(world.landing.topics, records(100, 30), partition=1)
    world.settle()
    monkeypatch.setattr(LandingOperationOperator, "session", lambda _: world.session())
    return world


EVERYTHING = Counter([*range(29), *range(100, 130)])


def run(world: World, operation: str, **arguments: Any) -> dict[str, Any]:
    """Its result as another task gets it."""
    own = {name: arguments.pop(name) for name in ("agreed", "decided_by", "reason") if name in arguments}
    task = LandingOperationOperator(
        task_id="t", landing=world.landing, operation=spoken(operation), arguments=arguments, **own
    )
    found: dict[str, Any] = json.loads(json.dumps(task.execute(CONTEXT)))
    return found


def removed_before(world: World, partition: int, offset: int) -> None:
    admin = AdminClient(dict(world.kafka))
    place = TopicPartition(str(world.landing.topics), partition, offset)
    admin.delete_records([place])[place].result(PATIENCE)


def decisions(world: World) -> str:
    with world.session() as session:
        snapshot = session.tables.load(world.landing.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties["lakecommit.decisions"]


@pytest.mark.heavy
def test_rows_go_back_as_previewed_and_what_came_since_is_read_again(landed: World, produce: Produce) -> None:
    start = f"{landed.landing.topics}:0=10"
    previewed = run(landed, RESET_OFFSETS, start=start, delete=True)
    assert [(t["table"], t["rows"]) for t in previewed["tables"]] == [("shop.rows", 19), ("shop.dead", 1)]
    assert "DELETES of shop.rows" in previewed["text"]
    landed.check(EVERYTHING)
    produce(landed.landing.topics, records(30, 5), partition=0)
    landed.settle()
    done = run(
        landed, RESET_OFFSETS, start=start, delete=True, agreed=previewed, decided_by="ann", reason="a wrong producer"
    )
    assert done["rows"]["shop.rows"] == 24
    landed.check(Counter([*range(10), *range(100, 130)]))
    assert "ann in run manual__1" in decisions(landed)
    assert "a wrong producer" in decisions(landed)
    landed.settle()
    landed.check(EVERYTHING + Counter(range(30, 35)))
    check_verified(landed)


def test_all_rows_go_and_the_landing_begins_anew_wherever_it_dies(landed: World) -> None:
    previewed = run(landed, RESET_HARD)
    assert sum(t["rows"] for t in previewed["tables"]) == 60
    killed = 0
    for step in (1, 2, 3):
        try:
            with deaths(step, "after"):
                run(landed, RESET_HARD, agreed=previewed, decided_by="ann")
        except Killed:
            killed += 1
    assert killed > 1
    run(landed, RESET_HARD, agreed=previewed, decided_by="ann")
    landed.check(Counter())
    landed.settle()
    landed.check(EVERYTHING)
    assert len(landed.rows("shop.dead")) == 1
    check_verified(landed)


@pytest.mark.heavy
def test_what_was_not_previewed_is_not_given_up(landed: World) -> None:
    previewed = run(landed, RESET_HARD)
    removed_before(landed, 1, 7)
    with pytest.raises(AirflowFailException, match=r"\[1\] \[0, 7\).*LC8320"):
        run(landed, RESET_HARD, agreed=previewed, decided_by="ann")
    with pytest.raises(AirflowFailException, match="of operation 'reset hard'"):
        run(
            landed,
            RESET_OFFSETS,
            start=f"{landed.landing.topics}:0=10",
            delete=True,
            agreed=previewed,
            decided_by="ann",
        )
    fewer = run(landed, RESET_OFFSETS, start=f"{landed.landing.topics}:0=20", delete=True)
    fewer["from"] = f"{landed.landing.topics}:0=10"
    with pytest.raises(AirflowFailException, match=r"shop.rows deletes .*\[0\] \[10, 20\)"):
        run(landed, RESET_OFFSETS, start=f"{landed.landing.topics}:0=10", delete=True, agreed=fewer, decided_by="ann")
    landed.check(EVERYTHING)


@pytest.mark.heavy
def test_what_the_source_has_no_more_is_previewed_and_passed_over_also_after_a_death(landed: World) -> None:
    removed_before(landed, 1, 7)
    start = f"{landed.landing.topics}:1=5"
    previewed = run(landed, RESET_OFFSETS, start=start, delete=True)
    assert list(previewed["removed"].values()) == [[[5, 7]]]
    with deaths(2, "after"), pytest.raises(Killed):
        run(landed, RESET_OFFSETS, start=start, delete=True, agreed=previewed, decided_by="ann")
    run(landed, RESET_OFFSETS, start=start, delete=True, agreed=previewed, decided_by="ann")
    landed.settle()
    landed.check(EVERYTHING - Counter([105, 106]))
    check_verified(landed)


@pytest.mark.heavy
def test_where_nothing_is_landed_there_is_nothing_to_do(landed: World) -> None:
    with pytest.raises(AirflowSkipException):
        run(landed, RESET_OFFSETS, start=f"{landed.landing.topics}:0=30", delete=True)
