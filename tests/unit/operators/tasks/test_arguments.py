# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of operators, sensors and task groups, told when a DAG is parsed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.core.commands import PUBLISH_NOW, RESET_ASSERT, RESET_BLOCKED, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import OtherSections
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operations.decisions.requests import OTHERS, ResetBlocked
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.pause import PauseLandingOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import StallPolicy
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
BLOCKED, OFFSETS, ASSERT = (spoken(each) for each in (RESET_BLOCKED, RESET_OFFSETS, RESET_ASSERT))
TICKETS = {"landing": ORDERS, "plan_task_id": "p", "write_task_id": "w", "commit_task_id": "c"}


def operation(name: str, **arguments: Any) -> LandingOperationOperator:
    return LandingOperationOperator(task_id="a", landing=ORDERS, operation=name, arguments=arguments)


@pytest.mark.parametrize(
    ("make", "arguments", "wrong", "meant"),
    [
        (KafkaToIcebergOperator, {"landing": ORDERS}, "spark_con_id", "spark_conn_id"),
        (PlanWindowOperator, {"landing": ORDERS}, "retry", "retries"),
        (LakeCommitOperator, {"landing": ORDERS, "plan_task_id": "p"}, "outlet", "outlets"),
        (OutcomeOperator, TICKETS, "trigger_rules", "trigger_rule"),
        (KafkaConnectOperator, {"connector": "c", "action": "pause"}, "kafka_connect_con_id", "kafka_connect_conn_id"),
        (StalledCommitSensor, {"landing": "orders"}, "kafka_config", "kafka_config_id"),
    ],
)
def test_an_unknown_argument_is_reported_with_the_one_that_may_be_meant(
    make: Any, arguments: dict[str, Any], wrong: str, meant: str
) -> None:
    make(task_id="a", pool="default_pool", **arguments)
    with pytest.raises(SpecError, match="LC8348"):
        make(task_id="a", **arguments, **{wrong: None})


def test_all_unknown_arguments_of_a_group_are_reported_together() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1)):
        KafkaToIcebergTaskGroup("well", landing=ORDERS, default_args={"retries": 1}, prefix_group_id=True)
        with pytest.raises(SpecError, match="LC8348"):
            KafkaToIcebergTaskGroup("land", landing=ORDERS, max_active_group=2, spark=1)


@pytest.mark.parametrize("time", ["1h30m", 5400, timedelta(minutes=90)])
def test_times_may_be_reported_in_many_ways(time: Any) -> None:
    policy = StallPolicy(max_valid_through_age=time, fail_after=time)
    guard = StalledCommitSensor(task_id="a", landing="orders", policy=policy)
    assert guard._target().guard.max_age == guard._target().guard.fail_after == 5400.0
    KafkaConnectOperator(task_id="a", connector="c", action="pause", arguments={"wait": time})
    assert BacklogTrigger(landing=ORDERS, age=time).limits.age == 5400.0
    assert PauseLandingOperator(task_id="a", landing=ORDERS, wait=time).wait == timedelta(minutes=90)
    operation(spoken(PUBLISH_NOW), wait=time)
    follow = KafkaToIcebergOperator(
        task_id="a", landing=ORDERS, follow_for=time, window_age=time, keep_snapshots=time
    ).follow
    assert follow is not None
    assert {follow.lifetime, follow.window_age, follow.keep_snapshots} == {timedelta(minutes=90)}


def test_a_text_that_is_no_time_is_named() -> None:
    with pytest.raises(ValueError, match="max_valid_through_age=soon: use a positive duration"):
        StallPolicy(max_valid_through_age="soon")
    with pytest.raises(SpecError, match="LC1014"):
        KafkaConnectOperator(task_id="a", connector="c", action="pause", arguments={"wait": "soon"})
    with pytest.raises(SpecError, match="LC8341"):
        operation(spoken(PUBLISH_NOW), wait="soon")
    with pytest.raises(SpecError, match="LC1014"):
        KafkaToIcebergOperator(task_id="a", landing=ORDERS, follow_for="15m", window_age="soon")


WRONG = """
from datetime import datetime
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

create = {"schema": [{"name": "id", "type": "bigint"}], "partition_by": ["day(ts)"]}
with DAG("wrong", schedule=None, start_date=datetime(2026, 1, 1)):
    KafkaToIcebergTaskGroup("land", landing=Landing(name="o", topic="o", table="shop.o", create=create))
"""


