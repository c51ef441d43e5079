# SPDX-License-Identifier: Apache-2.0
"""The page's routes in a real API server of Airflow, next to a real broker: who is answered what."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from dev.airflow_stack import Airflow
from dev.paths import CHECKOUT
from dev.processes import Children
from tests.fixtures.kafka import create_topic, unique
from tests.support import waiting
from tests.support.coordinator import Coordinator
from tests.support.narrator import Narrator
from tests.support.story import P0, P1

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

DEPLOYMENT = "live-test"
USERS = {"ann": "admin", "ola": "op", "vic": "viewer", "eve_of_land_clicks": "viewer"}
CANARY = "a-password-that-nobody-may-see"
DEAD = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": CANARY,
}
SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"{SCRIPT}‮" + "x" * 180
READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An API server, and what is reported on the control topic that its page reads."""

    url: str
    passwords: dict[str, str]
    topic: str
    tokens: dict[str, str] = field(default_factory=dict)

    def login(self, user: str) -> str:
        """Return a new token of a user."""
        login = {"username": user, "password": self.passwords[user]}
        return str(httpx.post(f"{self.url}/auth/token", json=login, timeout=60).json()["access_token"])

    def get(self, path: str, user: str | None = "ann", **headers: str) -> httpx.Response:
        login = {} if user is None else {"Authorization": f"Bearer {self.tokens[user]}"}
        return httpx.get(f"{self.url}/lakecommit{path}", headers={**login, **headers}, timeout=60)

    def rows(self, user: str = "ann", query: str = "") -> dict[str, dict[str, Any]]:
        answer = self.get(f"/api/v1/landings{query}", user)
        assert answer.status_code == 200, answer.text
        return {row["name"]: row for row in answer.json()["landings"]}


@pytest.fixture(scope="module")
def control(bootstrap: str, admin: AdminClient) -> str:
    name = unique("control")
    create_topic(admin, name, 1)
    return name


@pytest.fixture(scope="module")
def server(bootstrap: str, control: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    kafka = {"bootstrap.servers": bootstrap}
    for name, dag in (("orders", "land_orders"), ("clicks", "land_clicks"), ("typed-by-hand", "cli")):
        deployment = DEPLOYMENT if dag != "cli" else "cli"
        Narrator(kafka, control, name, dag, deployment).lands("first")
    Narrator(kafka, control, "others", "land_clicks", "another-airflow").lands("first")
    Narrator(kafka, control, "orders", "land_orders").stalls()
    Narrator(kafka, control, HOSTILE, SCRIPT, "another-airflow").lands("first")
    Coordinator(bootstrap, control).healthy()
    home = tmp_path_factory.mktemp("page")
    children = Children(home)
    airflow = Airflow(
        home / "airflow",
        children,
        connections={"kafka_default": _connection(kafka), "kafka_dead": _connection(DEAD)},
        settings={
            "AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": control,
            "AIRFLOW__LAKECOMMIT__PAGE_TOPICS": "kafka_default, kafka_dead, kafka_missing, kafka_default/no-such-topic",
            "AIRFLOW__LAKECOMMIT__PAGE_ACTIONS": "True",
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.airflow.team_auth.TeamAuthManager",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{u}:{role}" for u, role in USERS.items()),
            "PYTHONPATH": str(CHECKOUT),
        },
        deployment=DEPLOYMENT,
        parts=("api-server",),
        path="/af",
    )
    try:
        airflow.migrate()
        airflow.start()
        passwords = json.loads((home / "airflow" / "passwords.json").read_text())
        made = Server(url=airflow.url, passwords=passwords, topic=control)
        made.tokens.update({user: made.login(user) for user in USERS})
        yield made
    finally:
        children.stop()


def _connection(kafka: dict[str, str]) -> dict[str, object]:
    return {"conn_type": "kafka", "extra": json.dumps(kafka)}


@pytest.fixture
def read(server: Server) -> Server:
    """Once the topic is read."""
    waiting.until(lambda: len(server.rows()) >= 6, READY_SECONDS, "the rows of the page")
    return server


ROUTES = (
    "/",
    "/api/v1/landings",
    "/api/v1/landings/0123",
    "/api/v1/landings/0123/trend",
    "/api/v1/landings/0123/actions",
    "/api/v1/changes",
    "/api/v1/openapi.json",
    "/assets/x.js",
)
FOREIGN = {"Origin": "https://evil.example"}
CROSS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}


