# SPDX-License-Identifier: Apache-2.0
"""Answers that no registry gives do not fill the memory of who asks."""

from __future__ import annotations

import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.formats.registry import connection
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from airflow_provider_lakecommit.formats.registry.connection import MOST_BYTES
from tests.fakes.rest_server import MIB, RestServer, packed

HOSTILE: dict[str, tuple[Callable[[], Any], str]] = {
    "two gigabytes": (lambda: [b"{", *([b" " * MIB] * 2048)], ""),
    "a gzip of two gigabytes": (lambda: list(packed(2048 * MIB)), "gzip"),
    "a gzip in a gzip": (lambda: gzip.compress(gzip.compress(b"{}")), "gzip, gzip"),
    "packed as nobody asked": (lambda: b"{}", "br"),
    "millions of values": (lambda: b"[" + b"[]," * (MOST_BYTES // 3 - 2) + b"0]", ""),
    "a tower of lists": (lambda: b"[" * 100_000, ""),
}


def schema_text(answer: Any, encoding: str) -> str:
    with RestServer(table=answer, encoding=encoding) as server:
        registry = SchemaRegistry({"url": server.uri, "max.retries": 0})
        try:
            return registry.schema(1).text
        finally:
            registry.close()


@pytest.mark.heavy(but=("two gigabytes", "a gzip of two gigabytes", "a gzip in a gzip"))
@pytest.mark.parametrize(("answer", "encoding"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_an_error_of_the_registry(answer: Callable[[], Any], encoding: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(RegistryError):
        schema_text(answer(), encoding)
    # The answers themselves are of this process, too.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_large_schema_is_read(encoding: str) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [], "doc": "x" * (MOST_BYTES - 1000)})
    raw = json.dumps({"schema": text}).encode()
    assert schema_text(gzip.compress(raw) if encoding else raw, encoding) == text


class Drops:
    """A server that sends the head of an answer, and then a byte now and then, for as long as a user reads."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
            try:
                while True:
                    time.sleep(0.05)
                    connection.sendall(b" ")
            except OSError:
                self.released.set()


def test_a_registry_that_sends_a_byte_now_and_then_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_SECONDS", 0.3)
    with closing(Drops()) as drops, closing(SchemaRegistry({"url": drops.url, "max.retries": 0})) as registry:
        with pytest.raises(RegistryError, match="LC4025"):
            registry.schema(7)
        assert drops.released.wait(20), "somebody reads on"
