# SPDX-License-Identifier: Apache-2.0
"""A user's decision through Airflow itself: the example DAGs by `dag.test()`, answered as the API server does, and the
command line on the landing of a DAG, all on a real broker and catalog.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cli.terminal.output import Exit
from tests.fixtures.kafka import unique
from tests.support.airflow_dags import Lake, bundles, connections
from tests.support.cli import COMMAND
from tests.support.declared import landing_of
from tests.support.world import World, catalog_in

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.airflow_long,
    pytest.mark.filterwarnings("default"),
]

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLE = (CHECKOUT / "dags" / "example_lakecommit_decide.py").read_text()
SCHEMA = {"schema": [{"name": "id", "type": "long", "required": True}]}
ANSWER_SECONDS = 600.0
Produce = Callable[..., list[tuple[int, int]]]


class Repairs:
    """The example DAGs, about a landing of this test's own."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        landing = world.landing
        fields = {k: v for k, v in landing.to_flat().items() if v or k != "dead_letter_table"}
        text = EXAMPLE.replace(
            'Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")',
            f"Landing.from_flat({fields!r})",
        )
        assert text != EXAMPLE
        folder.mkdir()
        (folder / "decide.py").write_text(text)

    def run(self, dag: str, answer: str | None, conf: dict[str, Any]) -> dict[str, str]:
        """States of the tasks; with an answer given by a user while the run waits."""
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(self.folder)
        assert bag.import_errors == {}
        with _user(dag, answer):
            done = bag.dags[dag].test(run_conf=conf)
        return {ti.task_id: str(ti.state) for ti in done.get_task_instances()}

    def decisions(self) -> str:
        """What the newest snapshot of the table keeps of them."""
        with self.world.session() as session:
            snapshot = session.tables.load(self.world.landing.table).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return snapshot.summary.additional_properties.get("lakecommit.decisions", "")


@contextmanager
def _user(dag: str, answer: str | None) -> Iterator[None]:
    """Answers what the run asks, as the API server does."""
    _answered(dag, str(answer))
    over: threading.Event = threading.Event()
    trouble: list[Exception] = []

    def wait() -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not over.is_set() and time.monotonic() < deadline:
            try:
                if _answered(dag, str(answer)):
                    return
            except Exception as e:
                # The run writes to the same SQLite file.
                trouble[:] = [e]
            time.sleep(0.2)

    thread = threading.Thread(target=wait if answer else lambda: None, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        print(f"trouble while answering: {trouble}")


def _answered(dag: str, answer: str) -> bool:
    # Imported before the thread begins, see `_person`: two threads that import Airflow's models at once wait for each
    # other's locks for ever.
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        waiting = select(TaskInstance).where(TaskInstance.dag_id == dag, TaskInstance.state == "awaiting_input")
        ti = session.scalars(waiting).first()
        detail = None if ti is None else session.get(HITLDetail, ti.id)
        if ti is None or detail is None:
            return False
        detail.responded_by = {"id": "7", "name": "ann"}
        detail.responded_at = datetime.now(UTC)
        detail.chosen_options = [answer]
        detail.params_input = {"reason": "the producer is mended"} if detail.params else {}
        handle_event_submit(TriggerEvent(detail.as_resume_event_payload()), task_instance=ti, session=session)
    return True


@pytest.fixture
def repairs(
    airflow_db: Path,
    bootstrap: str,
    make_topic: Callable[..., str],
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Repairs:
    """A landing with a blocked range: of ten records two are bad, and there is no dead-letter table."""
    topic, control = make_topic(1), unique("control")
    landing = landing_of(name=unique("rows"), topics=topic, table="shop.rows", control_topic=control, create=SCHEMA)
    world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))
    produce(topic, [*({"id": n} for n in range(8)), "no json", "none either"], 0)
    return repairs_of(world, bootstrap, tmp_path, monkeypatch)


