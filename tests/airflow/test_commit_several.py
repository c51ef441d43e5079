# SPDX-License-Identifier: Apache-2.0
"""One commit task for several landings, on a real broker and a real catalog: what it commits, tells and sends.

The slices are written in this process. One test is a whole run by `dag.test()`; in the others a stand-in takes the
place of what Airflow gives to a task.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.committer import executor
from airflow_provider_lakecommit.committer.executor import TableTask
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.operators.base import CLOSED, FAILURE
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from tests.support.airflow_dags import bundles
from tests.support.world import World, records

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.filterwarnings("default")]

Make = Callable[..., World]
Produce = Callable[..., object]


@pytest.fixture
def worlds(make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> dict[str, World]:
    """Three landings of one catalog; there is nothing to land for ``b``."""
    made = {
        name: make_world(1, name=name, table=f"shop.{name}", dead_letter_table=None, iceberg_conn_id="lake")
        for name in ("a", "b", "c")
    }
    for name in ("a", "c"):
        produce(made[name].landing.topics, records(0, 10))
    extra = {"kafka_default": made["a"].kafka, "lake": made["a"].catalog}
    for conn_id, kind in (("kafka_default", "kafka"), ("lake", "iceberg")):
        told = json.dumps({"conn_type": kind, "extra": dict(extra[conn_id])})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", told)
    return made


def written(worlds: dict[str, World]) -> dict[str, Opened]:
    """Plan and write every landing's window."""
    opened = {name: world.open("run") for name, world in worlds.items()}
    for name, world in worlds.items():
        world.write(opened[name])
    return opened


@dataclass(kw_only=True)
class Attempt:
    """One attempt of the commit task."""

    worlds: dict[str, World]
    opened: dict[str, Opened]
    number: int = 1
    told: dict[str, Any] = field(default_factory=dict)
    events: dict[str, Any] = field(default_factory=dict)
    outlets: list[Any] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        names = list(self.worlds)
        task = LakeCommitOperator(
            task_id="commit",
            landings=[world.landing for world in self.worlds.values()],
            plan_task_ids=[f"{name}.plan" for name in names],
            retries=1,
        )
        tickets = {f"{name}.plan": opened.ticket.to_dict() for name, opened in self.opened.items()}
        ti = SimpleNamespace(
            dag_id="dag",
            run_id="run",
            try_number=self.number,
            max_tries=1,
            xcom_pull=lambda task_ids, key, map_indexes: tickets[task_ids],
            xcom_push=lambda key, value: self.told.update({key: json.loads(json.dumps(value))}),
        )
        accessors = {asset_of(world.landing): SimpleNamespace(extra=None) for world in self.worlds.values()}
        context: Any = {"ti": ti, "outlet_events": accessors}
        try:
            return task.execute(context)
        finally:
            self.outlets = task.outlets
            self.events = {a.name.removeprefix("lakecommit/"): s.extra for a, s in accessors.items() if s.extra}


def test_each_landing_is_committed_and_only_those_with_a_snapshot_send_an_event(worlds: dict[str, World]) -> None:
    attempt = Attempt(worlds=worlds, opened=written(worlds))
    told = attempt.run()
    assert {name: each["rows"] for name, each in told.items()} == {"a": 10, "b": 0, "c": 10}
    assert attempt.told[CLOSED] == told
    assert {name: extra["rows"] for name, extra in attempt.events.items()} == {"a": 10, "c": 10}
    assert attempt.outlets == [asset_of(worlds[name].landing) for name in ("a", "c")]
    with pytest.raises(AirflowSkipException, match=r"a: .*; b: .*; c: "):
        Attempt(worlds=worlds, opened={name: world.open("next") for name, world in worlds.items()}).run()


def test_a_landing_that_fails_fails_the_task_by_name_and_the_next_attempt_tells_of_the_others_too(
    worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(worlds=worlds, opened=written(worlds))
    real = SqlCatalog.load_table

    def load_table(self: SqlCatalog, identifier: Any) -> Any:
        if identifier == "shop.c":
            raise ConnectionRefusedError("catalog away")
        return real(self, identifier)

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", load_table)
        with pytest.raises(LakecommitError, match=r"^1 of 3 landings failed: c: CatalogError: .*catalog away"):
            attempt.run()
    assert len(worlds["a"].rows()) == 10
    assert attempt.told[CLOSED]["a"]["rows"] == 10
    assert "catalog away" in attempt.told[CLOSED]["c"][FAILURE]
    again = Attempt(worlds=worlds, opened=attempt.opened, number=2)
    again.run()
    assert {name: extra["rows"] for name, extra in again.events.items()} == {"a": 10, "c": 10}


def test_an_audit_before_the_commit_needs_no_change_of_the_operator(
    worlds: dict[str, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def audit(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        about: Any = task.about
        if (about.step, about.name) == ("publish", "shop.a"):
            raise TableError("the audit found something")
        return await go_on()

    monkeypatch.setattr(executor, "INTERCEPTORS", (audit,))
    attempt = Attempt(worlds=worlds, opened=written(worlds))
    with pytest.raises(AirflowFailException, match="1 of 3 landings failed: a: TableError: the audit found something"):
        attempt.run()
    assert (len(worlds["a"].rows()), len(worlds["c"].rows())) == (0, 10)


DAG_FILE = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator

landings = [Landing.from_dict(fields) for fields in {landings!r}]
with DAG("several", schedule=None) as dag:
    plans = [EmptyOperator(task_id=landing.name) for landing in landings]
    commit = LakeCommitOperator(task_id="commit", landings=landings, plan_task_ids=[p.task_id for p in plans])
    plans >> commit
"""


@pytest.fixture
def _sigterm() -> Iterator[None]:
    """`dag.test()` leaves its task's handler of SIGTERM in this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_sigterm", "airflow_db")
def test_airflow_gets_an_event_of_each_landing_that_published_and_of_no_other(
    worlds: dict[str, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    written(worlds)
    folder = tmp_path / "dags"
    folder.mkdir()
    landings = [world.landing.to_dict() for world in worlds.values()]
    (folder / "several.py").write_text(DAG_FILE.format(landings=landings))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(folder))
    bag = DagBag(folder)
    assert bag.import_errors == {}
    done = bag.dags["several"].test()
    assert {ti.task_id: ti.state for ti in done.get_task_instances()}["commit"] == "success"
    wanted = select(AssetEvent).where(AssetEvent.source_dag_id == "several", AssetEvent.source_run_id == done.run_id)
    with create_session() as session:
        events = {event.extra["landing"]: event.extra["rows"] for event in session.scalars(wanted)}
    assert events == {"a": 10, "c": 10}
