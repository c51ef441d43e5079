# SPDX-License-Identifier: Apache-2.0
"""Nobody waits for a registry for ever, or without a word, however slowly it sends what it sends."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.registry import patience
from airflow_provider_lakecommit.registry.client import SchemaRegistry
from airflow_provider_lakecommit.registry.hosts import DEFAULTS
from airflow_provider_lakecommit.registry.patience import answered, longest

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n"
SLOW = {"timeout": 0.4, "max.retries": 0, "retries.max.wait.ms": 200}


class Drops:
    """A server that sends so much at once and then a byte now and then, for as long as somebody reads."""

    def __init__(self, first: bytes) -> None:
        self._first = first
        self.gone = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://reader:hidden-canary@127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(self._first)
            try:
                while True:
                    time.sleep(0.05)
                    connection.sendall(b" ")
            except OSError:
                self.gone.set()


@pytest.fixture(params=[HEAD + b"\r\n{", HEAD + b"X-Slow: "], ids=["body", "head"])
def drops(request: pytest.FixtureRequest) -> Iterator[Drops]:
    server = Drops(request.param)
    yield server
    server.close()


def test_a_registry_that_sends_a_byte_now_and_then_is_away(
    drops: Drops, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SAID_AFTER", 0.1)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING), pytest.raises(RegistryError) as failed:
        SchemaRegistry({"url": drops.url, **SLOW}).schema(7)
    assert time.monotonic() - began < 10
    assert "was asked for schema id 7 and gave no whole answer within 0.6 s" in str(failed.value)
    assert "waiting for schema id 7 of the registry http://***@127.0.0.1" in caplog.text
    assert "canary" not in caplog.text + str(failed.value)
    # Nobody reads on.
    assert drops.gone.wait(20)


def test_what_is_waited_for_is_said_less_and_less_often(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SAID_AFTER", 0.05)
    with caplog.at_level(logging.WARNING):
        assert answered(lambda: time.sleep(0.5) or 7, "it", 20) == 7
    assert 2 <= len(caplog.records) <= 4
    caplog.clear()
    assert answered(lambda: 7, "it", 20) == 7
    assert caplog.text == ""


@pytest.mark.parametrize("error", [TimeoutError("its own"), KeyError("x"), KeyboardInterrupt()])
def test_an_error_of_the_question_is_its_own(error: BaseException) -> None:
    def ask() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        answered(ask, "it", 20)
    assert raised.value is error


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"url": "http://a"}, 4 * 12),
        ({"url": "http://a,http://b"}, 8 * 12),
        ({"url": "http://a", "timeout": 1, "max.retries": 0}, 3),
        ({"url": "http://a", "timeout": None}, 4 * 12),
        ({"url": "http://a", "max.retries": -1, "retries.max.wait.ms": 0}, 10),
    ],
)
def test_as_long_as_all_attempts_may_take(settings: dict[str, object], seconds: float) -> None:
    assert longest(settings, DEFAULTS) == seconds


def test_many_may_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SAID_AFTER", 0.001)
    found: list[int] = []

    def asks(n: int) -> Callable[[], None]:
        return lambda: found.append(answered(lambda: time.sleep(0.002 * (n % 3)) or n, "it", 20))

    threads = [threading.Thread(target=asks(n)) for n in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(60))