@pytest.fixture
def rejects(
    airflow_db: Path,
    bootstrap: str,
    make_world: Callable[..., World],
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Repairs:
    """A landing with two dead letters, of ten records."""
    needed = {"schema": [*SCHEMA["schema"], {"name": "name", "type": "string", "required": True}]}
    world = make_world(1, create=needed, dead_letter_max_ratio=1.0)
    produce(world.landing.topic_names[0], [{"id": n} if n < 2 else {"id": n, "name": "n"} for n in range(10)], 0)
    world.settle()
    return repairs_of(world, bootstrap, tmp_path, monkeypatch)


def repairs_of(world: World, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repairs:
    lake = Lake(properties={**world.catalog})
    for conn_id, fields in connections(bootstrap, lake).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    return Repairs(world, tmp_path / "dags")


def test_a_blocked_range_is_unblocked_by_a_users_decision_and_by_nothing_less(repairs: Repairs) -> None:
    world = repairs.world
    # The first finds the records, the second knows that they are blocked.
    world.run()
    world.run()
    conf = {"how": "skip"}
    dag = "example_lakecommit_unblock"
    assert repairs.run(dag, "Reject", conf) == {"look": "success", "approve": "success", "unblock": "skipped"}
    assert repairs.decisions() == ""
    done = repairs.run(dag, "Approve", conf)
    assert done == {"look": "success", "approve": "success", "unblock": "success"}
    decisions = repairs.decisions()
    assert "ann in run" in decisions
    assert f"of DAG {dag}" in decisions
    assert "the producer is mended" in decisions
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == list(range(8))
    nothing = repairs.run(dag, None, conf)
    assert nothing == {"look": "skipped", "approve": "skipped", "unblock": "skipped"}


def test_dead_letters_become_rows_by_a_users_decision(rejects: Repairs) -> None:
    """Once the column that they lack is optional."""
    repairs, world, table = rejects, rejects.world, rejects.world.landing.table
    dag, conf = "example_lakecommit_replay_dead_letters", {"kinds": "missing_required:name"}
    with world.session() as session, session.tables.load(table).update_schema() as update:
        update.make_column_optional("name")
    done = repairs.run(dag, "Approve", conf)
    assert done == {"look": "success", "approve": "success", "replay": "success"}
    assert sorted(row["id"] for row in world.rows()) == list(range(10))
    assert "replays 2 dead letters" in repairs.decisions()
    nothing = repairs.run(dag, None, conf)
    assert nothing == {"look": "skipped", "approve": "skipped", "replay": "skipped"}


def test_rows_go_back_and_a_landing_begins_anew_by_a_users_decision(
    airflow_db: Path,
    bootstrap: str,
    make_world: Callable[..., World],
    produce: Produce,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is rejected changes nothing; what is approved is deleted, and read again by the next run."""
    world = make_world(1, create=SCHEMA, metadata_columns=True)
    produce(world.landing.topic_names[0], [{"id": n} for n in range(10)], 0)
    world.settle()
    repairs = repairs_of(world, bootstrap, tmp_path, monkeypatch)
    dag, conf = "example_lakecommit_reset_delete", {"from": f"{world.landing.topics}:0=4"}
    assert repairs.run(dag, "Reject", conf)["delete"] == "skipped"
    assert len(world.rows()) == 10
    assert repairs.run(dag, "Approve", conf)["delete"] == "success"
    assert sorted(row["id"] for row in world.rows()) == list(range(4))
    assert "ann in run" in repairs.decisions()
    assert repairs.run("example_lakecommit_reset_hard", "Approve", {})["reset"] == "success"
    assert world.rows() == []
    assert "the producer is mended" in repairs.decisions()
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == list(range(10))


def test_every_command_works_on_the_landing_of_a_dag(repairs: Repairs, airflow_home: Path) -> None:
    world, dag = repairs.world, "example_lakecommit_unblock"
    world.run()
    world.run()

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=600, env=dict(os.environ)
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    status = command("status", "--dag", dag, "--json")
    assert status.returncode == Exit.BLOCKED, status.stderr
    assert json.loads(status.stdout)["landing"] == world.landing.name
    assert json.loads(command("verify", "--dag", dag, "--landing", world.landing.name, "--json").stdout)["ok"]
    assert world.landing.name in command("connect", "watch", "--dag", dag, "--until", "2020-01-01").stdout
    refused = command("reset", "blocked", "--dag", dag, "--skip", "--whole")
    assert refused.returncode == 3, refused.stderr
    given = command(
        "reset",
        "blocked",
        "--dag",
        dag,
        "--task-group",
        "unblock",
        "--skip",
        "--yes",
        "--reason",
        "test data",
        "--json",
    )
    assert json.loads(given.stdout)["committed"], given.stderr
    assert "test data" in repairs.decisions()
    connection = command(
        "history", "--kafka-conn-id", "kafka_default", "--control-topic", world.landing.control_topic_name
    )
    assert "START_COMMIT" in connection.stdout, connection.stderr
    missing = command("status", "--dag", "nowhere")
    assert missing.returncode == 2
    assert "Airflow has no DAG 'nowhere'" in missing.stderr
