# SPDX-License-Identifier: Apache-2.0
"""Airflow's connections become the plain settings that the providers' own hooks would use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.iceberg.hooks import iceberg

from airflow_provider_lakecommit.control.control_topic_settings import create_command
from airflow_provider_lakecommit.core.connection_names import CONNECTION_ID, named
from airflow_provider_lakecommit.exceptions import CatalogError, SourceUnavailableError, SpecError
from airflow_provider_lakecommit.hooks.connections import (
    catalog_properties,
    kafka_settings,
    registry_connection,
    source_settings,
)
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.kafka.config import LastError, client_config, unreachable
from airflow_provider_lakecommit.landing.registry import registry_settings
from airflow_provider_lakecommit.redaction import secrets_in
from tests.support.declared import changed_landing, landing_of

Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """`connect("some_id", conn_type="kafka", …)`: a connection in Airflow's environment."""

    def add(conn_id: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))

    return add


def test_kafka_settings_are_the_extra_of_the_connection(connect: Connect) -> None:
    extra = {"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", "sasl.password": "hush"}
    connect("events", conn_type="kafka", extra=extra)
    assert kafka_settings("events") == named(extra, "events")


def test_a_registry_is_reached_by_a_connection_of_its_own(connect: Connect) -> None:
    connect("events", conn_type="kafka", extra={"bootstrap.servers": "a:1"})
    login = {"login": "reader", "password": "hidden-canary", "schema": "https", "extra": {"ssl.ca.location": "/ca.pem"}}
    connect("schemas", conn_type="http", host="registry", port=8081, **login)
    of = landing_of(name="o", topics="t", table="a.b", kafka_config_id="events", registry_conn_id="schemas")
    settings = source_settings(of)
    assert registry_settings(settings) == {
        "url": "https://registry:8081",
        "basic.auth.user.info": "reader:hidden-canary",
        "ssl.ca.location": "/ca.pem",
    }
    assert "hidden-canary" in secrets_in(settings)
    assert not any("registry" in key for key in client_config(settings, LastError()))
    assert source_settings(changed_landing(of, registry_conn_id=None)) == kafka_settings("events")


def test_a_registry_connection_reports_where_it_is(connect: Connect) -> None:
    connect("schemas", conn_type="http", login="reader", password="p")
    with pytest.raises(SpecError, match="LC5303"):
        registry_connection("schemas")
    connect("schemas", conn_type="kafka", extra={"bootstrap.servers": "a:1"})
    with pytest.raises(SpecError, match="LC5303"):
        registry_connection("schemas")


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("https://host:8081", "https://host:8081"),
        ("https://host/", "https://host"),
        ("http://host:8080/apis/ccompat/v7", "http://host:8080/apis/ccompat/v7"),
        ("http://host:8081/https", "https://host:8081"),
        ("http://https%3A%2F%2Fhost:8081", "https://host:8081"),
        ("schema-registry://host:8081", "http://host:8081"),
    ],
)
def test_a_registry_connection_may_be_a_uri(monkeypatch: pytest.MonkeyPatch, uri: str, url: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SCHEMAS", uri)
    assert registry_connection("schemas") == {"url": url}


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("http://host/apis/ccompat/v7", 8080, "http://host:8080/apis/ccompat/v7"),
        ("host/apis/ccompat/v7/", 8080, "http://host:8080/apis/ccompat/v7"),
        ("https://host:8081", 8081, "https://host:8081"),
        ("http://a:1,http://b:2", None, "http://a:1,http://b:2"),
        ("[::1]", 8081, "http://[::1]:8081"),
    ],
)
def test_the_port_of_a_registry_is_before_its_path(connect: Connect, host: str, port: int, url: str) -> None:
    connect("schemas", conn_type="http", host=host, port=port)
    assert registry_connection("schemas") == {"url": url}


def test_no_part_of_a_login_for_a_registry_is_passed_over(connect: Connect) -> None:
    connect("schemas", conn_type="http", host="h", login="key")
    assert registry_connection("schemas")["basic.auth.user.info"] == "key:"
    connect("schemas", conn_type="http", host="h", password="hidden-canary")
    with pytest.raises(SpecError, match="LC5304") as refused:
        registry_connection("schemas")
    assert "canary" not in str(refused.value)


def test_a_kafka_connection_without_brokers_is_refused(connect: Connect) -> None:
    connect("events", conn_type="kafka", extra={"group.id": "x"})
    with pytest.raises(SpecError, match="LC5302"):
        kafka_settings("events")


