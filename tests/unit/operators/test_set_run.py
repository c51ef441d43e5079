# SPDX-License-Identifier: Apache-2.0
"""The rounds of a landing set in one task: they end when no landing makes progress."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.transforms import IdentityTransform

from airflow_provider_lakecommit.cycle.run.pauses import MOST_IDLE_CYCLES
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators import commit, plan, set_run
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.set_run import SetRun
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from tests.fakes.broker import MemoryBroker
from tests.fakes.plugged import plugged_in
from tests.support.campaign.console import InProcessEngine
from tests.support.world import SCHEMA, catalog_in, records

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
TOPICS = ["orders", "returns"]
SHOP = LandingSet.from_dict(
    {
        "name": "shop",
        "topics": TOPICS,
        "table": "lake.{topic}",
        "missing_table": "create",
        "defaults": {
            "create": SCHEMA,
            "window": {"slice_records": 10, "max_records": 10},
            "maintain": {"compact": False},
            "connections": {"control_topic": "control"},
        },
    }
)


class Repartitioning(InProcessEngine):
    """An engine after whose jobs a user changes the partition spec of these topics' tables."""

    def __init__(self, catalog: dict[str, str], *topics: str) -> None:
        self.catalog, self.topics, self.jobs = catalog, topics, list[str]()

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        topic = job.landing.topic_names[0]
        self.jobs.append(topic)
        assert len(self.jobs) < 40, "the run has no end"
        results = super().run(job, secrets)
        if topic in self.topics:
            tables = Tables(self.catalog)
            table = tables.load(job.landing.table)
            with table.update_spec() as change:
                if any(field.name == "by_id" for field in table.spec().fields):
                    change.remove_field("by_id")
                else:
                    change.add_field("id", IdentityTransform(), "by_id")
            tables.close()
        return results


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    catalog = catalog_in(tmp_path)

    @contextmanager
    def target(declared: LandingSet, *, reach: bool = True) -> Any:
        tables = Tables(catalog)
        yield SimpleNamespace(
            declared=declared,
            kafka=KAFKA,
            tables=tables,
            namespaces=("", ""),
            connect=lambda found: SetConnections(declared, found, KAFKA, tables, deployment="test"),
        )

    for module in (plan, set_run, commit):
        monkeypatch.setattr(module, "set_target", target)
    return catalog


def landed(engine: Repartitioning, number: int) -> SetRun:
    task = KafkaToIcebergOperator(task_id="land", landing=SHOP)
    ti = SimpleNamespace(dag_id="test", run_id="one", try_number=1, get_dr_count=lambda **_: 1)
    broker = MemoryBroker()
    for topic in TOPICS:
        broker.create(topic, 1)
        broker.produce(topic, records(0, number), 0)
    context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_type="manual")}
    with plugged_in(broker):
        run = SetRun(task, SHOP, engine, context)
        run.land(None)
    return run


def test_rounds_that_are_all_voided_end_as_failed(shop: dict[str, str]) -> None:
    engine = Repartitioning(shop, *TOPICS)
    run = landed(engine, 10)
    assert Counter(engine.jobs) == dict.fromkeys(TOPICS, MOST_IDLE_CYCLES)
    assert {verdict for verdict, _ in run.ends.values()} == {"failed"}
    assert run.published == []


def test_a_landing_that_makes_progress_is_landed_alongside_one_that_does_not(shop: dict[str, str]) -> None:
    engine = Repartitioning(shop, "orders")
    records = 10 * (MOST_IDLE_CYCLES + 2)
    run = landed(engine, records)
    assert sum(closed.rows for _, closed in run.published) == records
    assert {name: verdict for name, (verdict, _) in run.ends.items()} == {
        "shop.lake.orders": "failed",
        "shop.lake.returns": "success",
    }
    assert Counter(engine.jobs) == {"orders": 2 * MOST_IDLE_CYCLES + 2, "returns": MOST_IDLE_CYCLES + 2}
