# SPDX-License-Identifier: Apache-2.0
"""The plan task of a landing set that is cleared, or whose run is made anew under its id: it goes on with what is
missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.cycle.results import CycleTicket, GroupTicket
from airflow_provider_lakecommit.cycle.sets.expansion import landing_for
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators import commit as committing
from airflow_provider_lakecommit.operators import plan as planning
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.plan import CYCLES, PlanWindowOperator
from airflow_provider_lakecommit.spark.task import run_task
from tests.fakes.broker import MemoryBroker
from tests.fakes.plugged import plugged_in
from tests.support.groups import group_job
from tests.support.world import SCHEMA, World, catalog_in, records

KAFKA = {"bootstrap.servers": "127.0.0.1:1"}
SHOP = LandingSet.from_dict(
    {
        "name": "shop",
        "topics": ["orders"],
        "table": "lake.{topic}",
        "missing_table": "create",
        "defaults": {
            "create": SCHEMA,
            "window": {"slice_records": 10},
            "maintain": {"compact": False},
            "connections": {"control_topic": "control"},
        },
    }
)


def target(declared: LandingSet, tables: Tables) -> SimpleNamespace:
    """What the tasks of a set connect to."""
    return SimpleNamespace(
        declared=declared,
        kafka=KAFKA,
        tables=tables,
        namespaces=("kafka://test", "test"),
        connect=lambda found: SetConnections(declared, found, KAFKA, tables, deployment="test"),
    )


class Run:
    """One run of the set in Airflow, whose tasks are called one after the other."""

    def __init__(self, catalog: dict[str, str]) -> None:
        self.world = World(landing=landing_for(SHOP, "orders"), kafka=KAFKA, catalog=catalog)
        self.ticket: CycleTicket | None = None
        self.cycles: list[dict[str, Any]] = []

    def plan(self, try_number: int) -> list[GroupTicket]:
        found: dict[str, Any] = {}
        ti = SimpleNamespace(
            dag_id="test", run_id="one", try_number=try_number, xcom_push=found.__setitem__, get_dr_count=lambda **_: 1
        )
        context: Any = {"ti": ti, "dag_run": SimpleNamespace(run_type="manual")}
        bundles = PlanWindowOperator(task_id="plan", landing=SHOP).execute(context)
        self.cycles = found[CYCLES]
        self.ticket = CycleTicket.from_dict(self.cycles[0]["cycle"])
        return [GroupTicket.from_dict(each["group"]) for bundle in bundles for each in bundle["groups"]]

    def write(self, groups: list[GroupTicket], most: int) -> None:
        with self.world.session() as session:
            for ticket in groups:
                if (job := group_job(self.world.landing, session.control, ticket, "test")) is not None:
                    for index in range(len(job.numbers))[:most]:
                        run_task(job, self.world.secrets, index)

    def close(self) -> None:
        self.world.close("one", SimpleNamespace(ticket=self.ticket))  # type: ignore[arg-type]

    def commit(self, try_number: int) -> Any:
        """Return the payload of the event."""
        ti = SimpleNamespace(
            dag_id="test",
            run_id="one",
            try_number=try_number,
            xcom_push=lambda *_: None,
            xcom_pull=lambda **_: self.cycles,
        )
        sent: list[Any] = []
        events = defaultdict(lambda: SimpleNamespace(add=lambda _, extra: sent.append(extra)))
        context: Any = {"ti": ti, "outlet_events": events}
        LakeCommitOperator(task_id="commit", landing=SHOP, plan_task_id="plan").execute(context)
        (extra,) = sent
        return extra


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run of a set with one topic of 20 records."""
    broker, catalog = MemoryBroker(), catalog_in(tmp_path)
    broker.create("orders", 1)
    broker.produce("orders", records(0, 20), 0)
    for module in (planning, committing):
        monkeypatch.setattr(module, "set_target", lambda declared: nullcontext(target(declared, Tables(catalog))))
    with plugged_in(broker):
        yield Run(catalog)


@pytest.mark.parametrize("try_number", [2, 1])
def test_a_run_goes_on_as_a_further_cycle(run: Run, try_number: int) -> None:
    run.write(run.plan(1), most=1)
    run.close()
    run.world.check(Counter(range(10)))
    run.write(run.plan(try_number), most=2)
    run.close()
    run.world.check(Counter(range(20)))
    assert bool(run.plan(2)) is False, "all of it is landed"


@pytest.mark.parametrize("known", [False, True], ids=["no_event", "an_event"])
def test_a_cleared_run_sends_the_event_of_the_cycle_before_unless_airflow_has_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The commit task died after its commit, and part of the window is missing: the run goes on as a further cycle."""
    run.write(run.plan(1), most=1)
    first = run.commit(1)
    found = frozenset({first["snapshot_id"]} if known else ())
    monkeypatch.setattr("airflow_provider_lakecommit.operators.base.snapshots_in_events", lambda *_: found)
    run.write(run.plan(2), most=2)
    extra = run.commit(2)
    ids = [each["snapshot_id"] for each in extra["snapshots"]]
    assert (extra["rows"], first["snapshot_id"] in ids, len(ids)) == ((10, False, 1) if known else (20, True, 2))
    assert extra["snapshot_id"] == ids[-1]