@pytest.mark.parametrize("route", ROUTES)
def test_no_request_without_a_login_or_from_elsewhere_is_answered(read: Server, route: str) -> None:
    assert read.get(route, None).status_code == 401
    assert read.get(route, None, Authorization="Bearer nonsense").status_code in (401, 403)
    assert read.get(route, "ann", **FOREIGN).status_code == 403
    assert read.get(route, "ann", **CROSS).status_code == 403


@pytest.mark.parametrize(
    "path", ["/docs", "/redoc", "/openapi.json", "/assets/../app.py", "/assets/%2e%2e/app.py", "/x"]
)
def test_what_is_not_the_pages_is_not_there(read: Server, path: str) -> None:
    assert read.get(path, "ann").status_code == 404
    assert read.get(path, None).status_code in (401, 404)


@pytest.mark.parametrize("user", USERS)
def test_each_sees_the_rows_of_the_dags_that_he_may_read(read: Server, user: str) -> None:
    visible = set(read.rows(user))
    of_dags = {"orders", "clicks"}
    of_none = {"typed-by-hand", "others", "connect-orders"}
    if user.endswith("_of_land_clicks"):
        assert visible == {"clicks"}
    else:
        assert visible >= of_dags | of_none
    ids = {name: row["id"] for name, row in read.rows("ann").items()}
    topics = {t["connection"] for t in read.get("/api/v1/landings", user).json()["topics"]}
    assert ("kafka_dead" in topics) is not user.endswith("_of_land_clicks"), "brokers of others are not told"
    for route in ("", "/trend"):
        answers = {name: read.get(f"/api/v1/landings/{key}{route}", user).status_code for name, key in ids.items()}
        assert answers == {name: 200 if name in visible else 404 for name in ids}


def test_a_stall_comes_first_with_its_reason_and_reports_what_waits(read: Server) -> None:
    rows = read.rows()
    first = next(iter(rows.values()))
    assert (first["name"], first["verdict"]) == ("orders", "stalled")
    assert "catalog answers 503" in first["reason"]
    assert [c["outcome"] for c in first["cycles"]] == ["complete", "failed", "failed", "failed"]
    assert (first["dags"], rows["connect-orders"]["kind"]) == (["land_orders"], "connector")
    assert rows["others"]["dags"] == [], "a DAG of that name in another Airflow is not ours"
    detail = read.get(f"/api/v1/landings/{first['id']}").json()
    assert any("doctor --dag land_orders --landing orders" in r["command"] for r in detail["remedies"])
    assert detail["history"][0]["failed"] == "catalog answers 503"


def test_a_window_under_way_is_reported_slice_by_slice_with_its_accounting(read: Server, bootstrap: str) -> None:
    narrator = Narrator({"bootstrap.servers": bootstrap}, read.topic, "under-way", "land", "another-airflow")
    narrator.opens("now", ((P0, 0, 400), (P1, 0, 5)))
    narrator.reports("now")
    narrator.reports("now")
    narrator.opens("next", ((P0, 400, 410),))
    waiting.until(lambda: "under-way" in read.rows() and read.rows()["under-way"]["open_cycles"] == 2, 60, "its row")
    detail = read.get(f"/api/v1/landings/{read.rows()['under-way']['id']}").json()
    later, first = detail["windows"]
    assert (first["slices_done"], first["slices_total"], first["redundant"], later["slices_done"]) == (2, 2, 2, 0)
    parts = ("landed", "rejected", "filtered", "gaps", "skipped")
    assert sum(first[part] for part in parts) == first["read"] == 405
    assert first["rows"] == {"shop.orders": 405}
    assert [(s["outcome"], s["reports"], s["ranges"]) for s in later["slices"]] == [
        ("waiting", 0, ["orders[0][400, 410)"])
    ]
    assert sum(g["slices"] for g in first["groups"]) == sum(g["slices_done"] for g in first["groups"]) == 2
    assert detail["pending"]["slices"] == 2


def test_what_was_done_over_time_is_reported_by_minute_and_by_quarter(read: Server) -> None:
    rows = read.rows()
    minutes, quarters = read.get(f"/api/v1/landings/{rows['clicks']['id']}/trend").json()["steps"]
    assert (minutes["step_seconds"], quarters["step_seconds"]) == (60, 900)
    assert sum(minutes["read"]) == sum(quarters["committed"]) == 10
    assert max(v for v in minutes["commit_lag"] if v is not None) == 10, "before it was published"
    sink = read.get(f"/api/v1/landings/{rows['connect-orders']['id']}").json()
    assert [t["partitions"] for t in sink["tasks"]] == [["orders[0]"]]
    assert (sink["announced"], sink["windows"]) == ([], [])


