# SPDX-License-Identifier: Apache-2.0
"""The registry's client: what it keeps, what it asks again, and what it makes of answers that are none."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry import client
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry, needed, registry_of
from airflow_provider_lakecommit.formats.registry.schema_source import UnknownSchemaError
from airflow_provider_lakecommit.landing.registry import registry_settings, with_login_apart, with_registry
from tests.fakes.registry import HTML, FakeRegistry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
QUICK = {"max.retries": 1, "retries.wait.ms": 1, "timeout": 5, "unknown.wait.seconds": 0}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def connected(fake: FakeRegistry, **settings: object) -> SchemaRegistry:
    return SchemaRegistry({"url": fake.url, **QUICK, **{k.replace("_", "."): v for k, v in settings.items()}})


class TestSchemas:
    def test_a_schema_is_requested_once(self, fake: FakeRegistry) -> None:
        number = fake.register("orders-value", ORDER)
        registry = connected(fake)
        assert registry.schema(number) is registry.schema(number)
        assert registry.schema(number).kind == "AVRO"
        assert fake.requests == [f"/schemas/ids/{number}"]

    def test_as_many_are_kept_as_are_allowed(self, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client, "MOST_KEPT", 2)
        ids = [fake.register("s", {**ORDER, "name": f"Order{n}"}) for n in range(3)]
        registry = connected(fake)
        for number in (*ids, ids[2], ids[1], ids[0]):
            registry.schema(number)
        assert fake.requests == [f"/schemas/ids/{number}" for number in (*ids, ids[0])]

    def test_by_uuid(self, fake: FakeRegistry) -> None:
        number = fake.register("orders-value", ORDER)
        found = connected(fake).schema(UUID(fake.ids[number].guid))
        assert found.text == fake.ids[number].body["schema"]

    def test_with_all_that_it_imports_each_once_and_first(self, fake: FakeRegistry) -> None:
        fake.register("money", {"type": "fixed", "name": "Money", "size": 8})
        money = {"name": "Money", "subject": "money", "version": 1}
        fake.register("item", {**ORDER, "name": "Item"}, references=[money])
        item = {"name": "Item", "subject": "item", "version": 1}
        found = connected(fake).schema(fake.register("order", ORDER, references=[item, money]))
        assert [name for name, _ in found.imported()] == ["Money", "Item"]

    def test_what_many_import_is_fetched_and_reported_once(self, fake: FakeRegistry) -> None:
        # Each imports all before it: there are more ways to the first than anybody can walk.
        references: list[dict[str, Any]] = []
        for n in range(24):
            number = fake.register(f"part{n}", {**ORDER, "name": f"Part{n}"}, references=references)
            references.append({"name": f"Part{n}", "subject": f"part{n}", "version": 1})
        found = connected(fake).schema(number)
        assert [name for name, _ in found.imported()] == [f"Part{n}" for n in range(23)]
        inner = dict(found.references)
        assert all(dict(inner["Part22"].references)[f"Part{n}"] is inner[f"Part{n}"] for n in range(22))

    def test_what_it_imports_is_missing(self, fake: FakeRegistry) -> None:
        lost = {"name": "Money", "subject": "money", "version": 3}
        number = fake.register("order", ORDER, references=[lost])
        with pytest.raises(UnknownSchemaError, match="subject money, version 3, which schema id 1 imports as Money"):
            connected(fake).schema(number)

    def test_imports_in_a_circle_are_no_answer(self, fake: FakeRegistry) -> None:
        number = fake.register("order", ORDER, references=[{"name": "Order", "subject": "order", "version": 1}])
        with pytest.raises(RegistryError, match="LC4022"):
            connected(fake).schema(number)

    def test_an_unknown_id_is_requested_again(self, fake: FakeRegistry) -> None:
        registry = connected(fake)
        with pytest.raises(UnknownSchemaError, match=f"the registry {fake.url} has no schema id 1 .*Schema not found"):
            registry.schema(1)
        fake.register("orders-value", ORDER)
        assert registry.schema(1).text

    def test_what_was_deleted_softly_is_still_imported(self, fake: FakeRegistry) -> None:
        fake.register("money", {"type": "fixed", "name": "Money", "size": 8})
        money = {"name": "Money", "subject": "money", "version": 1}
        number = fake.register("order", ORDER, references=[money])
        not_found = (404, "application/json", b'{"error_code": 40402, "message": "Version 1 not found."}')
        fake.before = lambda path: not_found if "/versions/" in path and "deleted=true" not in path else None
        assert [name for name, _ in connected(fake).schema(number).imported()] == ["Money"]

    def test_what_many_import_is_requested_and_walked_through_once(self, fake: FakeRegistry) -> None:
        below: list[dict[str, object]] = []
        for n in range(30):
            for side in "ab":
                fake.register(f"s{n}{side}", {**ORDER, "name": f"R{n}{side}"}, references=below)
            below = [{"name": f"R{n}{side}", "subject": f"s{n}{side}", "version": 1} for side in "ab"]
        number = fake.register("top", ORDER, references=below)
        found = connected(fake).schema(number)
        assert len(fake.requests) == 61
        names = [name for name, _ in found.imported()]
        assert (len(names), set(names[-2:])) == (60, {"R29a", "R29b"})

    def test_a_reassigned_id_is_reported_and_read_by_its_new_schema(
        self, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        number = fake.register("orders-value", ORDER)
        registry = connected(fake)
        assert registry.schema(number)
        monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)
        fake.ids[number].body["schema"] = json.dumps(ORDER, indent=4)
        assert registry.schema(number).text == json.dumps(ORDER, indent=4)
        fake.ids[number].body["schema"] = json.dumps({**ORDER, "name": "Click"})
        with pytest.raises(RegistryError, match="LC4021"):
            registry.schema(number)
        assert "Click" in registry.schema(number).text

    @pytest.mark.parametrize("deleted", [True, False])
    def test_one_that_cannot_answer_again_leaves_it_known(
        self, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch, deleted: bool
    ) -> None:
        number = fake.register("orders-value", ORDER)
        registry = connected(fake)
        before = registry.schema(number)
        monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)
        if deleted:
            fake.forget(number)
        else:
            fake.before = lambda _path: (500, "text/plain", b"")
        assert registry.schema(number) == before
        assert len(fake.requests) > 1

    def test_a_type_in_lower_case(self, fake: FakeRegistry) -> None:
        number = fake.register("orders-value", ORDER, kind="avro")
        assert connected(fake).schema(number).kind == "AVRO"

    def test_what_was_known_stays_known(self, fake: FakeRegistry) -> None:
        number = fake.register("orders-value", ORDER)
        registry = connected(fake)
        before = registry.schema(number)
        fake.forget(number)
        assert registry.schema(number) == before


class TestSubjects:
    def test_the_newest_is_never_kept(self, fake: FakeRegistry) -> None:
        registry = connected(fake)
        fake.register("orders-value", ORDER)
        assert registry.newest("orders-value").key == 1
        fake.register("orders-value", {**ORDER, "name": "Newer"})
        assert registry.newest("orders-value").key == 2
        assert registry.ids("orders-value", 9) == (2, (1, 2))
        fake.requests.clear()
        assert registry.ids("orders-value", 1) == (2, (2,))
        assert len(fake.requests) <= 2

    @pytest.mark.parametrize("call", ["newest", "ids"])
    def test_no_such_subject(self, fake: FakeRegistry, call: str) -> None:
        with pytest.raises(UnknownSchemaError, match="has no subject a/b"):
            getattr(connected(fake), call)("a/b", *[9][: call == "ids"])


class TestFaults:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (
                (500, "application/json", b'{"error_code": 50001, "message": "in the backend store"}'),
                "HTTP 500.*LC4026",
            ),
            ((404, "text/html", b"<html>not here</html>"), "HTTP 404.*LC4026"),
            ((404, "application/json", b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), "HTTP 404.*LC4026"),
            (
                (401, "application/json", b'{"error_code": 401, "message": "Unauthorized"}'),
                "check the credentials.*LC4026",
            ),
            ((403, "application/json", b'{"error_code": 40301, "message": "no"}'), "check the credentials.*LC4026"),
            (HTML, "gave no valid answer.*LC4025"),
            ((200, "application/json", b"[]"), "gave no valid answer.*LC4025"),
            ((200, "application/json", b'{"schema": 7}'), "an unusable schema for .*: it has no text.*LC4022"),
            ((200, "application/json", b"{}"), "an unusable schema for .*: it has no text.*LC4022"),
            ((204, "application/json", b""), "gave no valid answer.*LC4025"),
            ((302, "text/html", b""), "HTTP 302.*LC4026"),
        ],
    )
    def test_an_answer_that_is_none_blames_no_record(
        self, fake: FakeRegistry, answer: tuple[int, str, bytes], message: str
    ) -> None:
        number = fake.register("orders-value", ORDER)
        registry = connected(fake)
        fake.before = lambda _path: answer
        with pytest.raises(RegistryError, match=message):
            registry.schema(number)
        fake.before = lambda _path: None
        assert registry.schema(number).text

    def test_away(self, fake: FakeRegistry) -> None:
        registry = connected(fake)
        unreachable = SchemaRegistry({"url": "http://127.0.0.1:9", **QUICK})
        with pytest.raises(RegistryError, match="LC4025"):
            unreachable.schema(1)
        with pytest.raises(UnknownSchemaError):
            registry.schema(1)

    def test_slow_is_away(self, fake: FakeRegistry) -> None:
        fake.before = lambda _path: time.sleep(2)
        with pytest.raises(RegistryError, match="LC4025"):
            connected(fake, timeout=0.2, max_retries=0).schema(1)

    def test_no_message_holds_the_login(self, fake: FakeRegistry) -> None:
        fake.before = lambda _path: (403, "application/json", b'{"error_code": 403, "message": "hidden-canary"}')
        settings = {"url": fake.url, "basic.auth.user.info": "reader:hidden-canary", **QUICK}
        with pytest.raises(RegistryError) as failed:
            SchemaRegistry(settings).schema(1)
        assert "canary" not in str(failed.value)
        assert fake.logins[0] is not None
        assert fake.logins[0].startswith("Basic ")

    def test_a_login_in_the_address_is_in_no_log(self, fake: FakeRegistry, caplog: pytest.LogCaptureFixture) -> None:
        fake.register("orders-value", ORDER)
        settings = {"url": fake.url.replace("://", "://reader:hidden%2Dcanary@"), **QUICK}
        with caplog.at_level("DEBUG"):
            registry = SchemaRegistry(settings)
            assert registry.schema(1).text
        assert b64decode(str(fake.logins[0]).removeprefix("Basic ")) == b"reader:hidden-canary"
        assert "canary" not in caplog.text + registry.location

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("http://reader:hidden/canary@127.0.0.1:9", "http://***@127.0.0.1:9"),
            ("http://reader:hidden@canary@127.0.0.1:9", "http://***@127.0.0.1:9"),
            ("http://reader:hidden,canary@127.0.0.1:9", "http://***@127.0.0.1:9"),
            (
                "http://a:hidden-canary@127.0.0.1:9,http://b:other-canary@127.0.0.1:8",
                "http://***@127.0.0.1:9,http://***@127.0.0.1:8",
            ),
            ("http://127.0.0.1:9?token=hidden-canary", "http://127.0.0.1:9?token=***"),
        ],
    )
    def test_a_login_that_should_have_been_encoded_is_in_no_message(
        self, address: str, shown: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("DEBUG"), pytest.raises(RegistryError) as failed:
            SchemaRegistry({"url": address, **QUICK, "max.retries": 0}).schema(1)
        assert f"the registry {shown} gave no valid answer on schema id 1:" in str(failed.value)
        assert "Connection refused" in str(failed.value)
        assert "hidden" not in caplog.text + str(failed.value)
        assert "canary" not in caplog.text + str(failed.value)

    @pytest.mark.parametrize("url", ["http://h:8081/x@y", "http://h/x@y", "http://h1:1/a,http://h2:2/b@c"])
    def test_a_path_is_no_login(self, url: str) -> None:
        assert with_login_apart({"url": url}) == {"url": url}

    @pytest.mark.parametrize("settings", [{"url": "ftp://x"}, {"urll": "http://x"}, {"url": "http://x", "timeouts": 1}])
    def test_settings_that_the_client_does_not_know(self, settings: dict[str, object]) -> None:
        with pytest.raises(SpecError, match=r"LC1008|LC4028"):
            SchemaRegistry(settings)


class TestSettings:
    def test_they_travel_among_those_of_the_brokers(self) -> None:
        kafka = with_registry({"bootstrap.servers": "b:1"}, {"url": "http://r", "timeout": 3})
        assert kafka["bootstrap.servers"] == "b:1"
        assert registry_settings(kafka) == {"url": "http://r", "timeout": 3}

    def test_one_registry_per_process(self) -> None:
        kafka = with_registry({}, {"url": "http://r"})
        assert registry_of(kafka) is registry_of(dict(kafka))
        assert registry_of(kafka) is not registry_of(with_registry({}, {"url": "http://other"}))
        assert registry_of({"bootstrap.servers": "b:1"}) is None

    def test_a_format_that_needs_one_reports_it(self) -> None:
        with pytest.raises(SpecError, match="LC4023"):
            needed(None, "orders", "avro")
