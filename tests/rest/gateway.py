# SPDX-License-Identifier: Apache-2.0
"""A gateway before a REST catalog: it forwards requests, unless a rule decides otherwise.

Contract: :attr:`Gateway.requests` lists every request. Inside :meth:`Gateway.doing` a rule decides: it gets the request
and a function that forwards it, and returns the answer for the client, or ``None`` to hang up without one. The gateway
can also require a token, which it issues itself, put a prefix before all paths, and add to the server's settings.
Polaris, Lakekeeper and cloud catalogs do this; the server behind the gateway does not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import PATIENCE

JSON = "application/json"
HTML = "text/html"
SPARED = frozenset({"host", "connection", "accept-encoding", "content-length", "transfer-encoding"})
"""Headers that belong to one connection only."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client gets."""

    code: int
    body: bytes = b""
    kind: str = JSON

    @classmethod
    def error(cls, code: int, kind: str, message: str = "said the gateway") -> Answer:
        """As the catalog's specification wants them."""
        return cls(code, json.dumps({"error": {"message": message, "type": kind, "code": code}}).encode())


@dataclass(slots=True)
class Request:
    """One request, and the code that it was answered with (0: not answered)."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]
    code: int = 0

    @property
    def is_commit(self) -> bool:
        """Does it change a table that is there?"""
        parts = urlsplit(self.path).path.split("/")
        return self.method == "POST" and len(parts) > 2 and parts[-2] == "tables"

    @property
    def is_load(self) -> bool:
        """Does it read a table?"""
        parts = urlsplit(self.path).path.split("/")
        return self.method == "GET" and len(parts) > 2 and parts[-2] == "tables"

    @property
    def requirements(self) -> list[dict[str, Any]]:
        """What a commit states."""
        return list(json.loads(self.body)["requirements"])


Forward = Callable[[], Answer | None]
Rule = Callable[[Request, Forward], Answer | None]


@dataclass(slots=True)
class Tokens:
    """Gives tokens to who knows the credential, and knows which still hold. ``refused`` is the code for others."""

    client: str
    secret: str
    refused: int = 401
    given: list[str] = field(default_factory=list)
    valid: set[str] = field(default_factory=set)

    def give(self, body: bytes) -> Answer:
        stated = parse_qs(body.decode())
        if (stated["client_id"], stated["client_secret"]) != ([self.client], [self.secret]):
            return Answer(401, json.dumps({"error": "invalid_client"}).encode())
        self.given.append(f"token-{len(self.given)}")
        self.valid = {self.given[-1]}
        values = {"access_token": self.given[-1], "token_type": "bearer", "expires_in": 3600}
        return Answer(200, json.dumps(values).encode())

    def expire(self) -> None:
        self.valid = set()


class Gateway:
    """One gateway on a port of 127.0.0.1. Usable as a context manager."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.requests: list[Request] = []
        self.tokens: Tokens | None = None
        self.prefix = ""
        self.overrides: dict[str, str] = {}
        self.settings_rule: Rule = lambda _, forward: forward()
        """For requests of the server's settings, with which every connection begins."""
        self._rule: Rule | None = None
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                # Clients hang up when they have waited long enough.
                with suppress(ConnectionError):
                    super().handle_one_request()

            def log_message(self, *_: object) -> None: ...

            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, body, dict(self.headers))
                gateway.requests.append(request)
                answer = gateway._answer(request)
                if answer is None:
                    self.close_connection = True
                    return
                request.code = answer.code
                self.send_response(answer.code)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_GET = do_POST = do_HEAD = do_DELETE = _do

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def commits(self) -> list[Request]:
        return [request for request in self.requests if request.is_commit]

    @contextmanager
    def doing(self, rule: Rule) -> Iterator[None]:
        """Until the end of the block, that."""
        self._rule = rule
        try:
            yield
        finally:
            self._rule = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- how ----------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Answer | None:
        path = urlsplit(request.path).path
        if self.tokens is not None:
            if path == "/v1/oauth/tokens":
                return self.tokens.give(request.body)
            if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens.valid:
                return Answer.error(self.tokens.refused, "NotAuthorizedException", "the token does not hold")
        if path == "/v1/config":
            return self._settings(request)
        if not path.startswith(f"/v1/{self.prefix}"):
            return Answer(404, b"<html>no such site</html>", HTML)

        def forward() -> Answer | None:
            return self._forwarded(request)

        return forward() if self._rule is None else self._rule(request, forward)

    def _settings(self, request: Request) -> Answer | None:
        return self.settings_rule(request, lambda: self._own_settings(request))

    def _own_settings(self, request: Request) -> Answer | None:
        answer = self._forwarded(request)
        if answer is None or answer.code != 200:
            return answer
        settings = json.loads(answer.body)
        settings["overrides"] |= self.overrides
        if self.prefix:
            settings["overrides"]["prefix"] = self.prefix.rstrip("/")
        return Answer(200, json.dumps(settings).encode())

    def _forwarded(self, request: Request) -> Answer | None:
        """What the server says; ``None`` if it ends without a word."""
        connection = HTTPConnection("127.0.0.1", self._server_port, timeout=PATIENCE)
        kept = {name: value for name, value in request.headers.items() if name.lower() not in SPARED}
        path = request.path.replace(f"/v1/{self.prefix}", "/v1/", 1) if self.prefix else request.path
        try:
            connection.request(request.method, path, body=request.body or None, headers=kept)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read(), answer.headers.get("Content-Type", JSON))
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()


class Once:
    """A rule for the first commit request; the others are handed on."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._lock = threading.Lock()
        self.used = False

    def __call__(self, request: Request, forward: Forward) -> Answer | None:
        with self._lock:
            mine = request.is_commit and not self.used
            self.used = self.used or mine
        return self._rule(request, forward) if mine else forward()


def always(rule: Rule) -> Rule:
    """A rule for all commit requests."""
    return lambda request, forward: rule(request, forward) if request.is_commit else forward()
