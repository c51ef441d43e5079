# SPDX-License-Identifier: Apache-2.0
"""A schema registry in memory, behind real HTTP, that can be made slow, wrong or absent.

`tests/integration/test_registry_contract.py` holds it to a real registry.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID, uuid5

JSON = "application/vnd.schemaregistry.v1+json"
HTML = (200, "text/html", b"<html>a portal asks for your login</html>")
Spoilt = tuple[int, str, bytes]
NAMES = UUID("7a0b7f0e-6b0a-4f38-9b5e-0c4d3c1f0a11")


@dataclass
class Stored:
    """A schema as it was registered."""

    id: int
    body: dict[str, Any]

    @property
    def guid(self) -> str:
        return str(uuid5(NAMES, json.dumps(self.body, sort_keys=True)))

    def answer(self) -> dict[str, Any]:
        kind = self.body.get("schemaType", "AVRO")
        return {
            "schema": self.body["schema"],
            "references": self.body.get("references", []),
            **({} if kind == "AVRO" else {"schemaType": kind}),
        }


_PORTS: set[int] = set()


@dataclass
class FakeRegistry:
    """Schemas by id, subjects as lists of versions. ``asked`` has the path of each request, ``before`` is called with
    it and may answer in the registry's place.
    """

    ids: dict[int, Stored] = field(default_factory=dict)
    subjects: dict[str, list[Stored]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    before: Callable[[str], Spoilt | None] = lambda _path: None
    url: str = ""

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Sequence[Any] = ()) -> int:
        """The id of a schema, the same one for the same schema."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body: dict[str, Any] = {"schema": text, "schemaType": kind}
        if references:
            body["references"] = list(references)
        known = next((s for s in self.ids.values() if s.body == body), None)
        stored = known or Stored(id=len(self.ids) + 1, body=body)
        self.ids[stored.id] = stored
        versions = self.subjects.setdefault(subject, [])
        if stored not in versions:
            versions.append(stored)
        return stored.id

    def forget(self, schema_id: int) -> None:
        """As after a permanent deletion."""
        del self.ids[schema_id]

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a request."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match parts:
            case ["subjects"]:
                return 200, sorted(self.subjects)
            case ["schemas", "ids", number]:
                found = self.ids.get(int(number))
                return (200, found.answer()) if found else (404, _error(40403, "Schema not found"))
            case ["schemas", "guids", guid]:
                same = next((s for s in self.ids.values() if s.guid == guid), None)
                return (200, same.answer()) if same else (404, _error(40403, "Schema not found"))
            case ["subjects", subject, "versions", *rest]:
                return self._versions(subject, rest)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _versions(self, subject: str, rest: list[str]) -> tuple[int, Any]:
        versions = self.subjects.get(subject)
        if not versions:
            return 404, _error(40401, f"Subject '{subject}' not found.")
        if not rest:
            return 200, [n + 1 for n in range(len(versions))]
        number = len(versions) if rest[0] == "latest" else int(rest[0])
        if not 1 <= number <= len(versions):
            return 404, _error(40402, f"Version {number} not found.")
        stored = versions[number - 1]
        return 200, {"subject": subject, "version": number, "id": stored.id, "guid": stored.guid, **stored.answer()}

    @contextmanager
    def running(self) -> Iterator[FakeRegistry]:
        """Listening, until the end of the block."""
        server = _at_a_new_port(self)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _at_a_new_port(registry: FakeRegistry) -> ThreadingHTTPServer:
    """Return a server at a port that none in this process had: a client keeps the schemas of an address."""
    refused = []
    while True:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
        if server.server_port not in _PORTS:
            break
        refused.append(server)
    for other in refused:
        other.server_close()
    _PORTS.add(server.server_port)
    return server


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.requests.append(self.path)
            registry.logins.append(self.headers.get("Authorization"))
            if (spoilt := registry.before(self.path)) is not None:
                self._send(*spoilt)
            else:
                status, found = registry.answer(self.path)
                self._send(status, JSON, json.dumps(found).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler
