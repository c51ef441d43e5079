# SPDX-License-Identifier: Apache-2.0
"""Keys that a catalog hands out with a table: Spark's tasks write with them, each table with its own, as fresh as the
write, and nobody sees them. The data files are in a store that checks keys; metadata is in local files, as the server
behind the gateway knows no store.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleOpened
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.secrets import secrets_for
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.spark.job import SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from dev.servers.rest_catalog import RestCatalogServer
from tests.airflow.test_dag_runs import Runner
from tests.fixtures.kafka import unique
from tests.outages.runs import InProcess, Runs
from tests.rest.gateway import Gateway, Request
from tests.rest.store import KeyedStore
from tests.rest.vending import Vending
from tests.support.airflow_dags import CREATE, Lake, bundles, connections
from tests.support.cli import LAND_SECONDS, orders, run, write_spec
from tests.support.groups import group_job
from tests.support.world import SCHEMA, World

pytestmark = pytest.mark.rest

Produce = Callable[..., object]


@pytest.fixture
def store() -> Iterator[KeyedStore]:
    with KeyedStore() as running:
        yield running


@pytest.fixture
def vending(store: KeyedStore, gateway: Gateway) -> Iterator[Vending]:
    rule = Vending(store=store)
    with gateway.doing(rule):
        yield rule


@pytest.fixture
def vended_runs(make_rest_world: Callable[..., World], vending: Vending, produce: Produce) -> Runs:
    """A landing with a dead-letter table, the data files of both in the store."""
    space = f"shop.eu_{uuid4().hex[:8]}"
    in_store = {**SCHEMA, "properties": {"write.data.path": f"s3://lake/{space}/rows"}}
    world = make_rest_world(table=f"{space}.rows", dead_letter_table=f"{space}.dead", create=in_store)
    dead = {"write.data.path": f"s3://lake/{space}/dead"}
    Tables(world.catalog).create(f"{space}.dead", DEAD_LETTER_SCHEMA, properties=dead)
    return Runs(world=world, produce=produce)


def read_with_other_keys(runs: Runs, store: KeyedStore) -> World:
    """The same landing for a user whose keys open all of the store."""
    catalog = {**runs.world.catalog, **store.properties, **store.give("lake").properties}
    return replace(runs.world, catalog=catalog)


def shown(runs: Runs) -> str:
    """All that the runs said, and all that is in the control topic, compressed plans read."""
    with runs.world.session() as session:
        raw = "".join(repr((r.key, r.value, r.headers)) for r in session.control.read_all())
    return "\n".join((*runs.world.lines, raw, *map(repr, runs.story().entries)))


def assert_no_secret(vending: Vending, text: str) -> None:
    assert [secret for secret in vending.secrets if secret in text] == []


@pytest.mark.parametrize("way", ["config", "credentials"])
def test_each_table_is_written_with_keys_of_its_own_that_are_taken_anew_for_each_cycle(
    vended_runs: Runs, vending: Vending, store: KeyedStore, way: Literal["config", "credentials"]
) -> None:
    vending.way = way
    landing = vended_runs.world.landing
    space = landing.table.rpartition(".")[0]
    wrote: dict[str, list[set[str]]] = {"rows": [], "dead": []}
    for _ in range(2):
        vended_runs.load()
        vended_runs.produce(landing.topics, ["no json"])
        outcome = vended_runs.run()
        assert isinstance(outcome, CycleOutcome), outcome
        assert not outcome.written.unfinished, outcome
        for table, cycles in wrote.items():
            cycles.append({store.writers[name] for name in store.under(f"lake/{space}/{table}/")})
    assert store.refused == []
    for table, (first, both) in wrote.items():
        assert both > first
        assert both <= {keys.access_key for keys in vending.given[table]}
    assert_no_secret(vending, shown(vended_runs))
    opened = [entry.plan for entry in vended_runs.story().entries if isinstance(entry, CycleOpened)]
    assert [plan.vended for plan in opened] == [{landing.table: True, landing.dead_letter_table: True}] * 2
    vending.on = False
    reader = read_with_other_keys(vended_runs, store)
    reader.check(Counter(range(vended_runs.produced)))
    assert len(reader.rows(landing.dead_letter_table)) == 2


def test_a_process_of_many_cycles_takes_them_anew_for_each(
    vended_runs: Runs, vending: Vending, store: KeyedStore
) -> None:
    with vended_runs.world.session() as session:
        runner = LandingRunner(
            session, InProcess(), lambda number: replace(vended_runs.world.run_identity("run-1"), number=number)
        )
        for number in range(2):
            vended_runs.load()
            [outcome] = runner.cycles(number, most=1)
            written = outcome.written
            assert written.slices[SliceStatus.DONE], written
            assert not written.unfinished, written
    assert store.refused == []
    assert len(set(store.writers.values())) == 2
    vended_runs.check()


def jobs_of(world: World, session: LandingSession, opened: Opened) -> list[WindowJob]:
    found = (group_job(world.landing, session.control, ticket, session.tables.name) for ticket in opened.groups)
    return [job for job in found if job is not None]


def test_where_nothing_is_handed_out_a_write_requests_the_catalog_nothing(runs: Runs, gateway: Gateway) -> None:
    runs.loaded()
    runs.load()
    opened = runs.world.open("by hand")
    assert opened.slices
    assert not opened.plan.vended
    count = len(gateway.requests)
    with runs.world.session() as session, gateway.doing(lambda *_: None):
        for job in jobs_of(runs.world, session, opened):
            secrets = secrets_for(session.tables, session.kafka, [job], log=session.log)
            assert {run_task(job, secrets, index).status for index in range(len(job.numbers))} == {"done"}
    assert len(gateway.requests) == count
    runs.world.close("by hand", opened)
    runs.check()


def test_a_catalog_that_is_away_when_keys_are_needed_costs_this_write_and_the_next_run_lands_all(
    vended_runs: Runs, vending: Vending, store: KeyedStore
) -> None:
    refused: list[str] = []

    def first_after_the_plan(request: Request) -> bool:
        if request.is_load and not refused and any("offsets in" in line for line in vended_runs.world.lines):
            refused.append(request.path)
            return True
        return False

    vending.refuses = first_after_the_plan
    outcome = vended_runs.loaded()
    assert isinstance(outcome, CycleOutcome), outcome
    assert len(refused) == 1
    assert all("LC6234" in died and "LC3361" in died for died in outcome.written.died)
    assert outcome.written.died
    assert store.objects == {}
    vended_runs.drained()
    vended_runs.check()
    assert store.refused == []


def test_keys_that_are_about_to_expire_begin_no_job_and_the_next_run_takes_others(
    vended_runs: Runs, vending: Vending, store: KeyedStore
) -> None:
    vending.lifetime = 20.0
    outcome = vended_runs.loaded()
    assert isinstance(outcome, CycleOutcome), outcome
    (died,) = set(outcome.written.died)
    assert "LC6234" in died
    assert "LC6222" in died
    assert store.objects == {}
    vending.lifetime = None
    vended_runs.drained()
    vended_runs.check()
    assert store.refused == []


def test_keys_that_end_in_mid_write_cost_what_was_in_hand_and_are_named_nowhere(
    vended_runs: Runs, vending: Vending, store: KeyedStore, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = vended_runs.loaded(meanwhile=vending.end_all)
    assert isinstance(outcome, CycleOutcome), outcome
    assert outcome.written.unfinished
    assert all("ACCESS_DENIED" in text for text in outcome.written.unfinished), outcome
    assert {refused.rpartition(": ")[2] for refused in store.refused} == {"ExpiredToken"}
    assert_no_secret(vending, "\n".join((shown(vended_runs), str(outcome), *capfd.readouterr())))
    vended_runs.drained()
    vended_runs.check()


# -- with Spark --------------------------------------------------------------------------------------------------------


def test_the_command_line_lands_with_them_and_the_doctor_tries_them_from_a_spark_task(
    tmp_path: Path,
    gateway: Gateway,
    server: RestCatalogServer,
    vending: Vending,
    store: KeyedStore,
    bootstrap: str,
    make_topic: Callable[..., str],
    control_topic: str,
    produce: Produce,
) -> None:
    topic, name = make_topic(2), unique("orders").replace("-", "_")
    columns = [{"name": "id", "type": "long", "required": True}, {"name": "amount", "type": "decimal(12, 2)"}]
    create = {"schema": columns, "properties": {"write.data.path": f"s3://lake/{name}"}}
    catalog = server.properties_at(gateway.port)
    spec = str(
        write_spec(tmp_path, name, topic, control_topic, bootstrap, catalog, create=create, dead_letter_table=None)
    )

    def output_of(*arguments: str) -> str:
        answer = run(*arguments, timeout=LAND_SECONDS)
        assert_no_secret(vending, answer.out + answer.err)
        assert answer.code == 0, answer.out + answer.err
        return answer.out

    produce(topic, orders(30))
    output_of("land", spec)
    # The doctor checks a table more than once, and tries its storage with what it was reported first.
    vending.rotates = False
    found = {f["check"]: f for f in json.loads(output_of("doctor", spec, "--json"))["findings"]}
    assert found["executor storage"]["level"] == found[f"credentials of shop.{name}"]["level"] == "ok", found
    assert "s3.secret-access-key" in found[f"credentials of shop.{name}"]["seen"]
    assert store.refused == []
    vending.spoilt = True
    answer = run("doctor", spec, "--json", timeout=LAND_SECONDS)
    assert_no_secret(vending, answer.out + answer.err)
    found = {f["check"]: f for f in json.loads(answer.out)["findings"]}
    assert found["executor storage"]["level"] == "FAIL", found
    vending.on = False
    reader = Tables({**catalog, **store.properties, **store.give("lake").properties})
    assert sorted(reader.load(f"shop.{name}").scan().to_arrow().column("id").to_pylist()) == list(range(30))


@pytest.fixture
def own_signals() -> Iterator[None]:
    """`dag.test()` leaves its task's handler of SIGTERM in this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("own_signals")
