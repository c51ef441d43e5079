# SPDX-License-Identifier: Apache-2.0
"""A server that answers as the REST interface of a Kafka Connect worker does, for what a real one does not do at will:
rebalance, refuse, answer nonsense.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Worker", "serving", "status"]

TRACE = """org.apache.kafka.connect.errors.ConnectException: Exiting WorkerSinkTask
\tat org.apache.kafka.connect.runtime.WorkerSinkTask.deliverMessages(WorkerSinkTask.java:658)
Caused by: java.lang.RuntimeException: in between
\tat org.example.Somewhere
Caused by: java.sql.SQLException: the catalog is away
\tat org.example.Elsewhere
"""


def status(connector: str = "RUNNING", *tasks: str) -> dict[str, Any]:
    def part(state: str) -> dict[str, Any]:
        return {"state": state, "worker_id": "w:1", **({"trace": TRACE} if state == "FAILED" else {})}

    return {
        "name": "sink",
        "connector": part(connector),
        # A worker names them in no order.
        "tasks": [{"id": n, **part(state)} for n, state in reversed(list(enumerate(tasks)))],
    }


class Worker(ThreadingHTTPServer):
    """Answers what it was reported to, the last answer for ever; remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next(self) -> tuple[int, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Handler(BaseHTTPRequestHandler):
    server: Worker

    def do_GET(self) -> None:
        self.server.requests.append((self.command, self.path))
        self.server.headers = dict(self.headers)
        code, body = self.server.next()
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(code)
        if 300 <= code < 400:
            self.send_header("Location", body)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_PUT = do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def serving() -> Iterator[Worker]:
    """A worker that runs in the block."""
    made = Worker()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()
