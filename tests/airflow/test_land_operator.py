# SPDX-License-Identifier: Apache-2.0
"""The operator that lands alone, attempt by attempt, on a real broker, catalog and Spark Connect server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import CycleOpened, Entry, SliceReported
from airflow_provider_lakecommit.core.model import LIVE
from tests.airflow.attempt import AttemptRequest, attempt, begin, kill
from tests.fixtures.kafka import unique
from tests.support.airflow_dags import CREATE, Lake
from tests.support.gate import Gate
from tests.support.waiting import until

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

CHECKOUT = Path(__file__).resolve().parents[2]

Produce = Callable[..., list[tuple[int, int]]]


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "note": f"order {number}"} for number in ids]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A topic of two partitions, a landing of it, and what became of both."""

    topic: str
    landing: dict[str, Any]
    bootstrap: str
    lake: Lake

    def request(self, run: str = "first", **fields: Any) -> AttemptRequest:
        landing = {**self.landing, **fields.pop("landing", {})}
        return AttemptRequest(landing=landing, run=run, **fields)

    @property
    def ids(self) -> list[int]:
        return self.lake.ids(self.landing["table"])

    def log(self) -> list[Entry]:
        """All of the control log."""
        with ControlTopic(self.landing["control_topic"], {"bootstrap.servers": self.bootstrap}) as control:
            found = (read_entry(r, self.landing["name"], LIVE) for r in control.read_all())
            return [entry for entry in found if entry is not None]

    def reports(self) -> int:
        return sum(isinstance(entry, SliceReported) for entry in self.log())

    def cycles(self) -> list[tuple[str, int]]:
        """Run and number of each START_COMMIT."""
        return [(e.cycle.run, e.cycle.number) for e in self.log() if isinstance(e, CycleOpened)]


@pytest.fixture
def world(bootstrap: str, warm_lake: Lake, make_topic: Callable[..., str]) -> World:
    topic = make_topic(2)
    landing = {
        "name": unique("landing"),
        "topics": topic,
        "table": "shop.orders",
        "create": CREATE,
        "control_topic": f"{topic}-control",
    }
    return World(topic=topic, landing=landing, bootstrap=bootstrap, lake=warm_lake)


@pytest.mark.heavy
def test_a_run_takes_as_many_cycles_as_it_needs_and_one_event_reports_all(world: World, produce: Produce) -> None:
    produce(world.topic, orders(*range(20)), 0)
    produce(world.topic, [*orders(*range(20, 24)), None], 1)

    ended = attempt(world.request(landing={"max_records": 10}))
    assert ended.state == "success", ended
    assert world.ids == list(range(24))
    assert world.cycles() == [("first", 0), ("first", 1), ("first", 2)], "the last one saw that it was caught up"
    event = ended.event
    assert event is not None
    assert event["rows"] == 24
    assert event["counts"] == {"landed": 24, "rejected": 0, "filtered": 1, "gaps": 0, "skipped": 0}
    assert event["offsets"] == {f"{world.topic}[0]": [[0, 20]], f"{world.topic}[1]": [[0, 5]]}
    assert event["snapshot_id"] == world.lake.head("shop.orders")
    # Windows ahead may share a snapshot, and a commit that meets one that is done only now makes a second one.
    assert 1 <= len(event["snapshots"]) <= 3
    assert event["commit_id"] == event["snapshots"][-1]["commit_id"]
    assert event["valid_through"] is not None

    head = world.lake.head("shop.orders")
    idle = attempt(world.request("second"))
    assert (idle.state, idle.reason) == ("skipped", "nothing new")
    assert world.lake.head("shop.orders") == head


def test_a_task_keeps_its_table_equal_to_the_source(world: World, produce: Produce) -> None:
    """A key per row, whatever the runs are that bring its changes; a cleared run changes nothing."""
    keyed = {"key": {"columns": ["id"], "format": "json"}, "upsert_key": ["id"], "slice_records": 4, "max_records": 8}

    def change(key: int, note: str | None) -> tuple[str, str | None]:
        return json.dumps({"id": key}), None if note is None else json.dumps({"note": note})

    def notes() -> dict[int, str]:
        rows = world.lake.open().load_table("shop.orders").scan(selected_fields=("id", "note")).to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["note"] for row in rows}

    produce(world.topic, [change(n % 6, f"n{n}") for n in range(12)], 0)
    produce(world.topic, [change(n, "other") for n in range(10, 14)], 1)
    first = world.request(landing=keyed)
    ended_before = attempt(first)
    assert ended_before.state == "success", ended_before
    assert notes() == {**{n: f"n{n + 6}" for n in range(6)}, **dict.fromkeys(range(10, 14), "other")}
    produce(world.topic, [change(0, None), change(1, "new"), change(2, None), change(2, "back")], 0)
    ended = attempt(world.request("second", landing=keyed))
    assert ended.state == "success", ended
    expected = {1: "new", 2: "back", **{n: f"n{n + 6}" for n in range(3, 6)}, **dict.fromkeys(range(10, 14), "other")}
    assert notes() == expected
    head = world.lake.head("shop.orders")
    assert ended_before.event is not None
    cleared = attempt(replace(first, number=2, first=2, events=[ended_before.event]))
    assert cleared.state == "skipped"
    assert (notes(), world.lake.head("shop.orders")) == (expected, head)


