# SPDX-License-Identifier: Apache-2.0
"""Questions to an Airflow whose SQLite database is locked: a fault that cannot be had at will."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dev import airflow_client
from dev.airflow_client import TRIES, AirflowAnswerError, AirflowClient

LOCKED = {"detail": {"reason": "Database error", "message": "Serious error when handling your request."}}
BROKEN = {"detail": "Internal Server Error"}


@contextmanager
def airflow(faults: list[dict[str, object]]) -> Iterator[tuple[AirflowClient, list[str]]]:
    """A client, and the questions that were asked; the first ones after the login meet the faults."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            login = self.path.endswith("/token")
            if not login:
                requests.append(self.path)
            fault = None if login or len(requests) > len(faults) else faults[len(requests) - 1]
            body = json.dumps(fault or {"access_token": "t"}).encode()
            self.send_response(500 if fault else 201)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield AirflowClient(f"http://127.0.0.1:{server.server_port}", "admin", "admin"), requests
        finally:
            server.shutdown()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_client, "LOOK_SECONDS", 0.0)


def test_a_locked_database_is_requested_again() -> None:
    with airflow([LOCKED, LOCKED]) as (client, requests):
        client.trigger("orders", "run-1")
    assert requests == ["/api/v2/dags/orders/dagRuns"] * 3


@pytest.mark.parametrize(("faults", "times"), [([LOCKED] * TRIES, TRIES), ([BROKEN], 1)])
def test_one_that_stays_locked_and_any_other_error_are_reported(faults: list[dict[str, object]], times: int) -> None:
    with airflow(faults) as (client, requests), pytest.raises(AirflowAnswerError, match="500"):
        client.trigger("orders", "run-1")
    assert len(requests) == times
