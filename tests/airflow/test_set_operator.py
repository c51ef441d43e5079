# SPDX-License-Identifier: Apache-2.0
"""One task that lands a set, attempt by attempt, on a real broker, catalog and Spark Connect server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, NestedField

from tests.airflow.attempt import AttemptRequest, attempt, begin, kill
from tests.fixtures.kafka import unique
from tests.support.airflow_dags import CREATE, Lake
from tests.support.gate import Gate

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

CHECKOUT = Path(__file__).resolve().parents[2]

Produce = Callable[..., list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """Two topics, their set, and what became of both."""

    topics: tuple[str, str]
    declared: dict[str, Any]
    lake: Lake

    def request(self, number: int = 1, **fields: Any) -> AttemptRequest:
        return AttemptRequest(landing=self.declared, run="run", number=number, **fields)

    @property
    def tables(self) -> list[str]:
        return [rule["table"] for rule in self.declared["rules"]]

    @property
    def ids(self) -> list[list[int]]:
        return [self.lake.ids(table) for table in self.tables]


@pytest.fixture
def shop(warm_lake: Lake, make_topic: Callable[..., str], produce: Produce, monkeypatch: pytest.MonkeyPatch) -> Shop:
    topics = make_topic(1), make_topic(1)
    monkeypatch.setenv("AIRFLOW__LAKECOMMIT__CONTROL_TOPIC", f"{topics[0]}-control")
    declared = {
        "name": unique("set").replace("-", "_"),
        "topics": list(topics),
        "rules": [{"topics": topic, "table": f"shop.t{n}"} for n, topic in enumerate(topics)],
        "missing_table": "create",
        "defaults": {"create": CREATE, "window": {"slice_records": 3}},
    }
    for topic in topics:
        produce(topic, [{"id": n, "note": "x"} for n in range(6)], 0)
    return Shop(topics=topics, declared=declared, lake=warm_lake)


def test_a_retry_announces_what_the_failed_attempt_has_published(shop: Shop) -> None:
    """A failed task sends no events: without this, the readers of the table that was well would miss six rows."""
    catalog = shop.lake.open()
    catalog.create_namespace("shop")
    catalog.create_table(shop.tables[1], Schema(NestedField(1, "id", BooleanType(), required=False)))
    failed = attempt(shop.request())
    print(failed.reason, "\n".join(failed.log), sep="\n")
    assert (failed.state, failed.events) == ("up_for_retry", {}), failed
    assert shop.lake.ids(shop.tables[0]) == list(range(6))

    catalog.drop_table(shop.tables[1])
    ended = attempt(shop.request(2))
    assert ended.state == "success", ended
    assert shop.ids == [list(range(6))] * 2
    assert sorted(sum(extra["rows"] for extra in found) for found in ended.events.values()) == [6, 6]

    again = attempt(shop.request(3))
    assert sorted(sum(extra["rows"] for extra in found) for found in again.events.values()) == [6, 6], "as a retry does"
    sent = [extra for found in ended.events.values() for extra in found]
    cleared = attempt(shop.request(4, first=4, events=sent))
    assert (cleared.state, cleared.events) == ("skipped", {}), "Airflow has the events of all"
    cleared = attempt(shop.request(4, first=4, events=sent[:1]))
    assert [found[0]["snapshot_id"] for found in cleared.events.values()] == [sent[1]["snapshot_id"]], "the missing one"


@pytest.mark.heavy
def test_a_retry_after_a_kill_reads_no_reported_slice_again(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "gate").mkdir()
    gates = [Gate(tmp_path / "gate", f"{shop.declared['name']}.{table}") for table in shop.tables]
    for gate in gates:
        gate.let_pass(0)
    process = begin(shop.request(gate=str(tmp_path / "gate")), {"PYTHONPATH": str(CHECKOUT)})
    try:
        for gate in gates:
            gate.await_begun(0, 1, by=process)
    finally:
        kill(process)
        for gate in gates:
            gate.let_pass()
    ended = attempt(shop.request(2))
    assert ended.state == "success", ended
    assert shop.ids == [list(range(6))] * 2
    assert [sum(gate.begun.values()) for gate in gates] == [2, 2]
    assert sorted(sum(extra["rows"] for extra in found) for found in ended.events.values()) == [6, 6]


@pytest.mark.heavy
def test_a_task_that_is_stopped_keeps_what_is_reported_and_its_retry_does_the_rest(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gate").mkdir()
    gates = [Gate(tmp_path / "gate", f"{shop.declared['name']}.{table}") for table in shop.tables]
    gates[0].let_pass()
    gates[1].let_pass(0)

    def stop(operator: Any, _: list[str]) -> None:
        def wait_and_stop() -> None:
            try:
                gates[1].await_begun(1)
                gates[0].await_begun(0, 1)
            finally:
                operator.on_kill()

        threading.Thread(target=wait_and_stop, daemon=True).start()

    try:
        with monkeypatch.context() as patch:
            gates[0].put(patch)
            first = attempt(shop.request(), stop)
    finally:
        gates[1].let_pass()
    assert first.state in {"up_for_retry", "success"}, first
    ended = attempt(replace(shop.request(), number=2))
    assert ended.state == "success", ended
    assert shop.ids == [list(range(6))] * 2
