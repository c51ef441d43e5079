# SPDX-License-Identifier: Apache-2.0
"""A real sink is taken over by a landing while records come, and gets its table back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.commands import CONNECT_ADOPT, spoken
from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.kafka.consumer_group import members_of, offsets_of_group, set_group_offsets
from airflow_provider_lakecommit.landing import load_spec
from airflow_provider_lakecommit.operations.kafka_connect import hand_back, take_over
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, known_connector
from airflow_provider_lakecommit.operations.kafka_connect.rescue import Rescue
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from dev.record_traces import CONFLICT, TRIGGER, Lake, Scene
from dev.servers.connect import ConnectServer
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import LAND_SECONDS, Answer, run
from tests.support.declared import landing_of
from tests.support.waiting import until
from tests.worker.adopting import Adoption

pytestmark = pytest.mark.worker


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("worker"), broker.bootstrap, flush=0.5, heap="512m") as running:
        yield running


@pytest.fixture
def adoption(
    broker: Broker, worker: ConnectWorker, connect_server: ConnectServer, tmp_path: Path
) -> Iterator[Adoption]:
    """A connector that commits every two seconds, a source that is written to all the time, and a landing's spec."""
    scene = Scene("adopted", {"bootstrap.servers": broker.bootstrap}, Lake(tmp_path), [worker])
    yield Adoption.of(scene, tmp_path, broker.bootstrap, worker.url, connect_server.url)
    scene.write(tmp_path)


def landed_all(adoption: Adoption) -> None:
    """By the connector."""
    last = adoption.scene.close_source()
    until(lambda: sum(adoption.rows().values()) >= last, what="all records to land")


def test_a_sink_is_adopted_in_mid_flight_and_gets_its_table_back(adoption: Adoption) -> None:
    adoption.scene.begin()
    shown = adoption.adopt("--json")
    assert (shown.code, shown.value["written"], shown.value["against"]) == (3, False, []), shown.err
    assert adoption.rest.status(adoption.scene.connector).is_running, "nothing is done yet"
    done = adoption.adopt("--yes", "--reason", "moves to Airflow", "--json")
    assert done.code == 0, done.err
    assert adoption.rest.status(adoption.scene.connector).is_stopped
    assert adoption.rows().total() == sum(int(offset) for offset in done.value["next"].values()), "all before, no more"
    again = adoption.adopt("--json")
    assert (again.code, again.value["next"]) == (0, done.value["next"]), again.err
    with closing(Sender(adoption.bootstrap)) as sender:
        sender.produce(adoption.scene.source, ['{"id": "none that the sink could land", "part": 0}'], 0)
    for _ in range(2):
        answer = adoption.land()
        assert answer.code == 0, answer.err
    assert adoption.dead_letters() == 1
    back = adoption.adopt("--back", "--yes", "--json")
    assert back.code == 0, back.err
    skipped = adoption.land()
    assert skipped.code == 1, "as of every landing that is suspended"
    assert f"suspended: by connector {adoption.scene.connector}" in skipped.err
    resumed = run("resume", str(adoption.spec))
    assert resumed.code == 1
    assert "was handed back" in resumed.err
    statuses = run("status", str(adoption.spec))
    assert f"handed back to connector {adoption.scene.connector}" in statuses.out
    adoption.scene.landed()
    taken = adoption.adopt("--yes", "--json")
    assert taken.code == 0, taken.err
    assert adoption.land().code == 0
    assert adoption.adopt("--back", "--yes").code == 0
    landed_all(adoption)
    adoption.check_exactly_once()
    assert adoption.dead_letters() == 1
    verified = adoption.verified()
    assert verified.code == 0, verified.out
    assert "moves to Airflow" in verified.out


STEPS = ("is stopped", "has no active member", "announced files", "holds all files", "continues at")
BACK_STEPS = ("publish", "handed over to", "to the ends of the ledger")


