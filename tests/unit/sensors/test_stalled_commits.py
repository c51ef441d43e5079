# SPDX-License-Identifier: Apache-2.0
"""What the sensor takes and refuses when a DAG is parsed, and what it makes of its target; and its notifiers."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred

from airflow_provider_lakecommit.exceptions import ControlTopicError, SpecError
from airflow_provider_lakecommit.hooks.settings import Settings
from airflow_provider_lakecommit.notifications import commits
from airflow_provider_lakecommit.notifications.commits import CommitsRecoveredNotifier, CommitsStalledNotifier
from airflow_provider_lakecommit.operations.kafka_connect.sink import commits_of_sink
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.guard import HELD, MOST_CYCLES, GuardAnswer, Ruling
from airflow_provider_lakecommit.stall.policy import POLICY_FIELDS, StallPolicy
from airflow_provider_lakecommit.triggers.ended_by_worker import EndedByWorkerTrigger
from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger
from tests.support.declared import landing_of

ORDERS = landing_of(
    name="orders",
    topics="orders",
    table="shop.orders",
    kafka_config_id="events",
    control_topic="control-orders",
    completion_timeout=timedelta(hours=3),
)


def sensor(**options: Any) -> StalledCommitSensor:
    policy = {name: options.pop(name) for name in POLICY_FIELDS if name in options}
    return StalledCommitSensor(task_id="guard", policy=StallPolicy(**policy), **options)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "one of landing, connector and control_group_id"),
        ({"landing": "orders", "connector": "orders"}, "landing and connector"),
        ({"control_topic": "control"}, "one of landing, connector and control_group_id"),
        ({"control_group_id": "connect-orders"}, "needs its control_topic"),
        ({"landing": ORDERS, "control_topic": "control"}, "leave it out"),
        ({"connector": "orders", "control_topic": "control"}, "leave it out"),
        ({"landing": "my orders!"}, "landing='my orders!' is not a name"),
        ({"landing": ["orders"]}, "landing=['orders'] is not a name"),
        ({"landing": "orders", "on_stall": "retry"}, "on_stall='retry' is not one of skip, wait, fail"),
        ({"landing": "orders", "on_unknown": "skip"}, "on_unknown='skip' is not one of pass, stall"),
        ({"landing": "orders", "stalled_cycles": 0}, "stalled_cycles=0"),
        ({"landing": "orders", "stalled_cycles": MOST_CYCLES + 1}, f"from 1 to {MOST_CYCLES}"),
        ({"landing": "orders", "hold_on": ["stalled", "broken"]}, "hold_on: broken"),
        ({"landing": "orders", "hold_on": ["healthy"]}, "hold_on: healthy"),
        ({"landing": "orders", "max_valid_through_age": timedelta(0)}, "max_valid_through_age=0:00:00"),
        ({"landing": "orders", "release_jitter": timedelta(seconds=-1)}, "release_jitter"),
        ({"landing": "orders", "fail_after": timedelta(hours=1), "soft_fail": True}, "one of them"),
    ],
)
def test_what_is_wrong_is_reported_when_the_dag_is_parsed(options: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValueError, match=r"StalledCommitSensor 'guard': |StallPolicy: ") as raised:
        sensor(**options)
    assert wrong in str(raised.value)


def test_a_landing_brings_its_topic() -> None:
    target = sensor(landing=ORDERS, look_back=timedelta(days=1))._target()
    assert (target.group, target.kafka_config_id) == ("lakecommit-orders", "events")
    assert (target.watched_topic.topic, target.watched_topic.completion_timeout, target.watched_topic.since) == (
        "control-orders",
        10800,
        86400,
    )
    assert target.guard.rules.landing
    assert target.guard.hold == HELD


def test_a_spec_brings_its_landing_as_with_the_operators(tmp_path: Path) -> None:
    spec = tmp_path / "orders.yaml"
    spec.write_text("{name: orders, topics: orders, table: shop.orders, connections: {control_topic: control-orders}}")
    for stated in (spec, str(spec)):
        target = sensor(landing=stated)._target()
        assert (target.group, target.watched_topic.topic) == ("lakecommit-orders", "control-orders")
    with pytest.raises(SpecError, match="LC8304"):
        sensor(landing="nowhere.yaml")


@pytest.mark.parametrize(
    ("verdict", "level"), [("unknown", logging.WARNING), ("healthy", logging.INFO), ("slowing", logging.INFO)]
)
def test_a_name_of_which_nothing_was_observed_is_let_go_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, verdict: str, level: int
) -> None:
    lines: list[int] = []
    made = sensor(landing="ordrs")
    monkeypatch.setattr(type(made), "log", SimpleNamespace(log=lambda level, *_: lines.append(level)))
    context = cast("Any", {})
    assert made._goes(context, Ruling(answer=GuardAnswer.GO, verdict=verdict, reason="told"), made._target())
    assert lines == [level]


def test_a_landing_by_name_is_on_the_control_topic_of_the_deployment() -> None:
    target = sensor(landing="orders")._target()
    assert (target.watched_topic.topic, target.kafka_config_id) == (Settings.read().control_topic, "kafka_default")
    watched = sensor(landing="orders", control_topic="control", kafka_config_id="events")._target()
    assert (watched.watched_topic.topic, watched.kafka_config_id, watched.group) == (
        "control",
        "events",
        "lakecommit-orders",
    )


def test_a_group_is_evaluated_as_a_connector_until_its_events_report_otherwise() -> None:
    target = sensor(control_topic="control", control_group_id="connect-x", stalled_cycles=5, only_cycles=True)._target()
    rules = target.guard.rules
    assert (rules.landing, rules.stalled_cycles, rules.only_cycles) == (False, 5, True)


def test_the_configuration_of_a_connector_reports_where_it_commits() -> None:
    kind = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector"}
    assert commits_of_sink("orders", kind) == ("control-iceberg", "connect-orders", 300.0)
    values = {
        "iceberg.control.topic": "control",
        "iceberg.connect.group-id": "mine",
        "iceberg.control.commit.interval-ms": "1500",
    }
    assert commits_of_sink("orders", kind | values) == ("control", "mine", 1.5)
    with pytest.raises(SpecError, match="LC7522"):
        commits_of_sink("orders", {"connector.class": "FileStreamSink"})


@pytest.mark.parametrize(
    ("event", "raised"),
    [
        ("skipped", AirflowSkipException),
        ({"how": "timed_out", "reason": "STALLED"}, AirflowSensorTimeout),
        ({"how": "failed", "reason": "STALLED"}, AirflowFailException),
    ],
)
def test_how_a_wait_ends_badly(event: Any, raised: type[Exception]) -> None:
    with pytest.raises(raised):
        sensor(landing="orders", on_stall="wait").execute_complete(cast(Any, {}), event)


class Kept:
    """Variables of an Airflow."""

    values: dict[str, str]

    def __init__(self) -> None:
        self.values = {}

    def get(self, key: str, default: str) -> str:
        return self.values.get(key, default)

    def set(self, key: str, value: str, description: str) -> None:
        self.values[key] = value


class Ti:
    dag_id, task_id = "load", "guard"


class Keeps:
    """XComs of an Airflow."""

    def xcom_push(self, key: str, value: object) -> None: ...


def test_each_transition_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, sent = Kept(), []
    monkeypatch.setattr(commits, "Variable", kept)
    stalled = CommitsStalledNotifier(lambda context: sent.append("stalled"))
    recovered = CommitsRecoveredNotifier([lambda context: sent.append("recovered")])
    for event in (recovered, stalled, stalled, recovered, recovered, stalled):
        event({"ti": Ti(), "reason": "what was seen"})
    assert sent == ["stalled", "recovered", "stalled"]
    assert list(kept.values) == ["lakecommit_commits_load.guard"]


@pytest.mark.parametrize(("verdict", "recovers"), [("unknown", False), ("slowing", False), ("healthy", True)])
def test_a_stall_that_is_no_longer_observed_has_not_recovered(
    monkeypatch: pytest.MonkeyPatch, verdict: str, recovers: bool
) -> None:
    kept, sent, passes, context = Kept(), list[str](), sensor(landing=ORDERS), cast(Any, {"ti": Ti()})
    monkeypatch.setattr(commits, "Variable", kept)
    CommitsStalledNotifier(lambda _: sent.append("stalled"))({"ti": Ti(), "reason": "three cycles"})
    ruling = Ruling(answer=GuardAnswer.GO, verdict=verdict, reason="by what look_back shows")
    assert passes._goes(context, ruling, passes._target())
    CommitsRecoveredNotifier(lambda _: sent.append("recovered"))(context)
    assert sent == ["stalled", *(["recovered"] if recovers else [])]


def test_what_could_not_be_sent_is_sent_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, sent, away = Kept(), [], [True]
    monkeypatch.setattr(commits, "Variable", kept)

    def send(_context: Any) -> None:
        if away:
            raise ConnectionError("the chat is away")
        sent.append("stalled")

    notifier = CommitsStalledNotifier(send, name="sink")
    values = {"ti": Ti(), "reason": "STALLED"}
    with pytest.raises(ConnectionError):
        notifier(values)
    away.clear()
    notifier(values)
    notifier(values)
    assert sent == ["stalled"]
    assert kept.values == {"lakecommit_commits_sink": "stalled"}


@pytest.mark.parametrize(
    "error", [ControlTopicError("LC9999", "no answer"), AirflowFailException("ConnectorError: there is none"), None]
)
def test_a_failed_check_reports_no_stall(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> None:
    kept = Kept()
    sent: list[Any] = []
    monkeypatch.setattr(commits, "Variable", kept)
    CommitsStalledNotifier(sent.append)({"ti": Ti(), "exception": error})
    assert sent == []


def test_what_callbacks_get_at_the_end_of_a_wait() -> None:
    waits, context = sensor(landing="orders", on_stall="wait"), cast(Any, {})
    waits.execute_complete(context, "success")
    assert context == {"reason": "commits get through"}
    with pytest.raises(AirflowSkipException):
        waits.execute_complete(context, "skipped")
    assert context == {"reason": "commits did not get through in time"}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, StalledCommitTrigger),
        ({"on_failure_callback": print, "on_skipped_callback": print}, StalledCommitTrigger),
        ({"on_success_callback": print}, EndedByWorkerTrigger),
        ({"on_skipped_callback": print, "soft_fail": True}, EndedByWorkerTrigger),
        ({"outlets": [Asset("fresh")]}, EndedByWorkerTrigger),
    ],
)
def test_a_wait_that_something_follows_is_ended_by_a_worker(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kind: type
) -> None:
    waits = sensor(landing="orders", on_stall="wait", **options)
    held = Ruling(answer=GuardAnswer.HOLD, verdict="stalled", reason="three cycles")
    monkeypatch.setattr(waits, "_ruling", lambda: (held, waits._target()))
    with pytest.raises(TaskDeferred) as deferred:
        waits.execute(cast(Any, {"ti": Keeps()}))
    assert type(deferred.value.trigger) is kind