def test_a_dag_with_a_wrong_landing_is_an_import_error_that_reports_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    with pytest.raises(SpecError) as refused:
        exec(compile(file.read_text(), str(file), "exec"), {})
    for text in ("did you mean 'topics'?", "column id: 'bigint'", "use 'long'", "no column 'ts'"):
        assert text in str(refused.value)


def in_a_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2026, 1, 1))


def test_a_landing_is_planned_once_in_a_dag() -> None:
    """A landing that was copied, and not its name changed."""
    copied = Landing(name="orders", topics="clicks", table="web.clicks")
    with in_a_dag():
        KafkaToIcebergTaskGroup("a", landing=ORDERS)
        KafkaToIcebergTaskGroup("c", landing=Landing(name="clicks", topics="clicks", table="web.clicks"))
        with pytest.raises(SpecError, match="LC8307"):
            KafkaToIcebergTaskGroup("b", landing=copied)
        with pytest.raises(SpecError, match="LC8307"):
            KafkaToIcebergOperator(task_id="one", landing=ORDERS)
    with in_a_dag():
        KafkaToIcebergTaskGroup("a", landing=ORDERS)


def test_landings_are_not_mapped() -> None:
    with in_a_dag(), pytest.raises(SpecError, match="LC8305"):
        KafkaToIcebergOperator.partial(task_id="k").expand(landing=[ORDERS])
    with in_a_dag(), pytest.raises(SpecError, match="LC8348"):
        WriteWindowOperator.partial(task_id="w", landing=ORDERS, spark_con_id="s")


def test_a_mapped_task_has_the_lists_that_airflow_goes_through() -> None:
    """Airflow reads them from the class's defaults, before there is a task."""
    with in_a_dag():
        mapped = KafkaToIcebergOperator.partial(task_id="k", landing=ORDERS).expand(spark_conf=[{"a": "1"}])
    assert (list(mapped.inlets), list(mapped.outlets)) == ([], [])


def test_a_write_task_is_mapped_over_its_plan() -> None:
    with in_a_dag(), pytest.raises(SpecError, match="LC8358"):
        WriteWindowOperator(task_id="w", landing=ORDERS, group=PlanWindowOperator(task_id="p", landing=ORDERS).output)


@pytest.mark.parametrize("group", [1, [{"cycle": {}, "group": 0}], {"group": 0}])
def test_what_is_no_entry_of_a_plan_is_refused_by_the_task(group: Any) -> None:
    task = WriteWindowOperator(task_id="w", landing=ORDERS, group=group)
    with pytest.raises(AirflowFailException, match="not an entry of the plan's result"):
        task._execute()


@pytest.mark.parametrize("wrong", [{"name": "orders"}, [ORDERS], None])
def test_what_is_no_landing_is_named(wrong: Any) -> None:
    with pytest.raises(SpecError, match="LC8303"):
        PlanWindowOperator(task_id="p", landing=wrong)