def test_killed_after_any_step_the_same_command_goes_on(adoption: Adoption) -> None:
    scene = adoption.scene
    scene.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    scene.lake.execute(TRIGGER.format(CONFLICT))
    scene.cycles(3)
    adoption.rest.pause(scene.connector)
    scene.cycles(1)
    rest = adoption.rest
    rest.stop(scene.connector)
    rest.wait_for(scene.connector, lambda s: s.is_stopped, 60, "stopped")
    scene.lake.execute("drop trigger outage")
    before = adoption.rows().total()
    killed = [adoption.killed_after(step, "--yes") for step in STEPS]
    assert sum(killed) >= 3, f"{killed}: it was killed while it was at it"
    done = adoption.adopt("--yes", "--json")
    assert done.code == 0, done.err
    assert adoption.rows().total() > before, "files waited, and were committed"
    adoption.check_exactly_once(next_of(done))
    assert adoption.land().code == 0
    for step in BACK_STEPS:
        adoption.killed_after(step, "--back", "--yes")
    back = adoption.adopt("--back", "--yes")
    assert back.code == 0, back.err
    landed_all(adoption)
    adoption.check_exactly_once()
    assert adoption.verified().code == 0


class Died(BaseException):
    """As by SIGKILL: nobody cleans up."""


DURABLE = (
    (take_over, "stop"),
    (Rescue, "commit"),
    (Rescue, "end_turn"),
    (take_over, "set_section"),
    (hand_back, "drain"),
    (hand_back, "set_section"),
    (KnownConnector, "move"),
    (hand_back, "set_group_offsets"),
    (ConnectRest, "resume"),
)
"""All that outlives the process."""


@contextmanager
def death_after(number: int) -> Iterator[list[str]]:
    """Dies when so many steps are done; gives the names of those that were."""
    done: list[str] = []

    def dying(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def once(*arguments: Any, **options: Any) -> Any:
            found = step(*arguments, **options)
            done.append(name)
            if len(done) == number:
                raise Died
            return found

        return once

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in DURABLE:
            patch.setattr(owner, name, dying(name, getattr(owner, name)))
        yield done


def in_this_process(adoption: Adoption, *, back: bool) -> None:
    spec = load_spec(adoption.spec)
    decision = Decision(command="adopt", actor="ann", host="here", at="2026-01-01T00:00:00", landing=spec.landing.name)
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=lambda _: None) as session:
        connector = known_connector(spec.kafka, adoption.scene.connector, adoption.rest)
        if back:
            hand_back.hand_back(session, connector, decision=decision)
        else:
            take_over.adopt(session, connector, decision=decision)


def test_a_death_after_each_step_changes_nothing_of_what_comes_out(adoption: Adoption) -> None:
    """Once there is a dead-letter table, too, whose ledger is another one."""
    adoption.scene.begin()
    observed: set[tuple[str, ...]] = set()
    for number in range(1, 12):
        finished = []
        for back in (False, True):
            with death_after(number) as done:
                try:
                    in_this_process(adoption, back=back)
                    finished.append(back)
                except Died:
                    observed.add(tuple(done))
            again = adoption.adopt(*(["--back"] if back else []), "--yes", "--json")
            assert again.code == 0, (done, again.err)
            if not back:
                adoption.check_exactly_once(next_of(again))
                landed = adoption.land()
                assert landed.code == 0, (done, landed.err)
        assert adoption.verified().code == 0, observed
        if len(finished) == 2:
            break
    assert {steps[-1] for steps in observed} >= {"stop", "end_turn", "set_section", "move", "resume"}
    landed_all(adoption)
    adoption.check_exactly_once()


def test_two_adopt_at_once(adoption: Adoption) -> None:
    adoption.scene.begin()
    both = [adoption.running("--yes", "--json") for _ in range(3)]
    ends = [one.communicate(timeout=600) for one in both]
    assert [one.returncode for one in both] == [0, 0, 0], [err for _, err in ends]
    assert adoption.land().code == 0
    adoption.scene.close_source()
    assert adoption.land().code == 0
    adoption.check_exactly_once()
    verified = adoption.verified()
    assert verified.code == 0, verified.out


def test_a_connector_that_a_user_starts_again_is_named_and_followed(adoption: Adoption) -> None:
    """Nothing was landed yet, so the landing can go on behind it."""
    adoption.scene.begin()
    assert adoption.adopt("--yes").code == 0
    adoption.rest.resume(adoption.scene.connector)
    adoption.scene.landed(1)
    refused = adoption.land()
    assert refused.code == 1
    assert f"connector {adoption.scene.connector} has committed" in refused.err
    verified = adoption.verified()
    assert verified.code == 1
    assert f"connector {adoption.scene.connector} has committed" in verified.out
    taken = adoption.adopt("--yes", "--json")
    assert taken.code == 0, taken.err
    adoption.check_exactly_once(next_of(taken))
    adoption.scene.close_source()
    assert adoption.land().code == 0
    adoption.check_exactly_once()
    assert adoption.verified().code == 0