def test_of_a_landing_whose_dags_are_not_parsed_nothing_can_be_requested(read: Server) -> None:
    key = read.rows()["orders"]["id"]
    answer = read.get(f"/api/v1/landings/{key}/actions")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"enabled": True, "actions": []}
    assert read.get(f"/api/v1/landings/{key}/actions", "eve_of_land_clicks").status_code == 404


def test_search_pages_and_counts(read: Server) -> None:
    assert set(read.rows(query="?q=CLICKS")) == {"clicks"}
    assert set(read.rows(query="?dag_id=land_orders")) == {"orders"}
    assert set(read.rows(query="?verdict=stalled")) == {"orders"}
    listed = read.get("/api/v1/landings?verdict=stalled&limit=1").json()
    assert (listed["total"], len(listed["landings"]), listed["verdicts"]["stalled"]) == (1, 1, 1)
    assert listed["verdicts"]["healthy"] >= 4
    assert read.get("/api/v1/landings?limit=1&offset=1").json()["landings"][0]["name"] != "orders"
    for wrong in ("limit=0", "limit=201", "offset=-1", f"q={'x' * 201}"):
        assert read.get(f"/api/v1/landings?{wrong}").status_code == 422


def test_what_has_not_changed_is_not_sent_again(read: Server) -> None:
    path = f"/api/v1/landings/{read.rows()['clicks']['id']}"
    first = read.get(path)
    again = read.get(path, **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_each_answer_bears_the_headers_that_keep_scripts_out(read: Server) -> None:
    for route in ("/", "/api/v1/landings"):
        headers = read.get(route).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "private, no-cache")


def test_hostile_names_are_texts_and_make_no_command(read: Server) -> None:
    row = next(r for r in read.rows().values() if SCRIPT in r["name"])
    answer = read.get(f"/api/v1/landings/{row['id']}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["remedies"] == []


def test_what_cannot_be_read_is_reported_and_costs_nothing(read: Server) -> None:
    def troubles() -> dict[str, str]:
        topics = read.get("/api/v1/landings").json()["topics"]
        return {f"{t['connection']}/{t['topic']}": t["trouble"] for t in topics}

    own = read.topic
    values = {
        f"kafka_dead/{own}": "127.0.0.1:1",
        f"kafka_missing/{own}": "does not exist",
        "kafka_default/no-such-topic": "",
    }
    for place, words in values.items():
        waiting.until(lambda p=place, w=words: troubles()[p] != "" and w in troubles()[p], READY_SECONDS, place)
    assert troubles()[f"kafka_default/{own}"] == ""
    began = time.monotonic()
    assert len(read.rows()) >= 6
    assert time.monotonic() - began < 10, "no request waits for brokers"


def test_no_secret_is_in_any_answer(read: Server) -> None:
    for route in ("/", "/api/v1/landings", "/api/v1/openapi.json"):
        text = read.get(route).text
        assert CANARY not in text


def test_a_change_is_reported_and_a_recovery_is_observed(
    read: Server, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    del make_topic
    login = {"Authorization": f"Bearer {read.tokens['ann']}"}
    with httpx.stream("GET", f"{read.url}/lakecommit/api/v1/changes", headers=login, timeout=60) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        before = next(lines)
        assert any(topic["as_of"] is not None for topic in before["topics"])
        Narrator({"bootstrap.servers": bootstrap}, read.topic, "orders", "land_orders").lands("mended")
        assert next(change for change in lines if change["version"] > before["version"])
    waiting.until(lambda: read.rows()["orders"]["verdict"] == "healthy", READY_SECONDS, "the recovery")


@pytest.mark.heavy
def test_a_stream_ends_soon_after_its_user_has_logged_out(read: Server) -> None:
    login = {"Authorization": f"Bearer {read.login('vic')}"}
    with httpx.stream("GET", f"{read.url}/lakecommit/api/v1/changes", headers=login, timeout=60) as stream:
        events = (line for line in stream.iter_lines() if line.startswith("data: "))
        next(events)
        httpx.get(f"{read.url}/api/v2/auth/logout", headers=login, timeout=60)
        # One that lives for two minutes sends an event every ten seconds.
        assert len(list(events)) < 6
    assert read.get("/api/v1/landings", "vic").status_code == 200, "another login of the same user is still valid"
