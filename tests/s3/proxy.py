# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy before an S3 server that fails a share of the requests.

Contract: requests are forwarded byte by byte, so their signatures stay valid. :attr:`FaultyProxy.requests` lists all of
them, with the status of each answer (0: none). The shares in :attr:`FaultyProxy.faults` may be changed at any time. A
cut request is forwarded by half and dropped; for a cut answer, the server has done what it was asked, and the
client gets half of the answer's body, or no answer.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from weakref import WeakSet

from tests.support.waiting import PATIENCE

_HOP = frozenset({"connection", "transfer-encoding", "content-length"})
"""Headers that belong to one connection only."""


@dataclass(slots=True)
class Faults:
    """``slow_down`` and ``cut`` are shares of requests, from 0 to 1; ``refused`` is an error code with which every
    request is answered 403, ``refused_puts`` every PUT; the ``first`` requests are answered 503.
    """

    slow_down: float = 0.0
    cut: float = 0.0
    refused: str = ""
    refused_puts: str = ""
    first: int = 0


@dataclass(slots=True)
class Request:
    """One request."""

    method: str
    path: str
    status: int = 0

    @property
    def key(self) -> str:
        """The object, or the bucket."""
        return self.path.partition("?")[0]


@dataclass
class FaultyProxy:
    """One proxy on a port of 127.0.0.1. Usable as a context manager."""

    upstream: int
    faults: Faults = field(default_factory=Faults)
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        proxy = self

        class Handler(_Handler):
            faulty = proxy

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def process_request(self, request: Any, client_address: Any) -> None:
                proxy._clients.add(request)
                super().process_request(request, client_address)

        # The same faults in each run, as far as requests come in the same order.
        self._random, self._lock = random.Random(11), threading.Lock()
        self._clients: WeakSet[socket.socket] = WeakSet()
        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @contextmanager
    def counting(self) -> Iterator[list[Request]]:
        """Collect the requests of the block."""
        begin, out = len(self.requests), list[Request]()
        try:
            yield out
        finally:
            out += self.requests[begin:]

    @contextmanager
    def failing(self, **faults: float | str) -> Iterator[None]:
        """Fail requests until the end of the block."""
        for name, value in faults.items():
            setattr(self.faults, name, value)
        try:
            yield
        finally:
            self.faults = Faults()

    def hits(self, share: float) -> bool:
        with self._lock:
            return self._random.random() < share

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        # Clients keep their connections, and each has a thread here.
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)


def counts(requests: list[Request]) -> dict[str, int]:
    """Requests by method, and those that failed by status."""
    failed = Counter(f"{a.status}" for a in requests if a.status in (0, 503))
    return {**Counter(a.method for a in requests), **failed}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    faulty: FaultyProxy

    def handle_one_request(self) -> None:
        with suppress(ConnectionError):
            super().handle_one_request()

    def log_message(self, *_: object) -> None: ...

    def _do(self) -> None:
        body, proxy = self._body(), self.faulty
        request = Request(self.command, self.path)
        proxy.requests.append(request)
        faults = proxy.faults
        faults.first -= 1
        if code := faults.refused or (faults.refused_puts if self.command == "PUT" else ""):
            self._error(request, 403, code)
        elif faults.first >= 0 or proxy.hits(faults.slow_down):
            self._error(request, 503, "SlowDown")
        else:
            self._forward(request, body, cut=proxy.hits(faults.cut))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _do

    def _body(self) -> bytes:
        """The body as it was sent, with the framing of its chunks."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out, size = b"", 1
        while size:
            line = self.rfile.readline()
            size = int(line.partition(b";")[0], 16)
            out += line + (self.rfile.read(size + 2) if size else b"")
        while line not in (b"\r\n", b""):
            # The trailer has the checksum.
            line = self.rfile.readline()
            out += line
        return out

    def _forward(self, request: Request, body: bytes, *, cut: bool) -> None:
        lines = [self.requestline, *(f"{k}: {v}" for k, v in self.headers.items() if k.lower() != "expect"), "", ""]
        whole = "\r\n".join(lines).encode("latin-1") + body
        if cut and body and self.faulty.hits(0.5):
            self.close_connection = True
            with suppress(OSError), self._connected() as upstream:
                upstream.sendall(whole[: len(whole) - len(body) // 2])
            return
        try:
            with self._connected() as upstream:
                upstream.sendall(whole)
                answer = HTTPResponse(upstream, method=self.command)
                answer.begin()
                content = answer.read()
        except (OSError, HTTPException):
            self.close_connection = True
            return
        if cut and not content:
            self.close_connection = True
            return
        request.status = 0 if cut else answer.status
        kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in _HOP]
        length = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        self._answer(answer.status, kept, length, content[: len(content) // 2] if cut else content)
        self.close_connection = self.close_connection or cut

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.faulty.upstream), PATIENCE)

    def _error(self, request: Request, status: int, code: str) -> None:
        request.status = status
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code} of the proxy</Message></Error>".encode()
        content = b"" if self.command == "HEAD" else text
        self._answer(status, [("Content-Type", "application/xml")], str(len(content)), content)

    def _answer(self, status: int, headers: list[tuple[str, str]], length: str, content: bytes) -> None:
        self.send_response_only(status)
        for name, value in (*headers, ("Content-Length", length)):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