@pytest.mark.heavy
def test_what_the_last_of_its_cycles_leaves_is_reported_and_lands_with_the_next_run(
    world: World, produce: Produce
) -> None:
    produce(world.topic, orders(*range(25)), 0)
    request = world.request(landing={"max_records": 10}, options={"max_cycles": 2})
    ended = attempt(request)
    assert ended.state == "success", ended
    assert ended.printed("5 offsets are left for the next run")
    assert len(world.ids) == 20
    assert ended.event is not None
    cleared = attempt(replace(request, number=2, first=2, events=[ended.event]))
    assert cleared.state == "skipped", "a finished run, also one that left something, does no work"
    assert attempt(replace(request, run="second")).state == "success"
    assert world.ids == list(range(25))


@pytest.mark.heavy
def test_a_range_that_needs_a_hand_fails_the_task_for_good_and_stops_no_other_partition(
    world: World, produce: Produce
) -> None:
    produce(world.topic, ["no json", *orders(1)], 0)
    produce(world.topic, orders(2, 3), 1)
    ended = attempt(world.request())
    assert ended.state == "failed"
    assert "needs a hand" in ended.reason
    assert world.ids == [2, 3]


@pytest.mark.heavy
def test_a_run_that_was_not_reported_is_reported_by_its_retry_and_a_cleared_one_is_not_reported_again(
    world: World, produce: Produce
) -> None:
    produce(world.topic, orders(1, 2, 3), 0)
    request = world.request()
    first = attempt(request)
    assert first.event is not None
    # The attempt died after its last COMMIT_COMPLETE: Airflow never heard of it.
    retried = attempt(replace(request, number=2))
    assert retried.state == "success"
    assert retried.event is not None
    # The table's debt is measured at its commit, and is not in the log.
    assert retried.event["snapshots"] == [{**s, "debt": None} for s in first.event["snapshots"]]
    assert retried.event["valid_through"] == first.event["valid_through"]

    produce(world.topic, orders(4), 0)
    without_retries = attempt(replace(request, number=2, first=2))
    assert without_retries.event == retried.event, "a cleared run sends the event that Airflow does not have"
    for later in (replace(request, number=3, first=3), replace(request, number=3, first=2)):
        again = attempt(replace(later, events=[retried.event]))
        assert (again.state, again.event) == ("skipped", None), "once, whether cleared or retried after that"
    cleared = attempt(replace(request, number=3, first=3, events=[retried.event]))
    assert cleared.state == "skipped"
    assert "1 cycles of this run" in cleared.reason
    assert f"{world.topic}[0] [0, 3)" in cleared.reason
    assert world.cycles() == [("first", 0)]
    assert world.ids == [1, 2, 3]


@pytest.mark.heavy
def test_a_task_follows_for_its_time_and_one_event_reports_all_its_windows(world: World, produce: Produce) -> None:
    produce(world.topic, orders(0), 0)
    assert attempt(world.request("before")).state == "success"

    def come() -> None:
        # Each comes when the one before it is in the table, so in a window of its own.
        for number in range(1, 4):
            until(lambda landed=number: world.ids == list(range(landed)), what="the window before")  # type: ignore[misc]
            produce(world.topic, orders(number), 0)

    coming = threading.Thread(target=come, daemon=True)
    coming.start()
    lasting = {"follow_for": timedelta(seconds=15), "window_age": timedelta(seconds=1)}
    ended = attempt(world.request(options=lasting))
    coming.join()
    assert ended.state == "success", ended
    assert ended.printed("followed for ")
    event = ended.event
    assert event is not None
    assert world.ids == list(range(4))
    assert (event["rows"], event["snapshot_id"]) == (3, world.lake.head("shop.orders"))
    assert event["offsets"] == {f"{world.topic}[0]": [[1, 4]]}
    assert len(event["snapshots"]) == 1, "the newest stands for all"
    assert attempt(world.request("next")).state == "skipped", "nothing is left, and no slot is taken"


