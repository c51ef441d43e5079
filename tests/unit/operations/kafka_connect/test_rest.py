# SPDX-License-Identifier: Apache-2.0
"""The client of Kafka Connect's REST interface, before a server that answers as a worker does when things go wrong."""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError, SpecError
from airflow_provider_lakecommit.hooks.kafka_connect import KafkaConnectHook, rest_of
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectorStatus, ConnectRest, Part
from tests.fakes.connect_worker import Worker, serving, status


@pytest.fixture
def worker() -> Iterator[Worker]:
    with serving() as made:
        yield made


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Time passes only while Connect is waited for."""
    made = Time()
    monkeypatch.setattr("airflow_provider_lakecommit.operations.kafka_connect.rest.time", made)
    return made


def rest(worker: Worker, **options: Any) -> ConnectRest:
    return ConnectRest(url=worker.url, **options)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Files of a certificate for 127.0.0.1 that nobody but itself vouches for, and of its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now - day).not_valid_after(now + day).add_extension(here, critical=True)
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, secret


def test_a_trace_shows_no_login(worker: Worker) -> None:
    """Java quotes the settings that it does not like."""
    answer = status("RUNNING", "FAILED")
    answer["tasks"][0]["trace"] = (
        'org.apache.kafka.common.config.ConfigException: Invalid value me required username="u" '
        'password="canary-1"; for configuration sasl.jaas.config\n\tat x\n'
        "Caused by: java.sql.SQLException: jdbc:postgresql://db/x?user=u&password=canary-2 and canary-3 and hush-4711"
    )
    worker.answers = [(200, answer)]
    found = ConnectRest(url=worker.url, password="hush-4711", headers={"X-Key": "canary-3"}).status("sink")
    assert "canary" not in repr(found)
    assert "hush" not in repr(found)
    assert "Invalid value me required" in found.dead[0].cause


def test_an_answer_is_without_logins_before_it_is_cut(worker: Worker) -> None:
    worker.answers = [(500, {"message": "x" * 290 + " canary-of-many-letters-4711"})]
    with pytest.raises(ConnectError) as caught:
        ConnectRest(url=worker.url, password="canary-of-many-letters-4711").connectors()
    assert "canary" not in str(caught.value)


def test_a_status_names_what_is_dead_and_why(worker: Worker) -> None:
    worker.answers = [(200, status("RUNNING", "RUNNING", "FAILED"))]
    found = rest(worker).status("sink")
    assert [task.name for task in found.tasks] == ["sink-0", "sink-1"]
    (dead,) = found.dead
    assert dead.name == "sink-1"
    assert dead.cause == (
        "org.apache.kafka.connect.errors.ConnectException: Exiting WorkerSinkTask "
        "(caused by: java.sql.SQLException: the catalog is away)"
    )
    assert str(found) == "sink is RUNNING (sink-0 RUNNING, sink-1 FAILED)"
    assert not found.is_running
    assert found.to_dict()["dead"] == {"sink-1": dead.cause}


def test_each_order_is_requested_as_connect_wants_it(worker: Worker) -> None:
    worker.answers = [(204, None)]
    client = rest(worker)
    client.pause("a b/c")
    client.resume("x")
    client.stop("x")
    client.restart("x")
    client.restart("x", include_tasks=False, only_failed=False)
    assert worker.requests == [
        ("PUT", "/connectors/a%20b%2Fc/pause"),
        ("PUT", "/connectors/x/resume"),
        ("PUT", "/connectors/x/stop"),
        ("POST", "/connectors/x/restart?includeTasks=true&onlyFailed=true"),
        ("POST", "/connectors/x/restart?includeTasks=false&onlyFailed=false"),
    ]


@pytest.mark.parametrize("code", [409, 503])
def test_a_rebalance_is_waited_for(worker: Worker, code: int) -> None:
    worker.answers = [(code, {"message": "rebalancing"})] * 3 + [(202, None)]
    rest(worker).pause("x")
    assert len(worker.requests) == 4


def test_a_rebalance_that_does_not_end_is_an_error(worker: Worker) -> None:
    worker.answers = [(409, {"message": "Cannot complete request because of a conflicting operation"})]
    with pytest.raises(ConnectError, match="LC7521"):
        rest(worker, deadline=5.0).pause("x")


def test_a_connector_that_is_not_there_is_not_tried_again(worker: Worker) -> None:
    worker.answers = [(404, {"error_code": 404, "message": "No status found for connector x"})]
    with pytest.raises(ConnectorError, match="LC7520"):
        rest(worker).status("x")
    with pytest.raises(ConnectError, match="LC7521"):
        rest(worker).connectors()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, {"message": "Request timed out"}), "500 Request timed out; check the worker's log"),
        ((401, b"<html>who are you</html>"), "401 <html>who are you</html>; check login and password"),
        ((200, b"<html>hello</html>"), "does not answer GET /connectors"),
    ],
)
def test_what_is_wrong_is_reported(worker: Worker, answer: tuple[int, Any], message: str) -> None:
    worker.answers = [answer]
    with pytest.raises(ConnectError) as caught:
        rest(worker).connectors()
    assert message in str(caught.value)


def test_a_worker_that_is_away_is_reported_without_its_password() -> None:
    stopped = Worker()
    stopped.server_close()
    with pytest.raises(ConnectError, match="LC7519") as caught:
        ConnectRest(url=stopped.url.replace("//", "//me:canary@"), login="me", password="canary").connectors()
    assert "canary" not in str(caught.value)
    assert "canary" not in repr(ConnectRest(url="http://x", password="canary", headers={"key": "canary"}))


@pytest.mark.heavy
def test_waiting_checks_until_it_is_so(worker: Worker) -> None:
    worker.answers = [(200, status("RUNNING", "RUNNING")), (200, status("PAUSED", "RUNNING", "FAILED"))]
    worker.answers += [(200, status("PAUSED", "PAUSED", "FAILED"))]
    found = rest(worker).wait_for("sink", lambda s: s.is_paused, 60, "paused")
    assert [part.state for part in found.parts] == ["PAUSED", "PAUSED", "FAILED"]
    with pytest.raises(ConnectError, match="LC7518"):
        rest(worker).wait_for("sink", lambda s: s.is_running, 60, "running")


@pytest.mark.parametrize(
    ("states", "running", "paused", "stopped"),
    [
        (("RUNNING", "RUNNING"), True, False, False),
        (("RUNNING",), False, False, False),
        (("RUNNING", "RESTARTING"), False, False, False),
        (("PAUSED", "PAUSED"), False, True, False),
        (("STOPPED",), False, False, True),
        (("STOPPED", "PAUSED"), False, False, False),
    ],
)
def test_how_a_connector_is(states: tuple[str, ...], running: bool, paused: bool, stopped: bool) -> None:
    first, *tasks = (Part(name=str(n), state=state) for n, state in enumerate(states))
    found = ConnectorStatus(connector=first, tasks=tuple(tasks))
    assert (found.is_running, found.is_paused, found.is_stopped) == (running, paused, stopped)


def test_login_and_headers_are_sent(worker: Worker) -> None:
    worker.answers = [(200, ["b", "a"])]
    assert rest(worker, login="me", password="secret", headers={"X-Tenant": "t"}).connectors() == ["a", "b"]
    assert worker.headers["Authorization"] == f"Basic {base64.b64encode(b'me:secret').decode()}"
    assert worker.headers["X-Tenant"] == "t"


def test_a_login_in_the_address_is_sent_and_not_printed(worker: Worker) -> None:
    worker.answers = [(200, ["a"]), (500, {"message": "no"})]
    client = rest(worker)
    client.url = worker.url.replace("//", "//me:p%40ss@")
    assert client.connectors() == ["a"]
    assert worker.headers["Authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    with pytest.raises(ConnectError, match="LC7521"):
        client.connectors()


def test_a_redirect_is_followed_and_takes_no_credentials_to_another_host(worker: Worker) -> None:
    options = {"login": "me", "password": "secret", "headers": {"X-Api-Key": "k"}}
    with serving() as other:
        other.answers = [(200, ["theirs"])]
        worker.answers = [(302, f"{worker.url}/moved"), (307, f"{other.url}/connectors")]
        assert rest(worker, **options).connectors() == ["theirs"]
        assert worker.requests == [("GET", "/connectors"), ("GET", "/moved")]
        assert {"Authorization", "X-Api-Key"} <= worker.headers.keys()
        assert {"authorization", "x-api-key"}.isdisjoint(name.lower() for name in other.headers)


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_an_order_is_not_redirected(worker: Worker, code: int) -> None:
    worker.answers = [(code, f"{worker.url}/elsewhere")]
    with pytest.raises(ConnectError, match="LC7521"):
        rest(worker).pause("x")
    assert len(worker.requests) == 1


def test_a_worker_that_is_silent_is_given_up(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_lakecommit.operations.kafka_connect.rest.REQUEST_SECONDS", 0.2)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, pytest.raises(ConnectError, match="LC7519"):
        ConnectRest(url=f"http://127.0.0.1:{silent.getsockname()[1]}").connectors()


@pytest.mark.parametrize("verify", [True, False])
def test_a_certificate_is_checked_unless_it_is_not_to_be(worker: Worker, verify: bool, tmp_path: Path) -> None:
    files = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    worker.socket = context.wrap_socket(worker.socket, server_side=True)
    worker.answers = [(200, ["a"])]
    url = worker.url.replace("http:", "https:")
    assert ConnectRest(url=url, verify=str(files[0])).connectors() == ["a"]
    if verify:
        with pytest.raises(ConnectError, match="LC7519"):
            ConnectRest(url=url).connectors()
    else:
        assert ConnectRest(url=url, verify=False).connectors() == ["a"]


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "connect", "port": 8083}, "http://connect:8083"),
        ({"host": "connect", "schema": "https"}, "https://connect"),
        ({"host": "https://connect:8443/rest/"}, "https://connect:8443/rest"),
    ],
)
def test_a_connection_is_read_as_airflows_own_http_hook_reads_it(fields: dict[str, Any], url: str) -> None:
    extra = {"X-Tenant": "t", "headers": {"X-More": "m"}, "verify": "false", "timeout": 3}
    made = rest_of(
        Connection(conn_id="c", conn_type="http", login="me", password="pw", extra=json.dumps(extra), **fields)
    )
    assert (made.url, made.login, made.password, made.verify) == (url, "me", "pw", False)
    assert made.headers == {"X-Tenant": "t", "X-More": "m"}


def test_a_connection_without_host_or_none_at_all(monkeypatch: pytest.MonkeyPatch, worker: Worker) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", json.dumps({"conn_type": "http"}))
    with pytest.raises(SpecError, match="LC5308"):
        KafkaConnectHook("empty").get_conn()
    with pytest.raises(SpecError, match="LC5301"):
        KafkaConnectHook("none_such").get_conn()
    monkeypatch.setenv("AIRFLOW_CONN_THERE", json.dumps({"conn_type": "http", "host": worker.url}))
    worker.answers = [(200, ["a"])]
    assert KafkaConnectHook("there").test_connection() == (True, "1 connectors")
    assert KafkaConnectHook("empty").test_connection()[0] is False
