# SPDX-License-Identifier: Apache-2.0
"""The connection to a registry: several addresses, its settings, and the messages where it gives no answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from airflow_provider_lakecommit.formats.registry.connection import remedy_of
from airflow_provider_lakecommit.formats.registry.schema_source import UnknownSchemaError
from tests.fakes.registry import FakeRegistry

QUICK = {"max.retries": 0, "retries.wait.ms": 1, "timeout": 5, "unknown.wait.seconds": 0}
DEAD = "http://127.0.0.1:9"
AWAY = (503, "text/plain", b"")


@pytest.fixture
def first() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def test_the_next_address_is_requested_where_one_does_not_answer(first: FakeRegistry) -> None:
    first.register("s", "long")
    registry = SchemaRegistry({"url": f"{DEAD}, {first.url}", **QUICK})
    assert registry.schema(1).text == "long"


def test_all_of_them_are_named_where_none_answers(first: FakeRegistry) -> None:
    first.before = lambda _path: AWAY
    with pytest.raises(RegistryError, match="LC4026"):
        SchemaRegistry({"url": f"{DEAD},{first.url}", **QUICK}).schema(1)


def test_one_that_has_too_many_questions_reports_it(first: FakeRegistry) -> None:
    first.before = lambda _path: (429, "application/json", b'{"error_code": 429, "message": "too many"}')
    with pytest.raises(RegistryError, match="LC4026"):
        SchemaRegistry({"url": first.url, **QUICK}).schema(2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((302, "text/html", b""), "it redirects: use the target address as its url.*LC4026"),
        ((404, "text/html", b"no"), "check that its url has the full path.*LC4026"),
        ((401, "text/html", b"no"), "check the credentials.*LC4026"),
        ((200, "text/html", b"<html>"), "check its url: the answer is not JSON.*LC4025"),
        ((500, "text/html", b"no"), "check its url and its own log.*LC4026"),
    ],
)
def test_the_remedy_is_that_of_the_answer(first: FakeRegistry, answer: tuple[int, str, bytes], message: str) -> None:
    first.before = lambda _path: answer
    with pytest.raises(RegistryError, match=message):
        SchemaRegistry({"url": first.url, **QUICK}).schema(1)


def test_the_remedy_for_a_scheme_or_a_host_that_is_wrong(first: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="LC4025"):
        SchemaRegistry({"url": first.url.replace("http:", "https:"), **QUICK}).schema(1)
    assert remedy_of("ConnectError: [Errno -2] Name or service not known") == "check the host in its url"


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
        with pytest.raises(RegistryError, match="LC4025"):
            registry.schema(1)
        thread.join()


def test_numbers_may_be_texts(first: FakeRegistry) -> None:
    first.register("s", "long")
    texts = {"timeout": "5", "max.retries": "0", "retries.wait.ms": "1", "retries.max.wait.ms": "1"}
    assert SchemaRegistry({"url": first.url, **texts}).schema(1).text == "long"


@pytest.mark.parametrize("stated", ["soon", 0, "-1", True, float("nan"), [1]])
def test_a_timeout_that_cannot_be_meant(stated: object) -> None:
    with pytest.raises(SpecError, match="LC1007"):
        SchemaRegistry({"url": "http://h", "timeout": stated})


@pytest.mark.parametrize(
    "url", ["h:8081", "http//h:1", "httph", "http://", "http://a,h:1", "", None, 8081, ["http://a"]]
)
def test_a_url_that_is_none_is_printed_with_one_that_is(url: object) -> None:
    with pytest.raises(SpecError, match="LC1008"):
        SchemaRegistry({"url": url})


def test_a_url_that_is_none_shows_no_login() -> None:
    with pytest.raises(SpecError, match="LC1008") as failed:
        SchemaRegistry({"url": "reader:hidden-canary@h:8081"})
    assert "canary" not in str(failed.value)


def test_a_proxy_is_named_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryError, match="LC4025") as failed:
        SchemaRegistry({"url": "http://h", "proxy": "http://u:hidden-canary@127.0.0.1:9", **QUICK}).schema(1)
    assert "canary" not in str(failed.value)
    monkeypatch.setenv("HTTP_PROXY", "http://u:hidden-canary@127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://u:hidden-canary@127.0.0.1:9")
    with pytest.raises(RegistryError, match="LC4025") as failed:
        SchemaRegistry({"url": "http://h", **QUICK}).schema(1)
    assert "canary" not in str(failed.value)


def test_files_of_certificates_are_named_with_the_machine(tmp_path: Path) -> None:
    settings = {"url": "https://127.0.0.1:9", "ssl.ca.location": str(tmp_path / "ca.pem"), **QUICK}
    with pytest.raises(RegistryError) as failed:
        SchemaRegistry(settings)
    assert f"from {socket.gethostname()}: ssl.ca.location is {tmp_path}/ca.pem: No such file" in str(failed.value)


class TestUuids:
    def test_one_that_serves_none_by_uuid_blames_the_record_and_is_requested_once(self, first: FakeRegistry) -> None:
        first.register("s", "long")

        def old(path: str) -> tuple[int, str, bytes] | None:
            if path == "/schemas/types":
                return 200, "application/json", b'["AVRO"]'
            return (404, "text/html", b"") if path.startswith("/schemas/guids/") else None

        first.before = old
        registry = SchemaRegistry({"url": first.url, **QUICK})
        for n in range(5):
            with pytest.raises(UnknownSchemaError, match="it does not serve schemas by UUID"):
                registry.schema(UUID(int=n))
        assert len(first.requests) == 2
        assert registry.schema(1).text == "long"

    @pytest.mark.parametrize("types", [(404, "text/html", b""), (200, "text/html", b"<html>"), (200, "x", b"{}")])
    def test_a_wrong_address_blames_none(self, first: FakeRegistry, types: tuple[int, str, bytes]) -> None:
        first.before = lambda path: (404, "text/html", b"") if path.startswith("/schemas/guids/") else types
        with pytest.raises(RegistryError):
            SchemaRegistry({"url": first.url, **QUICK}).schema(UUID(int=1))