@pytest.mark.parametrize("message", ["has no active member", "holds all files"])
def test_a_connector_that_a_user_starts_in_the_middle_is_noticed(adoption: Adoption, message: str) -> None:
    scene = adoption.scene
    scene.begin()
    process, lines = adoption.running("--yes"), list[str]()
    for line in process.stderr or ():
        lines.append(line)
        if message in line:
            adoption.rest.resume(scene.connector)
    process.communicate(timeout=LAND_SECONDS)
    # It is noticed at once, or, if it took its time to start, by whoever lands next.
    assert process.returncode == 0 or "was started again" in "".join(lines), lines
    scene.landed(1)
    assert adoption.land().code == 1
    taken = adoption.adopt("--yes", "--json")
    assert taken.code == 0, taken.err
    adoption.check_exactly_once(next_of(taken))
    scene.close_source()
    assert adoption.land().code == 0
    adoption.check_exactly_once()
    assert adoption.verified().code == 0


def test_what_a_connector_and_a_landing_both_landed_is_named_and_taken_out(adoption: Adoption) -> None:
    scene = adoption.scene
    scene.begin()
    assert adoption.adopt("--yes").code == 0
    assert adoption.land().code == 0
    good = scene.lake.catalog.load_table(scene.table).metadata.current_snapshot_id
    assert good is not None
    adoption.rest.resume(scene.connector)
    scene.landed(1)
    assert adoption.land().code == 1
    refused = adoption.adopt("--yes", "--json")
    assert refused.code == 1
    assert "is in the table twice" in refused.err + refused.out
    stopped = adoption.rest.status(scene.connector)
    assert stopped.is_running, "nothing is done to a connector that cannot be adopted"
    adoption.rest.stop(scene.connector)
    adoption.rest.wait_for(scene.connector, lambda s: s.is_stopped, 60, "stopped")
    scene.lake.catalog.load_table(scene.table).manage_snapshots().rollback_to_snapshot(good).commit()
    for _ in range(2):
        landed = adoption.land()
        assert landed.code == 0, landed.err
    back = adoption.adopt("--back", "--yes")
    assert back.code == 0, back.err
    landed_all(adoption)
    adoption.check_exactly_once()
    assert adoption.verified().code == 0


def next_of(answer: Answer) -> dict[str, int]:
    return {p: int(offset) for p, offset in answer.value["next"].items()}


def test_a_worker_that_hung_and_wakes_up_is_named_before_anything_more_is_landed(
    adoption: Adoption, worker: ConnectWorker
) -> None:
    """A user said that the connector is missing; its worker was only frozen."""
    scene = adoption.scene
    scene.begin()
    command = ("connect", "adopt", str(adoption.spec), "--connector", scene.connector, "--connector-is-gone")
    with worker.frozen():
        done = run(*command, "--control-topic", scene.control, "--yes", "--json")
        assert done.code == 0, done.err
        adoption.check_exactly_once(next_of(done))
        landed = adoption.land()
        assert landed.code == 0, landed.err
        good = scene.lake.catalog.load_table(scene.table).metadata.current_snapshot_id
        assert good is not None
        # Counted before it wakes up: on a busy machine it may commit before anything else here runs.
        before = scene.lake.commits(scene.table)
    until(lambda: scene.failed() or scene.lake.commits(scene.table) > before, what="it to wake up")
    early = scene.lake.commits(scene.table) > before
    refused = adoption.land()
    # Its coordinator may also commit between these two.
    came_back = early or refused.code == 1
    assert refused.code == int(came_back), refused.err
    assert (f"connector {scene.connector} has committed" in refused.err) == came_back
    assert adoption.verified().code == int(came_back), "a worker that was fenced commits nothing"
    adoption.rest.stop(scene.connector)
    adoption.rest.wait_for(scene.connector, lambda s: s.is_stopped, 60, "stopped")
    if came_back:
        scene.lake.catalog.load_table(scene.table).manage_snapshots().rollback_to_snapshot(good).commit()
    scene.close_source()
    for _ in range(2):
        assert adoption.land().code == 0
    adoption.check_exactly_once()
    assert adoption.verified().code == 0