def test_the_next_run_takes_over_from_the_one_that_follows_and_each_row_lands_once(
    world: World, produce: Produce
) -> None:
    produce(world.topic, orders(0), 0)
    assert attempt(world.request("before")).state == "success"
    over, coming = threading.Event(), threading.Thread(target=lambda: keep_coming(world, produce, over), daemon=True)
    lasting, alive = {"window_age": timedelta(seconds=1)}, {"first": "running", "second": "running"}
    with ThreadPoolExecutor(1) as other:
        earlier = world.request("first", options={**lasting, "follow_for": timedelta(seconds=90)}, states=alive)
        lines: list[str] = []
        first = other.submit(attempt, earlier, lambda _, log: lines.append(log))
        coming.start()
        until(lambda: len(world.ids) > 1, what="the first window")
        second = attempt(
            world.request("second", options={**lasting, "follow_for": timedelta(seconds=15)}, states=alive)
        )
        print("\n".join(lines[0]), "SECOND", "\n".join(second.log))
        ended = first.result(timeout=60)
    over.set()
    coming.join()
    assert (ended.state, second.state) == ("success", "success"), (ended, second)
    assert ended.printed("run second continues from here")
    assert not second.printed("continues from here")
    assert attempt(world.request("third")).state in {"success", "skipped"}
    assert world.ids == list(range(len(world.ids)))
    runs = [run for run, _ in world.cycles() if run not in {"before", "third"}]
    # Windows of both may alternate while one takes over; how many are left for the second one is the machine's to say.
    assert (runs[0], runs[-1]) == ("first", "second")


def keep_coming(world: World, produce: Produce, over: threading.Event) -> None:
    """Some records in a second."""
    for number in range(1, 10_000):
        if over.wait(0.3):
            return
        produce(world.topic, orders(number), 0)


@pytest.fixture
def killed(world: World, produce: Produce, tmp_path: Path) -> tuple[World, Gate]:
    """A landing whose first attempt was killed in its first cycle, one slice of two reported, and one of the window
    ahead: the gate lets the first slice of every window pass.
    """
    (tmp_path / "gate").mkdir()
    gate = Gate(tmp_path / "gate", world.landing["name"])
    produce(world.topic, orders(*range(8)), 0)
    gate.let_pass(0)
    request = world.request(landing={"max_records": 6, "slice_records": 3}, gate=str(gate.base))
    process = begin(request, {"PYTHONPATH": str(CHECKOUT)})
    try:
        gate.await_begun(0, 1)
        until(lambda: world.reports() == 2)
    finally:
        kill(process)
    return replace(world, landing=request.landing), gate


@pytest.mark.heavy
def test_a_retry_after_a_kill_in_mid_cycle_goes_on_with_it_and_reads_no_reported_slice_again(
    killed: tuple[World, Gate],
) -> None:
    world, gate = killed
    gate.let_pass()
    ended = attempt(world.request(number=2))
    assert ended.state == "success", ended
    assert ended.printed("continues the cycle that this run opened before")
    assert world.cycles() == [("first", 0), ("first", 1)]
    assert world.ids == list(range(8))
    assert ended.event is not None
    assert ended.event["rows"] == 8
    reports = [e.report.slice_id for e in world.log() if isinstance(e, SliceReported)]
    assert len(reports) == len(set(reports)) == 3
    # The slice in hand went on without its task; the retry waited for it. (Workers that are reused note slice 0 of the
    # next cycle too.)
    assert gate.begun[1] == 1


@pytest.mark.heavy
def test_claims_of_a_run_that_is_over_end_with_the_next_run_and_those_of_one_that_is_retried_hold(
    killed: tuple[World, Gate],
) -> None:
    world, gate = killed
    held = attempt(world.request("second", states={"first": "up_for_retry"}))
    assert held.state == "success", held
    assert world.ids == [0, 1, 2], (
        "what the dead attempt had reported; its other range is claimed, the window ahead waits behind it"
    )
    gate.let_pass()
    ended = attempt(world.request("third", states={"first": "failed", "second": "success"}))
    assert ended.state == "success", ended
    assert world.ids == list(range(8))


@pytest.mark.heavy
def test_a_task_that_is_instructed_to_stop_reports_what_is_saved_and_its_retry_does_the_rest(
    world: World, produce: Produce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gate").mkdir()
    gate = Gate(tmp_path / "gate", world.landing["name"])
    gate.let_pass(0)
    produce(world.topic, orders(*range(6)), 0)
    request = world.request(landing={"slice_records": 3})

    with monkeypatch.context() as patch:
        gate.put(patch)
        ended = attempt(request, lambda operator, _: stop_at_second_slice(operator, world, gate))
    assert ended.state == "up_for_retry"
    assert "was stopped" in ended.reason
    assert ended.printed("1 slices (3 records) are reported and will not be read again; 3 offsets will be read again: ")
    gate.await_end(1)
    # Another worker that is reused still has the gate.
    gate.let_pass()
    assert attempt(replace(request, number=2)).state == "success"
    assert world.ids == list(range(6))
    assert world.cycles() == [("first", 0)]


def stop_at_second_slice(operator: Any, world: World, gate: Gate) -> None:
    def wait_and_stop() -> None:
        gate.await_begun(1)
        until(lambda: world.reports() == 1)
        operator.on_kill()

    threading.Thread(target=wait_and_stop, daemon=True).start()