@pytest.mark.parametrize("name", ["orders", "{{ params.landing }}"])
def test_a_name_in_place_of_a_landing_is_reported_as_that(name: str) -> None:
    with pytest.raises(SpecError, match="LC8304"):
        PlanWindowOperator(task_id="p", landing=name)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (BLOCKED, {"how": "skipp"}, "how='skipp': use raise"),
        (BLOCKED, {"how": "raise"}, "needs a budget"),
        (BLOCKED, {"how": "raise", "budget": "lots"}, "'lots' is not N"),
        (BLOCKED, {"how": "skip", "partitions": "orders"}, "'orders' is not TOPIC:PARTITION"),
        (BLOCKED, {"how": "skip", "ranges": ["orders:0=5"]}, "ranges: 'orders:0=5': use TOPIC:PARTITION=FROM-TO"),
        (OFFSETS, {"start": "begin"}, "start: 'begin': use earliest"),
        (OFFSETS, {"start": "latest", "others": "maybe"}, "others='maybe': use ask, present or missing"),
        (ASSERT, {"at": "orders:0"}, "at='orders:0': use"),
        (ASSERT, {"snapshot_id": "abc"}, "snapshot_id='abc': use the id"),
        (ASSERT, {"from_log": True, "tables": "shop.order"}, "the landing has shop.orders"),
        (ASSERT, {"from_log": True, "others": "maybe"}, "others='maybe'"),
    ],
)
def test_a_wrong_value_is_reported_before_it_runs_or_is_approved(
    kind: Any, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=re.escape(message) + ".*LC8341"):
        operation(kind, **wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"max_cycles": "a"}, "max_cycles='a': use a number"), ({"spark_conf": "x=y"}, "spark_conf='x=y': use a mapping")],
)
def test_a_wrong_value_of_a_landing_task_is_reported(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        KafkaToIcebergOperator(task_id="a", landing=ORDERS, **wrong)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "reset ofsets",
            {},
            r"'reset ofsets' is not one of reset offsets, .* \(did you mean 'reset offsets'\?\).*LC8349",
        ),
        (
            BLOCKED,
            {"how": "skip", "partition": "orders:1"},
            r"unknown argument 'partition' \(did you mean 'partitions'.*LC8351",
        ),
        (BLOCKED, {}, "missing argument 'how'.*LC8351"),
        (OFFSETS, {"start": "latest", "delete": "maybe"}, "delete='maybe': use True or False.*LC8351"),
        (OFFSETS, {"start": 5}, "start=5: use a text.*LC8351"),
        (ASSERT, {"at": "orders:0=1", "tables": 3}, "tables=3: use a text or a list or None.*LC8351"),
        (spoken(PUBLISH_NOW), {"wait": None}, "wait=None: use a timedelta or a text or a number.*LC8351"),
    ],
)
def test_an_operation_and_its_arguments_are_checked_when_the_dag_is_parsed(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        operation(name, **arguments)
    with in_a_dag(), pytest.raises(SpecError, match=message):
        LandingOperationOperator.partial(task_id="a", landing=ORDERS, operation=name, arguments=arguments).expand(
            reason=["a"]
        )


def test_what_needs_no_approval_takes_none() -> None:
    with pytest.raises(SpecError, match="LC8337"):
        LandingOperationOperator(task_id="a", landing=ORDERS, operation=spoken(PUBLISH_NOW), decided_by="ann")


@pytest.mark.parametrize(
    ("action", "arguments", "message"),
    [
        ("pausing", {}, r"'pausing' is not one of pause, resume, restart, rescue \(did you mean 'pause'.*LC8349"),
        ("resume", {"jiter": "2m"}, r"unknown argument 'jiter' \(did you mean 'jitter'.*LC8351"),
        ("rescue", {"commit": "perhaps"}, "commit='perhaps': use True or False.*LC8351"),
    ],
)
def test_an_action_on_a_connector_is_checked_too(action: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        KafkaConnectOperator(task_id="a", connector="c", action=action, arguments=arguments)


def test_what_a_policy_holds_is_no_argument_of_the_sensor() -> None:
    with pytest.raises(
        ValueError, match=r"stalled_cycles belongs to the policy: policy=StallPolicy\(stalled_cycles=…\)"
    ):
        StalledCommitSensor(task_id="a", landing="orders", stalled_cycles=3)


def test_what_is_only_known_in_the_run_is_left_to_it() -> None:
    operation(BLOCKED, how="{{ params.how }}", budget="{{ params.budget }}")
    operation(BLOCKED, how="skip", partitions=["{{ params.partition }}"])
    operation(OFFSETS, start="{% if true %}latest{% endif %}", delete="{{ params.delete }}")
    KafkaToIcebergOperator(task_id="a", landing=ORDERS, spark_conf="{{ params.conf }}")


@pytest.mark.parametrize("partitions", ["orders:0, orders[1]", ["orders:0", "orders:1"]])
def test_one_text_may_name_several_partitions(partitions: Any) -> None:
    assert ResetBlocked(how="skip", partitions=partitions).chosen() == ({("orders", 0), ("orders", 1)}, None)


def test_the_texts_on_other_landings_are_those_of_the_ledger() -> None:
    assert tuple(OtherSections) == OTHERS


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"spark_conf": "x=y"}, "spark_conf=.*LC8352"), ({"max_active_groups": "two"}, "max_active_groups='two'.*LC8706")],
)
def test_a_wrong_value_of_a_group_is_named(wrong: dict[str, Any], message: str) -> None:
    with in_a_dag(), pytest.raises(SpecError, match=message):
        KafkaToIcebergTaskGroup("land", landing=ORDERS, **wrong)
