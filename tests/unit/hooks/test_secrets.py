# SPDX-License-Identifier: Apache-2.0
"""Airflow knows what of connections is secret, and strikes it out of logs, tracebacks, rendered fields and XComs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from airflow.sdk._shared.secrets_masker import _secrets_masker
from airflow.sdk.log import redact

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.hooks.connections import catalog_properties, kafka_settings
from airflow_provider_lakecommit.hooks.engines import connect_url
from airflow_provider_lakecommit.hooks.kafka_connect import rest_of
from airflow_provider_lakecommit.hooks.secrets import hide, without_secrets
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator
from airflow_provider_lakecommit.signing import KEY

PEM = (
    "-----BEGIN PRIVATE KEY-----\n" + "c2FuYXJ5LWxpbmUtb25lLW9m\nYS1rZXktdGhhdC1pcy1sb25n\n-----END PRIVATE KEY-----\n"
)
LANDING = Landing(name="orders", topics="orders", table="shop.orders")


@pytest.fixture(autouse=True)
def masker() -> Iterator[None]:
    """A masker that knows nothing yet."""
    known = _secrets_masker()
    before = known.patterns, known.replacer
    known.reset_masker()
    yield
    known.patterns, known.replacer = before


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def add(**fields: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_C", json.dumps(fields))

    return add


KAFKA = {
    "bootstrap.servers": "a:1",
    "sasl.jaas.config": 'x required username="me" password="canary-jaas";',
    "ssl.key.pem": PEM,
    "ssl_key": "canary-ssl",
    "sasl.oauthbearer.client.secret": "canary/oauth+1",
    KEY: "canary-signing" * 3,
}
CATALOG = {
    "credential": "me:canary-credential",
    "s3.access-key-id": "canary-access",
    "adls.account-key": "canary-adls==",
    "auth": {"type": "basic", "basic": {"username": "me", "password": "canary-basic"}},
    "uri": "https://canary-user@catalog/x?sig=canary-sig",
}


def test_a_connection_to_brokers_is_hidden_in_all_forms(connect: Callable[..., None]) -> None:
    connect(conn_type="kafka", extra=KAFKA)
    kafka_settings("c")
    shown = [*KAFKA.values(), "canary-jaas", quote("canary/oauth+1", safe=""), *PEM.splitlines()[1:-1]]
    shown += [base64.b64encode(b"me:canary/oauth+1").decode(), json.dumps("canary/oauth+1").replace("/", "\\/")]
    text = str(redact(" | ".join(shown[1:])))
    assert "canary" not in text
    assert "c2FuYXJ5" not in text
    assert redact("a:1 and me") == "a:1 and me"


def test_a_connection_to_a_catalog_is_hidden(connect: Callable[..., None]) -> None:
    connect(conn_type="iceberg", login="me", password="canary-password", extra=CATALOG)
    catalog_properties("c", reach=False)
    text = " ".join(
        ("canary-password", *map(str, CATALOG.values()), "canary-basic canary-user canary-sig canary-access")
    )
    assert "canary" not in str(redact(text))


def test_connections_to_engines_and_workers_are_hidden(connect: Callable[..., None]) -> None:
    from airflow.sdk import Connection

    connect(conn_type="spark_connect", host="sc://spark", password="canary-token")
    connect_url("c")
    fields = {"login": "me", "password": "canary-connect", "extra": json.dumps({"X-Api-Key": "canary-header"})}
    rest_of(Connection(conn_id="w", conn_type="http", host="https://me:canary-url@worker", **fields))
    SparkSubmit("s", conf={"spark.hadoop.fs.azure.account.key.x": "canary-spark"}, grace=timedelta(seconds=1))
    message = "canary-token canary-connect canary-header canary-url canary-spark"
    assert redact(message) == "*** *** *** *** ***"


@pytest.mark.parametrize("operator", [KafkaToIcebergOperator, WriteWindowOperator])
def test_settings_of_spark_that_a_dag_states_are_hidden_before_their_field_is_rendered(operator: Any) -> None:
    conf = {"spark.hadoop.fs.azure.account.key.lake": "canary-rendered", "spark.executor.memory": "2g"}
    group = {"group": {}} if operator is WriteWindowOperator else {}
    operator(task_id="t", landing=LANDING, spark_conf=conf, **group)
    assert redact(conf, "spark_conf") == {**conf, "spark.hadoop.fs.azure.account.key.lake": "***"}


def test_what_an_xcom_reports_an_error_is_without_them() -> None:
    hide({"sasl.password": "canary-4711"})
    error = CatalogError("LC9999", "no canary-4711 at postgresql://me:unknown@db, {'token': 'other'}")
    assert without_secrets(error) == "CatalogError: no *** at postgresql://***@db, {'token': '***'} [LC9999]"


def test_texts_are_not_hidden_and_nothing_is_sent_for_settings_without_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[object] = []
    monkeypatch.setattr("airflow_provider_lakecommit.hooks.secrets.mask_secret", sent.append)
    hide({"sasl.password": "kafka", "password": "password", "bootstrap.servers": "a:1"})
    assert sent == []
    hide({"sasl.password": "canary-1", "token": "canary-2"})
    assert len(sent) == 1, "one message to the supervisor"
