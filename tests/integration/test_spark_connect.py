# SPDX-License-Identifier: Apache-2.0
"""Windows on a real, warm Spark Connect server: landed, adopted after a kill, told to stop, cut by the server's death.

A gate holds each slice until the test lets it pass, and notes each time that a slice is begun: what is finished must
never be begun again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.cycle.results import GroupResult, Opened
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.iceberg.storage import TableStorage
from airflow_provider_lakecommit.landing import with_registry
from airflow_provider_lakecommit.signing import KEY
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob, running_of
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from airflow_provider_lakecommit.spark.launch.connect_client import ConnectClient, FailureKind, SparkConnectError
from airflow_provider_lakecommit.spark.launch.connect_url import ConnectUrl
from airflow_provider_lakecommit.spark.launch.package import package_digest
from dev.servers.connect import ConnectServer
from tests.fixtures.kafka import unique
from tests.support.brief_daemon import BRIEF
from tests.support.declared import changed_landing, landing_of
from tests.support.gate import Gate
from tests.support.groups import group_job, group_result
from tests.support.waiting import PATIENCE, until
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration

RECORDS, SLICES = 160, 4


class Window:
    """An open window of four slices, and what is done with it."""

    def __init__(self, world: World, url: str, run: str) -> None:
        self.world = world
        self.url = url
        self.run = run
        self.opened: Opened = world.open(run)
        [self.ticket] = self.opened.groups
        assert self.ticket.slices == SLICES

    @property
    def secrets(self) -> Secrets:
        return self.world.secrets

    def engine(self) -> ConnectEngine:
        return ConnectEngine(self.url, deployment="test", landing=self.world.landing.name)

    def job(self) -> WindowJob | None:
        """What is left, as an attempt asks."""
        with self.world.session() as session:
            return group_job(self.world.landing, session.control, self.ticket, "test")

    def left_job(self) -> WindowJob:
        job = self.job()
        assert job is not None
        return job

    @property
    def result(self) -> GroupResult:
        with self.world.session() as session:
            return group_result(self.world.landing, session.control, self.ticket)

    def await_done(self, count: int) -> None:
        until(lambda: self.result.done >= count)

    def close(self) -> None:
        closed = self.world.close(self.run, self.opened)
        assert not closed.missing

    def check(self) -> None:
        """Every record is in the table once."""
        self.close()
        self.world.check(Counter(range(RECORDS)))


@pytest.fixture
def make_window(
    tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], produce: Any, connect_server: ConnectServer
) -> Callable[..., Window]:
    """A window of a landing. Landings of one name share a warm session, whatever their topics."""

    def make(name: str = "rows", url: str = connect_server.url) -> Window:
        topic = make_topic(1)
        produce(topic, records(0, RECORDS), 0)
        stated = {"table": f"shop.{name}", "create": SCHEMA, "slice_records": RECORDS // SLICES}
        landing = landing_of(name=name, topics=topic, control_topic=make_topic(1), **stated)
        world = World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path / name))
        return Window(world, url, unique("run"))

    return make


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Before the slices of all jobs of this test."""
    (tmp_path / "gate").mkdir()
    gate = Gate(tmp_path / "gate")
    gate.put(monkeypatch)
    return gate


class Attempt(threading.Thread):
    """An engine at work on a job, in a thread."""

    def __init__(self, window: Window, job: WindowJob | None = None) -> None:
        super().__init__(daemon=True)
        self.window = window
        self.engine = window.engine()
        self.job = job or window.left_job()
        self.results: list[SliceResult] = []
        self.error: SparkJobError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.results = self.engine.run(self.job, self.window.secrets)
        except SparkJobError as e:
            self.error = e

    def ended(self) -> Attempt:
        self.join(PATIENCE)
        assert not self.is_alive()
        self.engine.close()
        return self


def finish(window: Window) -> Attempt:
    """What the write task does: first wait for earlier work, then do what is left."""
    attempt = Attempt(window).ended()
    return finish(window) if isinstance(attempt.error, EarlierWorkError) else attempt


