# SPDX-License-Identifier: Apache-2.0
"""Several addresses of one registry, and what a person is told of one that gives no answer."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import certifi
import pytest

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.registry import hosts
from airflow_provider_lakecommit.registry.client import SchemaRegistry
from airflow_provider_lakecommit.registry.remedies import remedy_of
from airflow_provider_lakecommit.registry.schemas import UnknownSchemaError
from tests.fakes.registry import FakeRegistry

QUICK = {"max.retries": 0, "retries.wait.ms": 1, "timeout": 5, "unknown.wait.seconds": 0}
DEAD = "http://127.0.0.1:9"
AWAY = (503, "text/plain", b"")


@pytest.fixture
def first() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def second() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def test_the_one_that_answered_last_is_asked_first(
    first: FakeRegistry, second: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    for fake in (first, second):
        for text in ("long", "int", "string", "boolean"):
            fake.register("s", text)
    first.before = lambda _path: AWAY
    registry = SchemaRegistry({"url": f"{first.url}, {second.url}", **QUICK})
    with caplog.at_level(logging.WARNING):
        assert [registry.schema(n).text for n in (1, 2, 3)] == ["long", "int", "string"]
    assert first.asked == ["/schemas/ids/1"]
    assert f"the registry {first.url} does not give schema id 1: HTTP 503" in caplog.text
    first.before, second.before = lambda _path: None, lambda _path: AWAY
    assert registry.schema(4).text == "boolean"
    assert first.asked == ["/schemas/ids/1", "/schemas/ids/4"]


def test_all_of_them_are_named_where_none_answers(first: FakeRegistry) -> None:
    first.before = lambda _path: AWAY
    with pytest.raises(RegistryError) as failed:
        SchemaRegistry({"url": f"{DEAD},{first.url}", **QUICK}).schema(1)
    assert f"the registry {DEAD} was asked for schema id 1 and gave no answer" in str(failed.value)
    assert f"the registry {first.url} does not give schema id 1: HTTP 503" in str(failed.value)


def test_addresses_of_different_registries_do_not_pass_for_one(first: FakeRegistry, second: FakeRegistry) -> None:
    first.register("s", "long")
    second.register("s", "string")
    second.register("s", "long")
    registry = SchemaRegistry({"url": f"{first.url},{second.url}", **QUICK})
    assert registry.schema(1).text == "long"
    first.before = lambda _path: AWAY
    assert registry.schema(2).text == "long"
    with pytest.raises(RegistryError, match="has another schema for schema id 1 than it had before"):
        registry.schema(1)
    assert registry.schema(1).text == "string"


def test_one_that_has_too_many_questions_is_asked_later(first: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    first.register("s", "long")
    waited: list[float] = []
    monkeypatch.setattr(hosts, "time", SimpleNamespace(sleep=waited.append))
    busy = (429, "application/json", b'{"error_code": 429, "message": "too many"}')
    first.before = lambda _path: busy if len(waited) < 3 else None
    assert SchemaRegistry({"url": first.url, **QUICK}).schema(1).text == "long"
    assert waited == [1.0, 2.0, 4.0]
    first.before = lambda _path: busy
    with pytest.raises(RegistryError, match="HTTP 429, too many; it is asked more often than it allows"):
        SchemaRegistry({"url": first.url, **QUICK}).schema(2)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((302, "text/html", b""), "it sends elsewhere: give the address that it sends to as its url"),
        ((404, "text/html", b"no"), "is its url complete"),
        ((401, "text/html", b"no"), "check the credentials"),
        ((200, "text/html", b"<html>"), "is its url complete, and a registry's"),
        ((500, "text/html", b"no"), "check its url, and its own log"),
    ],
)
def test_the_remedy_is_that_of_the_answer(first: FakeRegistry, answer: tuple[int, str, bytes], said: str) -> None:
    first.before = lambda _path: answer
    with pytest.raises(RegistryError, match=said):
        SchemaRegistry({"url": first.url, **QUICK}).schema(1)


def test_the_remedy_for_a_scheme_or_a_host_that_is_wrong(first: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="it speaks no TLS there"):
        SchemaRegistry({"url": first.url.replace("http:", "https:"), **QUICK}).schema(1)
    assert remedy_of("ConnectError: [Errno -2] Name or service not known") == "is the host in its url spelt right?"


def test_the_remedy_for_a_port_that_is_no_registrys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        closing.settimeout(20)
        url = f"http://127.0.0.1:{closing.getsockname()[1]}"
        registry = SchemaRegistry({"url": url, **QUICK})

        def close() -> None:
            connection, _ = closing.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=close)
        thread.start()
        with pytest.raises(RegistryError, match="is that port a registry's"):
            registry.schema(1)
        thread.join()


def test_numbers_may_be_texts(first: FakeRegistry) -> None:
    first.register("s", "long")
    texts = {"timeout": "5", "max.retries": "0", "retries.wait.ms": "1", "retries.max.wait.ms": "1"}
    assert SchemaRegistry({"url": first.url, **texts}).schema(1).text == "long"


@pytest.mark.parametrize("stated", ["soon", 0, "-1", True, float("nan"), [1]])
def test_a_timeout_that_cannot_be_meant(stated: object) -> None:
    with pytest.raises(SpecError, match="timeout cannot be"):
        SchemaRegistry({"url": "http://h", "timeout": stated})


@pytest.mark.parametrize(
    "url", ["h:8081", "http//h:1", "httph", "http://", "http://a,h:1", "", None, 8081, ["http://a"]]
)
def test_a_url_that_is_none_is_shown_with_one_that_is(url: object) -> None:
    with pytest.raises(SpecError, match=r"url is .* has to be an address like `http://HOST:8081`"):
        SchemaRegistry({"url": url})


def test_a_url_that_is_none_shows_no_login() -> None:
    with pytest.raises(SpecError, match=r"url is '\*\*\*@h:8081'") as failed:
        SchemaRegistry({"url": "reader:hidden-canary@h:8081"})
    assert "canary" not in str(failed.value)


def test_a_proxy_is_named_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryError, match="through the `proxy` of its settings") as failed:
        SchemaRegistry({"url": "http://h", "proxy": "http://u:hidden-canary@127.0.0.1:9", **QUICK}).schema(1)
    assert "canary" not in str(failed.value)
    monkeypatch.setenv("HTTP_PROXY", "http://u:hidden-canary@127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://u:hidden-canary@127.0.0.1:9")
    with pytest.raises(RegistryError, match=r"the environment has for http \(http://\*\*\*@127\.0\.0\.1:9\)") as failed:
        SchemaRegistry({"url": "http://h", **QUICK}).schema(1)
    assert "canary" not in str(failed.value)


def test_files_of_certificates_are_named_with_the_machine(tmp_path: Path) -> None:
    settings = {"url": "https://127.0.0.1:9", "ssl.ca.location": str(tmp_path / "ca.pem"), **QUICK}
    with pytest.raises(RegistryError) as failed:
        SchemaRegistry(settings)
    assert f"from {socket.gethostname()}: ssl.ca.location is {tmp_path}/ca.pem: No such file" in str(failed.value)


def test_files_of_certificates_are_read_anew_after_a_failure(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(Path(certifi.where()).read_bytes())
    registry = SchemaRegistry({"url": DEAD, "ssl.ca.location": str(ca), **QUICK})
    with pytest.raises(RegistryError):
        registry.schema(1)
    ca.unlink()
    with pytest.raises(RegistryError, match="No such file"):
        registry.schema(1)


class TestUuids:
    def test_one_that_serves_none_by_uuid_blames_the_record_and_is_asked_once(self, first: FakeRegistry) -> None:
        first.register("s", "long")

        def old(path: str) -> tuple[int, str, bytes] | None:
            if path == "/schemas/types":
                return 200, "application/json", b'["AVRO"]'
            return (404, "text/html", b"") if path.startswith("/schemas/guids/") else None

        first.before = old
        registry = SchemaRegistry({"url": first.url, **QUICK})
        for n in range(5):
            with pytest.raises(UnknownSchemaError, match="it serves no schema by its UUID"):
                registry.schema(UUID(int=n))
        assert len(first.asked) == 2
        assert registry.schema(1).text == "long"

    @pytest.mark.parametrize("types", [(404, "text/html", b""), (200, "text/html", b"<html>"), (200, "x", b"{}")])
    def test_a_wrong_address_blames_none(self, first: FakeRegistry, types: tuple[int, str, bytes]) -> None:
        first.before = lambda path: (404, "text/html", b"") if path.startswith("/schemas/guids/") else types
        with pytest.raises(RegistryError):
            SchemaRegistry({"url": first.url, **QUICK}).schema(UUID(int=1))
