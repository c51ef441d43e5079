# SPDX-License-Identifier: Apache-2.0
"""What a client of ours runs with, and what is said when it fails."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import Consumer, KafkaError

from airflow_provider_lakecommit.core import named
from airflow_provider_lakecommit.exceptions import SourceError, SpecError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, client_config, made, unreachable
from airflow_provider_lakecommit.redaction import redacted

SERVERS = {"bootstrap.servers": "broker-1:9092"}


def refused() -> KafkaError:
    return KafkaError(KafkaError._TRANSPORT, "broker-1:9092/bootstrap: Connection refused (after 3ms in state CONNECT)")


def test_a_login_among_the_brokers_is_printed_in_no_message() -> None:
    """It is not meant to be there, and librdkafka refuses it; what is there all the same is a login."""
    config = {"bootstrap.servers": "SASL_SSL://me:canary@a:9092,you:canary@b:9092"}
    assert bootstrap_servers(config) == "SASL_SSL://***@b:9092"
    assert "canary" not in str(unreachable(SourceError, "asking", config, LastError(), 1.0))


def test_what_a_read_means_is_not_for_the_user_to_change() -> None:
    theirs = {
        **SERVERS,
        "enable.auto.commit": True,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "latest",
        "group.id": "billing",
        "transactional.id": "billing-1",
    }
    ours = client_config(theirs, LastError(), **{"enable.auto.commit": False, "isolation.level": "read_committed"})
    assert ours["enable.auto.commit"] is False
    assert ours["isolation.level"] == "read_committed"
    assert not {"auto.offset.reset", "group.id", "transactional.id"} & ours.keys()


def test_how_to_reach_the_brokers_is_for_the_user_to_report() -> None:
    theirs = {**SERVERS, "security.protocol": "SASL_SSL", "sasl.password": "s", "reconnect.backoff.max.ms": 7}
    assert theirs.items() <= client_config(theirs, LastError()).items()


def test_a_setting_that_is_not_used_is_noted_once_it_differs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "airflow_provider_lakecommit")
    client_config({**SERVERS, "enable.auto.commit": "false"}, LastError(), **{"enable.auto.commit": False})
    assert caplog.messages == []
    client_config({**SERVERS, "enable.auto.commit": True}, LastError(), **{"enable.auto.commit": False})
    assert caplog.messages == ["Kafka setting enable.auto.commit=True is not used: this client needs False"]


@pytest.mark.parametrize("servers", [{}, {"bootstrap.servers": ""}, {"bootstrap.servers": ["a:1"]}])
def test_without_brokers_there_is_no_configuration(servers: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="LC2002"):
        client_config(servers, LastError())


def test_an_empty_setting_is_one_that_was_not_given() -> None:
    assert "sasl.password" not in client_config({**SERVERS, "sasl.password": None}, LastError())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"no.such.key": 1}, "No such configuration property"),
        ({"socket.timeout.ms": "soon"}, "socket.timeout.ms"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "BOGUS"}, "BOGUS"),
        (
            {"security.protocol": "SASL_SSL", "sasl.jaas.config": "password=hunter2"},
            "not those of the Java client|of librdkafka",
        ),
    ],
)
def test_a_key_that_the_client_does_not_know_is_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=rf"{message}.*LC2001") as raised:
        made(Consumer, {**SERVERS, **wrong}, LastError(), **{"group.id": "g"})
    assert "hunter2" not in str(raised.value)


LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "jane", "sasl.password": "hunter2"}
AUTHORITY = {"ssl.ca.location": "/nowhere/ca.pem"}


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        (LOGIN, "PLAINTEXT (the default): set security.protocol to SASL_SSL or SASL_PLAINTEXT, or remove them"),
        ({**LOGIN, "security.protocol": "plaintext"}, "plaintext: set security.protocol to SASL_SSL or SASL_PLAINTEXT"),
        ({**LOGIN, "security.protocol": "SSL"}, "SSL: set security.protocol to SASL_SSL, or"),
        (AUTHORITY, "PLAINTEXT (the default): set security.protocol to SSL or SASL_SSL, or"),
        ({**AUTHORITY, **LOGIN, "security.protocol": "SASL_PLAINTEXT"}, "set security.protocol to SASL_SSL, or"),
        ({**AUTHORITY, **LOGIN}, "set security.protocol to SASL_SSL, or"),
    ],
)
def test_a_login_or_tls_that_the_client_would_ignore_is_refused(settings: dict[str, object], remedy: str) -> None:
    """librdkafka connects without them, and writes a line to its own log at most."""
    Consumer({**SERVERS, **settings, "group.id": "g", "log_level": 0})
    with pytest.raises(SpecError, match="LC2015") as raised:
        made(Consumer, named({**SERVERS, **settings}, "events"), LastError(), **{"group.id": "g"})
    assert remedy in str(raised.value)
    assert "(Airflow connection 'events')" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "settings",
    [
        {**LOGIN, "security.protocol": "SASL_PLAINTEXT"},
        {**LOGIN, "security.protocol": "sasl_ssl", "ssl.ca.location": ""},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
        {"sasl.username": "", "sasl.password": None, "ssl.ca.location": ""},
        {"lakecommit.registry.ssl.ca.location": "/ca.pem"},
    ],
)
def test_a_login_and_tls_that_are_used_or_empty_are_no_mistake(settings: dict[str, object]) -> None:
    made(Consumer, {**SERVERS, **settings}, LastError(), **{"group.id": "g"}).close()


def test_secrets_are_taken_out_of_a_text_the_longer_one_first() -> None:
    config = {**SERVERS, "sasl.password": "hunter2", "ssl.key.password": "hunter2-key", "sasl.username": "jane"}
    assert redacted("jane: hunter2-key or hunter2?", config) == "jane: *** or ***?"


def test_trouble_keeps_the_cause_and_not_its_consequence() -> None:
    trouble = LastError()
    trouble(refused())
    trouble(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert trouble.cause == "broker-1:9092/bootstrap: Connection refused"
    assert not trouble.denied
    trouble.forget()
    assert trouble.cause is None


def test_brokers_that_silently_close_each_connection_may_want_a_login() -> None:
    trouble = LastError()
    trouble(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert trouble.cause is not None
    assert "may need a login or TLS that the settings lack (`security.protocol`" in trouble.cause
    trouble(refused())
    assert trouble.cause == "broker-1:9092/bootstrap: Connection refused"


def test_trouble_is_reported_to_the_users_own_callback_too() -> None:
    heard: list[KafkaError] = []
    error = refused()
    LastError(heard.append)(error)
    assert heard == [error]


def test_an_unreachable_broker_is_named_with_the_cause_and_a_remedy() -> None:
    trouble = LastError()
    trouble(refused())
    error = unreachable(SourceError, "asking", SERVERS, trouble, 15.0)
    assert error.message == (
        "asking: no answer from Kafka at broker-1:9092 within 15 s: broker-1:9092/bootstrap: Connection refused; "
        "check bootstrap.servers, security.protocol and that the brokers are up"
    )


def test_an_http_server_at_the_port_of_a_broker_is_named_as_such() -> None:
    trouble = LastError()
    answer = "b:8081/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000)"
    trouble(KafkaError(KafkaError._TRANSPORT, f"{answer}: increase receive.message.max.bytes"))
    error = unreachable(SourceError, "asking", SERVERS, trouble, 15.0)
    assert f"{answer}; this answer is not Kafka's: check the port" in str(error)
    assert "increase" not in str(error)


def test_a_refused_login_is_distinguished_from_a_broker_that_is_away_without_the_password() -> None:
    trouble = LastError()
    trouble(KafkaError(KafkaError._AUTHENTICATION, "no user with hunter2"))
    error = unreachable(SourceError, "asking", {**SERVERS, "sasl.password": "hunter2"}, trouble, 15.0)
    assert "refused the login: no user with ***; check security.protocol" in str(error)


@pytest.mark.parametrize("servers", ["http://b:9092", "b:1, https://b:2", "kafka://b:9092"])
def test_an_address_of_a_page_is_none_of_a_broker(servers: str) -> None:
    """librdkafka would ask it, and say that it closed the connection."""
    with pytest.raises(SpecError, match="LC2003"):
        client_config({"bootstrap.servers": servers}, LastError())


@pytest.mark.parametrize("servers", ["b:1,b2:2", "SASL_SSL://b1:9094, b2", "PLAINTEXT://[::1]:9092"])
def test_addresses_with_and_without_a_protocol_of_kafka_are_taken(servers: str) -> None:
    assert client_config({"bootstrap.servers": servers}, LastError())["bootstrap.servers"] == servers
