# SPDX-License-Identifier: Apache-2.0
"""One line per landing in the note of a run; nothing that goes wrong with it is more than a warning."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.hooks import run_note
from airflow_provider_lakecommit.hooks.run_note import LENGTH, merged, note_run

TI: Any = SimpleNamespace(dag_id="land orders", run_id="manual__2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        (None, "orders: 5 rows"),
        ("", "orders: 5 rows"),
        ("orders: 3 rows", "orders: 5 rows"),
        ("mine\norders: 3 rows\nclicks: 9 rows", "mine\norders: 5 rows\nclicks: 9 rows"),
        ("orders_eu: 3 rows", "orders_eu: 3 rows\norders: 5 rows"),
        ("orders: 1\norders: 2", "orders: 5 rows"),
    ],
)
def test_a_line_replaces_the_one_of_its_landing(note: str | None, expected: str) -> None:
    assert merged(note, "orders", "5\n rows") == expected


def test_a_note_is_no_longer_than_airflow_takes() -> None:
    assert len(merged(None, "orders", "x" * 5000)) == LENGTH


class Api:
    """An API server with one run."""

    def __init__(self) -> None:
        self.note: str | None = "seen by Ann"
        self.requests: list[tuple[str, str, str]] = []
        self.refuse = False
        self.answers: list[int] = []
        self.sleep = 0.0


@contextmanager
def served(api: Api) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            time.sleep(api.sleep)
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            api.requests.append((self.command, self.path, self.headers.get("Authorization") or ""))
            answer: dict[str, Any] = {"note": api.note}
            status = api.answers.pop(0) if api.answers else 403 if api.refuse else 200
            if status != 200:
                body = {"username": "", "note": api.note}
            if self.path == "/auth/token":
                answer = {"access_token": f"token of {body['username']}"}
            elif self.command == "PATCH":
                api.note = body["note"]
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            # Who waits no longer has hung up.
            with suppress(OSError):
                self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _do

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Any:
    def connect(**fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW__LAKECOMMIT__API_CONN_ID", "airflow_api")
        monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_API", json.dumps({"conn_type": "http", **fields}))

    return connect


def test_it_is_written_with_a_login_and_what_users_wrote_stays(configured: Any) -> None:
    api = Api()
    with served(api) as port:
        configured(host="127.0.0.1", port=port, login="lake", password="secret")
        assert note_run(TI, "orders", "5 rows")
    assert api.note == "seen by Ann\norders: 5 rows"
    run = "/api/v2/dags/land%20orders/dagRuns/manual__2026-01-01T00%3A00%3A00%2B00%3A00"
    assert api.requests == [
        ("POST", "/auth/token", ""),
        ("GET", run, "Bearer token of lake"),
        ("PATCH", f"{run}?update_mask=note", "Bearer token of lake"),
    ]


def test_a_password_alone_is_a_token_and_a_line_that_is_there_is_not_written_again(configured: Any) -> None:
    api = Api()
    with served(api) as port:
        configured(host=f"http://127.0.0.1:{port}", password="t0ken")
        assert note_run(TI, "orders", "5 rows")
        assert note_run(TI, "orders", "5 rows")
    assert [verb for verb, _, _ in api.requests] == ["GET", "PATCH", "GET"]
    assert {bearer for _, _, bearer in api.requests} == {"Bearer t0ken"}


@pytest.mark.heavy(but=("answers0",))
@pytest.mark.parametrize("answers", [[500], [200, 502], [200, 200, 503], [429, 500, 503]])
def test_a_server_that_has_an_error_of_its_own_is_requested_again(
    answers: list[int], configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_note, "PAUSES", (0.0, 0.0, 0.0))
    api = Api()
    api.answers = answers
    with served(api) as port:
        configured(host="127.0.0.1", port=port, login="lake", password="secret")
        assert note_run(TI, "orders", "5 rows")
    assert api.note == "seen by Ann\norders: 5 rows"


@pytest.mark.parametrize(("status", "requests"), [(500, 4), (403, 1), (404, 1)])
def test_it_is_requested_a_few_times_and_not_again_for_what_it_refuses(
    status: int, requests: int, configured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_note, "PAUSES", (0.0, 0.0, 0.0))
    api = Api()
    api.answers = [status] * 20
    with served(api) as port:
        configured(host="127.0.0.1", port=port, password="t0ken")
        assert not note_run(TI, "orders", "5 rows")
    assert len(api.requests) == requests


def test_without_the_option_nothing_is_requested() -> None:
    assert note_run(TI, "orders", "5 rows") is False


@pytest.mark.parametrize("trouble", ["refused", "hangs", "nobody", "no such connection", "no host"])
def test_no_trouble_is_more_than_a_warning_and_none_reports_the_login(
    trouble: str, configured: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api()
    api.refuse = trouble == "refused"
    api.sleep = 0.5 if trouble == "hangs" else 0.0
    monkeypatch.setattr(run_note, "SECONDS", 0.2)
    monkeypatch.setattr(run_note, "PAUSES", (0.0,))
    with served(api) as port:
        configured(host="127.0.0.1", port=port, login="lake", password="s3cret-of-lake")
        if trouble == "no host":
            configured(login="lake", password="s3cret-of-lake")
        if trouble == "no such connection":
            monkeypatch.setenv("AIRFLOW__LAKECOMMIT__API_CONN_ID", "nowhere_to_be_found")
        if trouble != "nobody":
            _told(caplog)
    if trouble == "nobody":
        _told(caplog)


def _told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=run_note.__name__):
        assert note_run(TI, "orders", "5 rows") is False
    [messages] = [r.getMessage() for r in caplog.records if r.name == run_note.__name__]
    assert messages.startswith("Could not write the run note of landing orders: ")
    assert "s3cret" not in messages