@pytest.mark.filterwarnings("default")
def test_in_airflow_the_write_task_takes_fresh_ones_and_neither_its_logs_nor_its_database_have_them(
    airflow_db: Path,
    airflow_home: Path,
    tmp_path: Path,
    gateway: Gateway,
    server: RestCatalogServer,
    vending: Vending,
    store: KeyedStore,
    bootstrap: str,
    make_topic: Callable[..., str],
    produce: Produce,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    name = unique("landing").replace("-", "_")
    runner = Runner(tmp_path / "dags", name, make_topic(2), monkeypatch)
    lake = Lake(properties=server.properties_at(gateway.port))
    runner.connect(connections(bootstrap, lake))
    create = {**CREATE, "properties": {"write.data.path": f"s3://lake/{name}"}}
    runner.declare(table=f"shop.{name}", create=create, dead_letter_table=None)
    produce(runner.topic, [{"id": number, "note": "x"} for number in range(20)])

    done = runner.run()

    assert done.tasks == {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
    assert lake.ids(f"shop.{name}") == list(range(20))
    assert store.refused == []
    files = [path for path in (*airflow_home.rglob("*"), *tmp_path.rglob("*")) if path.is_file()]
    texts = {str(path): path.read_bytes().decode(errors="replace") for path in files}
    assert str(airflow_db) in texts
    texts["log"], texts["output"] = caplog.text, "".join(capfd.readouterr())
    assert name in texts["output"] + texts["log"]
    assert [place for place, text in texts.items() for secret in vending.secrets if secret in text] == []
