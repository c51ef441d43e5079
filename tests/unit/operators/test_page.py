# SPDX-License-Identifier: Apache-2.0
"""What Airflow's page shows of a task: its text, its label, its rendered fields, its links."""

from __future__ import annotations

import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.helpers import serialize_template_field
from jinja2 import Environment
from structlog.testing import capture_logs

from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import exact, no_retry_in_vain
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.links import ErrorLink, SnapshotLink, SparkLink, TableLink
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import MAP_INDEX_TEMPLATE, WriteWindowOperator
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

ORDERS = Landing(name="orders", topics="orders", table="shop.orders", timestamps={"at": "{% broken {{ template"})
TI: Any = SimpleNamespace(task_id="t")


def commit() -> LakeCommitOperator:
    return LakeCommitOperator(task_id="commit", landing=ORDERS, plan_task_id="plan")


def test_each_task_reports_what_it_does_and_for_which_landing() -> None:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
        KafkaToIcebergTaskGroup("land", landing=ORDERS)
    for task in dag.tasks:
        assert task.doc_md, task.task_id
        if not task.task_id.endswith("outcome"):
            assert "**orders**: `orders` → `shop.orders`" in task.doc_md
    assert PlanWindowOperator(task_id="p", landing=ORDERS, doc_md="mine").doc_md == "mine"


@pytest.mark.parametrize(
    ("group", "label"), [({"group": 3, "label": "orders[0,4] · 240k"}, "orders[0,4] · 240k"), ({"group": 3}, "group 3")]
)
def test_a_mapped_task_is_named_by_its_partitions_and_records(group: dict[str, Any], label: str) -> None:
    rendered = Environment(autoescape=False).from_string(MAP_INDEX_TEMPLATE).render(task=SimpleNamespace(group=group))
    assert rendered == label


def test_a_line_that_is_to_be_noticed_is_a_warning_in_the_tasks_log() -> None:
    task = commit()
    with capture_logs() as logged:
        task.log_line("WARNING: shop.orders is not as `create` says")
        task.log_line("cycle 0: 5 offsets")
    levels = [(entry["log_level"], entry["event"]) for entry in logged]
    assert levels == [("warning", "shop.orders is not as `create` says"), ("info", "cycle 0: 5 offsets")]


def test_a_landing_is_printed_as_it_is_and_is_no_template() -> None:
    plan = PlanWindowOperator(task_id="plan", landing=ORDERS)
    plan.render_template_fields({})  # type: ignore[typeddict-item]
    rendered = serialize_template_field(plan.declared, "declared")
    assert isinstance(rendered, str)
    assert json.loads(rendered)["timestamps"] == {"at": "{% broken {{ template"}


def test_without_addresses_there_are_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    task = commit()
    task.trouble = "LedgerError"
    assert [link.get_link(task, ti_key=TI) for link in (TableLink(), SnapshotLink(), ErrorLink())] == ["", "", ""]


def test_links_lead_to_table_snapshot_spark_and_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = {
        "table_url": "https://lake/{catalog}/{table}?at={snapshot_id}",
        "spark_url": "https://spark/{connection}",
        "docs_url": "https://docs/errors.html#{anchor}",
    }
    for option, address in stated.items():
        monkeypatch.setenv(f"AIRFLOW__LAKECOMMIT__{option.upper()}", address)
    task = commit()
    assert TableLink().get_link(task, ti_key=TI) == "https://lake/iceberg_default/shop.orders?at="
    assert SnapshotLink().get_link(task, ti_key=TI) == ""
    task.result = {"published": [{"table": "shop.orders", "snapshot_id": 7}, {"table": "other", "snapshot_id": 8}]}
    assert SnapshotLink().get_link(task, ti_key=TI) == "https://lake/iceberg_default/shop.orders?at=7"
    write = WriteWindowOperator(task_id="write", landing=ORDERS, group={}, spark_conn_id="warm one")
    assert SparkLink().get_link(write, ti_key=TI) == "https://spark/warm%20one"
    assert ErrorLink().get_link(task, ti_key=TI) == ""
    with pytest.raises(Exception, match="LedgerError"), no_retry_in_vain(task):
        raise LedgerError("LC9999", "lost")
    assert ErrorLink().get_link(task, ti_key=TI) == "https://docs/errors.html#ledgererror"


def test_numbers_that_browsers_round_are_printed_as_text() -> None:
    small, large = 2**53, 5_432_198_765_432_198_765
    assert exact({"rows": small, "published": [{"snapshot_id": large, "at": None}], "finished": True}) == {
        "rows": small,
        "published": [{"snapshot_id": str(large), "at": None}],
        "finished": True,
    }
