# SPDX-License-Identifier: Apache-2.0
"""Convert Airflow's connections to the plain settings that the rest of the package takes.

Contract: connections of the existing providers keep their meaning: the Kafka provider's own hook resolves callbacks and
managed tokens, and catalog properties are built as the Iceberg provider's hook builds them. The returned settings hold
secrets. They are never logged or stored, and Airflow masks them (:mod:`~airflow_provider_lakecommit.hooks.secrets`).

Failure story: a missing or unusable connection is a :class:`SpecError` with its name, its type and the fields it needs.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook
from airflow.sdk import BaseHook, Connection
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_lakecommit.core import named
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.secrets import hide
from airflow_provider_lakecommit.iceberg import as_text, catalog_name
from airflow_provider_lakecommit.landing import LOGIN, Landing, with_registry
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.signing import KEY, OTHER_KEY, UNSIGNED_BELOW, resolved

__all__ = [
    "catalog_properties",
    "connection",
    "kafka_settings",
    "master_url",
    "registry_connection",
    "source_settings",
    "stated_properties",
]

_WEB = ("http", "https")


class _SettingsHook(KafkaBaseHook):
    """Returns the configuration from which the provider's hooks build clients, instead of a client."""

    def _get_client(self, config: dict[str, Any]) -> dict[str, Any]:
        return dict(config)


def connection(conn_id: str, kind: str, holds: str) -> Connection:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as e:
        raise SpecError(
            "LC5301",
            f"the Airflow connection {conn_id!r} does not exist: create one of type `{kind}` with {holds}, or name "
            "another one",
        ) from e


def kafka_settings(kafka_config_id: str) -> dict[str, Any]:
    """Return librdkafka settings of a connection of type `kafka`."""
    found = connection(kafka_config_id, "kafka", "the client's settings in its extra")
    try:
        settings = dict(_SettingsHook(kafka_config_id=kafka_config_id).get_conn)  # type: ignore[no-untyped-call]
        settings = resolved({**_signing(), **settings})
        hide(settings)
        return named(settings, kafka_config_id)
    except SpecError:
        raise
    except ValueError as e:
        raise SpecError(
            "LC5302",
            f"the Kafka connection {kafka_config_id!r}{_unlike(found, 'kafka')} cannot be used: "
            f"{redacted(str(e), found.extra_dejson)}; its extra holds the client's settings under librdkafka's names",
        ) from None


def source_settings(landing: Landing) -> dict[str, Any]:
    """Return the settings for reading a landing's records: those of its brokers, with those of its registry."""
    kafka = kafka_settings(landing.connections.kafka)
    registry = landing.connections.registry
    return with_registry(kafka, registry_connection(registry)) if registry else kafka


def registry_connection(conn_id: str) -> dict[str, Any]:
    """Return the registry client's settings from a connection of type `http`, or of any other type: its address, login
    and password, and the client's own settings in its extra. A connection given as a URI has a path, and TLS if its
    type is `https`.

    :raises SpecError: the connection is missing, or has no address of the registry
    """
    found = connection(conn_id, "http", "the address of a schema registry")
    settings = {key: value for key, value in found.extra_dejson.items() if value is not None}
    hide({**settings, "password": found.password})
    if found.host:
        settings.setdefault("url", _address(found, found.host))
    if found.login:
        settings.setdefault(LOGIN, f"{found.login}:{found.password or ''}")
    if not settings.get("url"):
        raise SpecError(
            "LC5303",
            f"the connection {conn_id!r}{_unlike(found, 'http')} has no address of the schema registry: set its "
            "host, or `url` in its extra",
        )
    if found.password and LOGIN not in settings:
        raise SpecError(
            "LC5304",
            f"the connection {conn_id!r} has a password for the schema registry but no login; put a token into its "
            "extra, as `bearer.auth.token` with `bearer.auth.credentials.source`",
        )
    return settings


def _address(found: Connection, host: str) -> str:
    """Return the address of an HTTP server. The field `schema` is its scheme, or the path of a URI."""
    scheme = found.schema if found.schema in _WEB else found.conn_type if found.conn_type in _WEB else "http"
    path = found.schema if found.schema and found.schema not in _WEB else ""
    first, slashes, rest = host.partition("://")
    address, slash, behind = (rest if slashes else host).partition("/")
    if found.port and not address.rpartition(":")[2].isdigit():
        address = f"{address}:{found.port}"
    return f"{first if slashes else scheme}://{address}{slash}{behind}".rstrip("/") + (f"/{path}" if path else "")


def _signing() -> dict[str, str]:
    """Return the keys of the deployment, for connections without keys."""
    options = {KEY: "signing_key", OTHER_KEY: "signing_key_other", UNSIGNED_BELOW: "unsigned_below"}
    stated = {name: conf.get("lakecommit", option, fallback="") for name, option in options.items()}
    return {name: value for name, value in stated.items() if value}


def catalog_properties(iceberg_conn_id: str, *, reach: bool = True) -> dict[str, str]:
    """Return the pyiceberg properties of a connection of type `iceberg`: its extra, then its fields; REST is the
    default type.

    The catalog has the connection's id as its name, as in the Iceberg provider's hook, unless the extra sets `name` or,
    if the catalog may be contacted, all its tables are under another name.

    :param reach: whether the catalog may be contacted; a writer must not

    :raises SpecError: the connection is missing, or has neither an address nor a type of catalog
    """
    properties = stated_properties(iceberg_conn_id)
    if reach:
        properties["name"] = catalog_name(properties, iceberg_conn_id)
    else:
        properties.setdefault("name", iceberg_conn_id)
    return properties


def stated_properties(iceberg_conn_id: str) -> dict[str, str]:
    """Return the same, without a name unless one is configured, so that the catalog is not contacted.

    :raises SpecError: the connection is missing, or has neither an address nor a type of catalog
    """
    found = connection(iceberg_conn_id, "iceberg", "the catalog's URI as host or properties in its extra")
    properties = as_text({key: value for key, value in found.extra_dejson.items() if value is not None})
    hide({**properties, "host": found.host, "password": found.password})
    if found.host:
        properties["uri"] = found.host.rstrip("/")
    properties.setdefault("type", "rest")
    if properties["type"] == "rest" and found.login and found.password:
        properties["credential"] = f"{found.login}:{found.password}"
    if properties["type"] in ("rest", "sql") and not properties.get("uri"):
        raise SpecError(
            "LC5305",
            f"the Iceberg connection {iceberg_conn_id!r}{_unlike(found, 'iceberg')} has no address of its "
            f"{properties['type']} catalog: set the URI as host, or as `uri` in its extra",
        )
    return named(properties, iceberg_conn_id)


def _unlike(found: Connection, kind: str) -> str:
    """Airflow's environment and secrets backends accept any type, possibly on purpose; errors mention it."""
    return "" if found.conn_type == kind else f", which is of type `{found.conn_type}`,"


def master_url(found: Connection) -> str:
    """Return the master of a Spark connection, as the Spark provider's hook builds it: if it was given as a URI
    (`spark://host:7077`), its type is the scheme.
    """
    host = found.host or ""
    whole = found.conn_type == "spark" and host != "" and ("://" in host or not found.port)
    master = host if whole else f"{found.conn_type}://{host}"
    return f"{master}:{found.port}" if found.port else master