def test_a_callback_that_airflow_does_not_allow_is_refused(connect: Connect) -> None:
    connect("events", conn_type="kafka", extra={"bootstrap.servers": "a:1", "oauth_cb": "os.getcwd"})
    with pytest.raises(SpecError, match="LC5302"):
        kafka_settings("events")


@pytest.mark.parametrize("read", [kafka_settings, catalog_properties])
def test_a_missing_connection_is_named_with_the_type_it_must_have(read: Callable[[str], object]) -> None:
    with pytest.raises(SpecError, match="LC5301"):
        read("nobody_made_this")


SQL = {"type": "sql", "uri": "sqlite:////nowhere/at/all/c.db", "warehouse": "file:///tmp/w"}

CATALOGS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "sql in the extra": ({"extra": SQL}, SQL),
    "rest by host": ({"host": "https://cat/v1/"}, {"type": "rest", "uri": "https://cat/v1"}),
    "rest with credentials": (
        {"host": "https://cat", "login": "me", "password": "hush", "extra": {"warehouse": "w"}},
        {"type": "rest", "uri": "https://cat", "credential": "me:hush", "warehouse": "w"},
    ),
    "fields win over the extra": (
        {"host": "https://new", "extra": {"uri": "https://old"}},
        {"type": "rest", "uri": "https://new"},
    ),
    "credentials mean nothing to a catalog that is no rest catalog": (
        {"login": "me", "password": "hush", "extra": {"type": "glue", "glue.region": "eu"}},
        {"type": "glue", "glue.region": "eu"},
    ),
    "numbers and truth are text": (
        {"extra": {**SQL, "pool_size": 3, "echo": False}},
        {**SQL, "pool_size": "3", "echo": "False"},
    ),
}


@pytest.mark.parametrize("case", CATALOGS)
def test_catalog_properties(connect: Connect, case: str) -> None:
    fields, properties = CATALOGS[case]
    connect("lake", conn_type="iceberg", **fields)
    assert catalog_properties("lake") == named({**properties, "name": "lake"}, "lake")


def test_a_connection_may_name_its_catalog(connect: Connect) -> None:
    connect("lake", conn_type="iceberg", extra={**SQL, "name": "warehouse"})
    assert catalog_properties("lake")["name"] == "warehouse"


@pytest.mark.parametrize("case", [name for name in CATALOGS if name != "numbers and truth are text"])
def test_catalog_properties_are_those_of_the_iceberg_provider(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    given: dict[str, str] = {}
    monkeypatch.setattr(iceberg, "load_catalog", lambda name, **properties: given.update(properties, name=name))
    connect("lake", conn_type="iceberg", **CATALOGS[case][0])
    assert iceberg.IcebergHook("lake").catalog is None
    assert catalog_properties("lake") == named(given, "lake")


@pytest.mark.parametrize("extra", [{}, {"type": "sql", "warehouse": "file:///tmp/w"}])
def test_a_catalog_without_an_address_is_refused(connect: Connect, extra: dict[str, str]) -> None:
    connect("lake", conn_type="iceberg", extra=extra)
    with pytest.raises(SpecError, match="LC5305"):
        catalog_properties("lake")


def test_a_connection_of_another_type_is_reported_as_that(connect: Connect) -> None:
    connect("mixed", conn_type="spark", host="local[2]")
    with pytest.raises(SpecError, match="LC5302"):
        kafka_settings("mixed")
    connect("brokers", conn_type="kafka", extra={"bootstrap.servers": "b:1"})
    with pytest.raises(SpecError, match="LC5305"):
        catalog_properties("brokers")


def test_an_error_of_a_catalog_names_its_connection(connect: Connect) -> None:
    connect("lake", conn_type="iceberg", extra=SQL)
    with pytest.raises(CatalogError, match="LC3361"):
        Tables(catalog_properties("lake")).find("shop.orders")
    connect("wrong", conn_type="iceberg", extra={**SQL, "type": "sqlite", "name": "house"})
    with pytest.raises(SpecError, match="LC3308") as raised:
        Tables(catalog_properties("wrong")).find("shop.orders")
    assert CONNECTION_ID not in str(raised.value)


def test_an_error_of_brokers_names_their_connection_and_a_command_does_not(connect: Connect) -> None:
    connect("events", conn_type="kafka", extra={"bootstrap.servers": "a:1"})
    settings = kafka_settings("events")
    error = unreachable(SourceUnavailableError, "asking", settings, LastError(), 1.0)
    assert "no answer from Kafka at a:1 (Airflow connection 'events') within 1 s" in str(error)
    assert "--bootstrap-server a:1 --create" in create_command("control", settings)
    assert CONNECTION_ID not in client_config(settings, LastError())