def test_a_window_is_landed_and_the_session_stays_warm(
    make_window: Callable[..., Window], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    add = ConnectClient.add_python_file
    monkeypatch.setattr(ConnectClient, "add_python_file", lambda c, name, zip: (sent.append(name), add(c, name, zip)))
    window = make_window()
    gate.let_pass()
    attempt = Attempt(window).ended()
    assert [(r.status, r.records, r.rows) for r in attempt.results] == [("done", 40, 40)] * SLICES
    assert Counter(r.slice for r in attempt.results) == Counter(str(s) for s in attempt.job.plan.slices)
    window.check()
    # The workers run the code that was sent with the session, which the second process does not send again.
    assert all(f"airflow_provider_lakecommit-{package_digest()}-" in place for place in gate.code)
    window.engine().start()
    assert len(sent) <= 1


def test_the_server_reports_how_many_tasks_run(make_window: Callable[..., Window], gate: Gate) -> None:
    window = make_window()
    attempt = Attempt(window)
    until(lambda: running_of([attempt.job]) == 2, what="both of its cores are seen at work")
    gate.let_pass()
    attempt.ended()
    assert running_of([attempt.job]) is None
    window.check()


@pytest.mark.heavy
def test_attempts_that_find_a_cold_session_at_once_all_begin(
    make_window: Callable[..., Window], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = unique("cold")
    window, together, add = make_window(name=name), threading.Barrier(4), ConnectClient.add_python_file
    monkeypatch.setattr(
        ConnectClient, "add_python_file", lambda c, file, zip: (together.wait(PATIENCE), add(c, file, zip))
    )
    engines = [window.engine() for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(ConnectEngine.start, engines))
    for each in engines:
        each.close()
    Gate(gate.base, name).let_pass()
    assert [r.status for r in Attempt(window).ended().results] == ["done"] * SLICES


def test_a_failure_of_the_server_names_the_class_of_its_error(connect_server: ConnectServer) -> None:
    client = ConnectClient(ConnectUrl.parse(connect_server.url), uuid4())
    # A server takes nothing in chunks that is one chunk alone, and says "requirement failed".
    with pytest.raises(SparkConnectError, match=r"^java\.lang\.IllegalArgumentException: "):
        client.add_python_file("one.zip", b"one")
    client.close()


CLIENT = """
import json, pathlib, pytest, sys
from airflow_provider_lakecommit.spark.launch.connect_url import ConnectUrl
from airflow_provider_lakecommit.spark.launch.package import package_digest
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from tests.support.gate import Gate
url, folder, job = sys.argv[1], sys.argv[2], WindowJob.from_json(sys.stdin.readline())
secrets = Secrets.from_json(sys.stdin.readline())
Gate(pathlib.Path(folder)).put(pytest.MonkeyPatch())
ConnectEngine(url, deployment="test", landing=job.plan.landing).run(job, secrets)
"""


def begin_elsewhere(window: Window, gate: Gate) -> subprocess.Popen[str]:
    """An attempt in a process of its own, at its first two slices."""
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, window.url, str(gate.base)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert process.stdin is not None
    process.stdin.write(f"{window.left_job().to_json()}\n{window.secrets.to_json()}\n")
    process.stdin.close()
    gate.await_begun(0, 1)
    return process


def kill_after_first(window: Window, gate: Gate) -> None:
    """An attempt in a process of its own, killed when its first slice is done; its operation goes on."""
    killed = begin_elsewhere(window, gate)
    gate.let_pass(0)
    window.await_done(1)
    killed.kill()
    killed.wait()


def test_the_work_of_a_killed_attempt_is_adopted(make_window: Callable[..., Window], gate: Gate) -> None:
    window = make_window()
    kill_after_first(window, gate)
    retry = Attempt(window)
    assert retry.job.numbers == (1, 2, 3)
    until(lambda: retry.engine._running != [])
    gate.let_pass()
    assert retry.ended().error is None
    assert Counter(r.status for r in retry.results) == {"done": 3}
    assert gate.begun == dict.fromkeys(range(SLICES), 1)
    window.check()


def test_of_two_attempts_at_once_the_newer_one_takes_over(make_window: Callable[..., Window], gate: Gate) -> None:
    window = make_window()
    older = Attempt(window)
    gate.await_begun(0, 1)
    newer = Attempt(window)
    assert "another attempt of the same task has taken it over" in str(older.ended().error)
    gate.let_pass()
    assert Counter(r.status for r in newer.ended().results) == {"done": SLICES}
    assert gate.begun == dict.fromkeys(range(SLICES), 1)
    window.check()


@pytest.mark.heavy
def test_a_stop_ends_the_job_and_loses_only_the_slices_in_hand(make_window: Callable[..., Window], gate: Gate) -> None:
    window = make_window()
    attempt = Attempt(window)
    gate.await_begun(0, 1)
    gate.let_pass(0)
    window.await_done(1)
    gate.await_begun(2)
    attempt.engine.stop()
    assert "it was stopped" in str(attempt.ended().error)
    assert gate.begun[3] == 0
    gate.await_end(1)
    gate.await_end(2)
    with pytest.raises(SparkJobError, match="LC5012"):
        attempt.engine.run(window.left_job(), window.secrets)
    gate.let_pass()
    assert Counter(r.status for r in finish(window).results) == {"done": 3}
    assert gate.begun[0] == 1
    window.check()


def test_an_older_attempt_that_is_instructed_to_stop_leaves_adopted_work_alone(
    make_window: Callable[..., Window], gate: Gate
) -> None:
    window = make_window()
    older = Attempt(window)
    gate.await_begun(0, 1)
    newer = Attempt(window)
    older.join(PATIENCE)
    # Airflow tells an orphan to stop only after its next attempt has begun; and it may tell one that still waits.
    older.engine._running.append(newer.engine._running[0])
    older.engine.stop()
    older.ended()
    gate.let_pass()
    assert newer.ended().error is None
    assert gate.begun == dict.fromkeys(range(SLICES), 1)
    window.check()


@pytest.mark.heavy
def test_what_an_adopted_job_did_not_finish_is_a_new_job(make_window: Callable[..., Window], gate: Gate) -> None:
    window = make_window()
    kill_after_first(window, gate)
    retry = Attempt(window)
    until(lambda: retry.engine._running != [])
    gate.await_begun(2)
    # As a user does by the tag, or an older attempt's stop that came a moment too early.
    retry.engine._calls.interrupt(retry.engine._running[0].operation)
    assert isinstance(retry.ended().error, EarlierWorkError)
    gate.await_end(1)
    gate.await_end(2)
    gate.let_pass()
    again = Attempt(window).ended()
    assert again.error is None
    assert again.job.numbers == (1, 2, 3)
    assert gate.begun[0] == 1
    window.check()


@pytest.mark.heavy
def test_the_work_of_another_spec_is_ended_and_what_it_had_not_reported_is_done_anew(
    make_window: Callable[..., Window], gate: Gate
) -> None:
    window = make_window()
    kill_after_first(window, gate)
    window.world = replace(window.world, landing=changed_landing(window.world.landing, unknown_fields="dead_letter"))
    retry = Attempt(window)
    assert retry.job.numbers == (1, 2, 3)
    gate.await_end(1)
    gate.let_pass()
    assert retry.ended().error is None
    assert Counter(r.status for r in retry.results) == {"done": 3}
    assert gate.begun[0] == 1
    window.check()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [FailureKind.UNKNOWN, FailureKind.OVER, FailureKind.FAILED])
def test_where_adoption_is_impossible_what_is_not_reported_is_done_again(
    make_window: Callable[..., Window], gate: Gate, monkeypatch: pytest.MonkeyPatch, kind: FailureKind
) -> None:
    window = make_window()
    kill_after_first(window, gate)

    def impossible(*_: object, **__: object) -> None:
        raise SparkConnectError(kind, "there is no way to listen to an operation here")

    monkeypatch.setattr(ConnectClient, "listen", impossible)
    gate.let_pass()
    engine, job = window.engine(), window.job()
    while job is not None:
        try:
            engine.run(job, window.secrets)
        except EarlierWorkError:
            assert kind is FailureKind.FAILED
        job = window.job()
    assert gate.begun[0] == 1
    window.check()


def test_changed_settings_reach_a_warm_session(make_window: Callable[..., Window], bootstrap: str) -> None:
    window = make_window()
    engine, job = window.engine(), window.left_job()
    wrong = replace(window.secrets, kafka={**window.secrets.kafka, "security.protocol": "nonsense"})
    results = engine.run(job, wrong)
    assert {r.status for r in results} == {"again"}
    assert Counter(r.status for r in engine.run(job, window.secrets)) == {"done": SLICES}
    engine.close()
    window.check()


@pytest.mark.heavy
def test_a_small_landing_does_not_wait_for_a_big_one(
    make_window: Callable[..., Window], gate: Gate, connect_page: str
) -> None:
    big, small, small_gate = make_window(), make_window("small"), Gate(gate.base, "small")
    attempts = [Attempt(big)]
    gate.await_begun(0, 1)
    attempts.append(Attempt(small))
    until(lambda: running_jobs(connect_page) == 2)
    for place in range(SLICES):
        # One of the two slots becomes free: the small landing, which has none, is next. In Spark's own order it would
        # be the big one's third slice.
        (gate if place == 0 else small_gate).let_pass(max(place - 1, 0))
        small_gate.await_begun(place)
    assert gate.begun == {0: 1, 1: 1}
    for each in (gate, small_gate):
        each.let_pass()
    assert [attempt.ended().error for attempt in attempts] == [None, None]


def running_jobs(page: str) -> int:
    [application] = json.loads(read_page(f"{page}/api/v1/applications"))
    return len(json.loads(read_page(f"{page}/api/v1/applications/{application['id']}/jobs?status=running")))


CANARY = "canary-51d0a7"


@pytest.mark.heavy
def test_no_setting_of_a_connection_is_observed_anywhere(
    make_window: Callable[..., Window],
    connect_server: ConnectServer,
    connect_page: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = make_window()
    handed_out = TableStorage(properties={**window.secrets.io, "s3.session-token": CANARY})
    secrets = Secrets(
        kafka=with_registry({**window.secrets.kafka, KEY: CANARY * 3}, {"basic.auth.user.info": f"me:{CANARY}"}),
        io={**window.secrets.io, "s3.secret-access-key": CANARY},
        tables={"shop.rows": handed_out, "shop.dead": handed_out},
    )
    url = f"{connect_server.url}/;use_ssl=false;token={CANARY}"
    engine = ConnectEngine(url, deployment="test", landing="rows")
    assert Counter(r.status for r in engine.run(window.left_job(), secrets)) == {"done": SLICES}
    session = engine._calls.session_id
    pages = ["jobs", "stages", "environment", "executors", "SQL", "connect", f"connect/session/?id={session}"]
    texts: dict[str, str] = {}

    def shown() -> set[str]:
        """Where the job can be found by its tag; pages and events follow a moment after its end."""
        texts.update({page: read_page(f"{connect_page}/{page}") for page in pages})
        files = [f for f in connect_server.directory.rglob("*") if f.is_file()]
        texts.update({str(f): f.read_text(errors="replace") for f in files})
        tag = f"commit={window.ticket.cycle.commit_id}"
        return {"events" if "events" in place else place for place, text in texts.items() if tag in text}

    # What may be seen is seen, so the places are the right ones: tags and names by which a user finds the job.
    until(lambda: {"stages", "connect", "events"} <= shown())
    texts |= {
        "output": "".join(capfd.readouterr()),
        "log": caplog.text,
        "error": repr((engine.__dict__, window.secrets)),
    }
    assert [place for place, text in texts.items() if CANARY in text] == []
    window.check()


def read_page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.heavy
def test_the_death_of_the_server_ends_the_job_and_a_retry_does_the_rest_on_the_next_one(
    make_window: Callable[..., Window], gate: Gate, connect_server: ConnectServer
) -> None:
    window = make_window()
    attempt = Attempt(window)
    gate.await_begun(0, 1)
    gate.let_pass(0)
    window.await_done(1)
    gate.await_begun(2)
    connect_server.kill()
    assert "cannot be reached" in str(attempt.ended().error)
    with pytest.raises(SparkJobError, match=r"cannot be reached .*: start it, or correct host and port.*LC5016"):
        window.engine().run(window.left_job(), window.secrets)
    connect_server.start()
    gate.await_end(1)
    gate.await_end(2)
    gate.let_pass()
    assert Counter(r.status for r in finish(window).results) == {"done": 3}
    assert gate.begun[0] == 1
    window.check()


@pytest.mark.heavy
def test_a_session_whose_idle_daemon_has_ended_gets_another_one(
    make_window: Callable[..., Window], tmp_path: Path
) -> None:
    with ConnectServer(tmp_path / "brief", conf=BRIEF) as server:
        daemons = []
        for rounds in (1, 2):
            window = make_window("brief", server.url)
            attempt = Attempt(window)
            until(lambda: daemons_of(server))
            daemons += daemons_of(server)
            attempt.ended()
            assert attempt.error is None
            window.close()
            window.world.check(Counter(dict.fromkeys(range(RECORDS), rounds)))
            until(lambda: not daemons_of(server))
        assert len(set(daemons)) == 2


def daemons_of(server: ConnectServer) -> list[int]:
    """Return the Python daemons that the server has started, without their workers."""
    return [p.pid for p in server.family if p.parent == server.pid and BRIEF["spark.python.daemon.module"] in p.command]