def test_offsets_that_a_user_reset_are_named_and_a_user_states_whose_decision_holds(
    adoption: Adoption, bootstrap: str
) -> None:
    scene = adoption.scene
    scene.begin()
    adoption.rest.stop(scene.connector)
    adoption.rest.wait_for(scene.connector, lambda s: s.is_stopped, 60, "stopped")
    kafka, group = {"bootstrap.servers": bootstrap}, f"connect-{scene.connector}"
    until(lambda: not members_of(kafka, group), what="its group to be empty")
    was = offsets_of_group(kafka, group)
    set_group_offsets(kafka, group, dict.fromkeys(was, 0))
    refused = adoption.adopt("--yes", "--json")
    assert refused.code == 1
    assert all("its offsets were reset" in reason for reason in refused.value["against"])
    assert len(refused.value["against"]) == len(was)
    set_group_offsets(kafka, group, {place: offset + 1 for place, offset in was.items()})
    assert "are unread" in adoption.adopt("--yes").err
    done = adoption.adopt("--yes", "--by", "announced", "--json")
    assert done.code == 0, done.err
    scene.close_source()
    assert adoption.land().code == 0
    adoption.check_exactly_once()
    back = adoption.adopt("--back", "--yes")
    assert back.code == 0, back.err
    adoption.check_exactly_once()


def test_a_topic_that_was_made_anew_under_the_connectors_offsets_is_named(adoption: Adoption, bootstrap: str) -> None:
    """It has more records again than the connector had read. Its offsets have gone with the topic; its events tell."""
    scene = adoption.scene
    scene.begin()
    adoption.rest.stop(scene.connector)
    adoption.rest.wait_for(scene.connector, lambda s: s.is_stopped, 60, "stopped")
    was = offsets_of_group({"bootstrap.servers": bootstrap}, f"connect-{scene.connector}")
    scene.shrink_source(len(was))

    def is_longer() -> bool:
        # A broker that has just created a topic may not know it yet, or may not lead its partitions.
        with suppress(KafkaException, KeyError):
            return adoption.sent().total() > len(was) * (max(was.values()) + 2)
        return False

    until(is_longer, what="the new topic to be longer")
    for more in ([], ["--by", "announced"]):
        refused = adoption.adopt("--yes", "--json", *more)
        assert refused.code == 1
        assert any("the topic was recreated" in reason for reason in refused.value["against"]), refused.value


def test_a_connector_that_a_landing_cannot_replace_is_left_alone(adoption: Adoption) -> None:
    scene = adoption.scene
    scene.begin(**{"iceberg.tables.route-field": "part", f"iceberg.table.{scene.table}.route-regex": ".*"})
    refused = adoption.adopt("--yes", "--json")
    assert refused.code == 1
    assert "skips or redirects records" in refused.value["against"][0]
    assert adoption.rest.status(scene.connector).is_running


def test_a_topic_with_transactions(adoption: Adoption) -> None:
    """Offsets are positions: markers and aborted records lie on both sides of the border."""
    scene = adoption.scene
    first = 1_000_000

    def send(sender: Sender, ids: range, outcome: Literal["commit", "abort"]) -> None:
        records = [json.dumps({"id": n, "part": 0}) for n in ids]
        sender.produce(scene.source, records, 0, transactional=True, outcome=outcome)

    scene.begin(**{"consumer.override.isolation.level": "read_committed"})
    with closing(Sender(adoption.bootstrap)) as sender:
        send(sender, range(first, first + 10), "commit")
        send(sender, range(first + 10, first + 20), "abort")
        done = adoption.adopt("--yes", "--json")
        assert done.code == 0, done.err
        adoption.check_exactly_once(next_of(done))
        send(sender, range(first + 20, first + 30), "abort")
        send(sender, range(first + 30, first + 40), "commit")
    scene.close_source()
    assert adoption.land().code == 0
    adoption.check_exactly_once()
    back = adoption.adopt("--back", "--yes")
    assert back.code == 0, back.err
    assert adoption.verified().code == 0


def test_a_connector_of_two_topics(
    broker: Broker, worker: ConnectWorker, connect_server: ConnectServer, tmp_path: Path
) -> None:
    """Of the second one it has read one partition; a landing that leaves it out is refused."""
    scene = Scene("adopted", {"bootstrap.servers": broker.bootstrap}, Lake(tmp_path), [worker])
    more = f"more-{scene.source}"
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), more, 2)
    with closing(Sender(broker.bootstrap)) as sender:
        sender.produce(more, [json.dumps({"id": 1_000_000 + n, "part": 0}) for n in range(20)], 0)
        scene.begin(topics=f"{scene.source},{more}")
        alone = Adoption.of(scene, tmp_path, broker.bootstrap, worker.url, connect_server.url)
        refused = alone.adopt("--yes", "--json")
        assert (refused.code, f"reads {more} too" in refused.value["against"][0]) == (1, True)
        both = [scene.source, more]
        adoption = Adoption.of(scene, tmp_path, broker.bootstrap, worker.url, connect_server.url, topics=both)
        done = adoption.adopt("--yes", "--json")
        assert done.code == 0, done.err
        adoption.check_exactly_once(next_of(done))
        sender.produce(more, [json.dumps({"id": 2_000_000 + n, "part": 1}) for n in range(20)], 1)
        assert adoption.land().code == 0
        assert adoption.adopt("--back", "--yes").code == 0
    last = scene.close_source()
    until(lambda: adoption.rows().total() >= last + 40, what="all records to land")
    adoption.check_exactly_once()
    assert adoption.verified().code == 0
    scene.write(tmp_path)


def test_a_landing_with_an_open_stream_does_not_hand_its_table_back(adoption: Adoption) -> None:
    """The connector goes on behind the live stream: nobody would land the hole."""
    scene = adoption.scene
    scene.begin()
    assert adoption.adopt("--yes").code == 0
    until(lambda: adoption.sent().total() > adoption.rows().total() + 8, what="records to come")
    filled = run("reset", "offsets", str(adoption.spec), "--from", "latest", "--fill", "hole", "--yes")
    assert filled.code == 0, filled.err
    refused = adoption.adopt("--back", "--yes")
    assert refused.code == 1
    assert "LC7510" in refused.err
    assert adoption.rest.status(scene.connector).is_stopped


YES = {"chosen_options": ["Approve"], "responded_by_user": {"id": "7", "name": "ann"}, "timedout": False}


def test_by_tasks_that_show_and_do_what_a_user_agreed_to(
    adoption: Adoption, worker: ConnectWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = json.loads(adoption.spec.read_text())
    connections = {
        "KAFKA_CONNECT_DEFAULT": {"conn_type": "http", "host": worker.url},
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": spec["kafka"]},
        "ICEBERG_DEFAULT": {"conn_type": "iceberg", "extra": spec["catalog"]},
    }
    for name, values in connections.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(values))
    scene, context = adoption.scene, {"ti": SimpleNamespace(dag_id="moves", run_id="manual__1")}
    landing = landing_of(name=spec["name"], topics=spec["topics"], table=spec["table"], connections=spec["connections"])
    scene.begin()

    def task(back: bool = False, **more: Any) -> dict[str, Any]:
        operator = LandingOperationOperator(
            task_id="t",
            landing=landing,
            operation=spoken(CONNECT_ADOPT),
            arguments={"connector": scene.connector, "back": back},
            **more,
        )
        found: dict[str, Any] = json.loads(json.dumps(operator.execute(context)))  # type: ignore[arg-type]
        return found

    shown = task()
    assert adoption.rest.status(scene.connector).is_running
    with pytest.raises(AirflowFailException, match=r"back=True:.*LC8320"):
        task(agreed=shown, decided_by=YES, back=True)
    done = task(agreed=shown, decided_by=YES, reason="to Airflow")
    assert done["wrong"] == []
    with pytest.raises(AirflowSkipException, match="already"):
        task()
    assert adoption.land().code == 0
    back = task(back=True)
    task(agreed=back, decided_by="ann", back=True)
    landed_all(adoption)
    adoption.check_exactly_once()
    verified = adoption.verified()
    assert verified.code == 0
    assert "ann in run manual__1 of DAG moves" in verified.out
