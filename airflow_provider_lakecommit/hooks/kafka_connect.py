# SPDX-License-Identifier: Apache-2.0
"""Kafka Connect through an Airflow connection.

Contract: the connection is of type `http`, with the fields of Airflow's own HTTP hook: host (possibly a whole address),
port, schema (`http` or `https`), login and password; its extra has `verify` (false, or a file of trusted certificates),
`headers`, and further headers by name. It is read at the first call. Only Airflow itself is required.

Failure story: a missing connection, or one without a host, is a :class:`SpecError`;
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.rest` raises all other errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from airflow.sdk import BaseHook, Connection

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.connections import connection
from airflow_provider_lakecommit.hooks.secrets import hide
from airflow_provider_lakecommit.operations import ConnectorStatus, ConnectRest

__all__ = ["KafkaConnectHook", "rest_of", "rest_settings"]

_NO_HEADERS = frozenset(
    {"allow_redirects", "cert", "check_response", "headers", "max_redirects", "proxies", "stream", "timeout"}
    | {"trust_env", "verify"}
)
"""What Airflow's HTTP hook takes out of the extra; all else there is a header."""


class KafkaConnectHook(BaseHook):
    """One Kafka Connect cluster.

    :param kafka_connect_conn_id: connection of type `http`
    """

    conn_name_attr = "kafka_connect_conn_id"
    default_conn_name = "kafka_connect_default"
    hook_name = "Kafka Connect"

    def __init__(self, kafka_connect_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kafka_connect_conn_id = kafka_connect_conn_id

    def get_conn(self) -> ConnectRest:
        """Return a client, which contacts nothing yet."""
        return self.rest

    @cached_property
    def rest(self) -> ConnectRest:
        return rest_of(connection(self.kafka_connect_conn_id, "http", "the address of a Kafka Connect worker"))

    def status(self, connector: str) -> ConnectorStatus:
        return self.rest.status(connector)

    def config(self, connector: str) -> dict[str, str]:
        return self.rest.config(connector)

    def pause(self, connector: str) -> None:
        """Stop its tasks from reading; the coordinator of an Iceberg sink continues to commit."""
        self.rest.pause(connector)

    def resume(self, connector: str) -> None:
        self.rest.resume(connector)

    def stop(self, connector: str) -> None:
        self.rest.stop(connector)

    def restart(self, connector: str, *, include_tasks: bool = True, only_failed: bool = True) -> None:
        """Restart the failed parts, or all of it."""
        self.rest.restart(connector, include_tasks=include_tasks, only_failed=only_failed)

    def test_connection(self) -> tuple[bool, str]:
        """Request the connectors, for the UI."""
        try:
            found = self.rest.connectors()
        except Exception as e:
            return False, str(e)
        return True, f"{len(found)} connectors"


def rest_of(conn: Connection) -> ConnectRest:
    """Return a client for a connection.

    :raises SpecError: it has no host
    """
    return ConnectRest(**rest_settings(conn))


def rest_settings(conn: Connection) -> dict[str, Any]:
    """Return the arguments of a client.

    :raises SpecError: the connection has no host
    """
    host = (conn.host or "").strip().rstrip("/")
    if not host:
        raise SpecError(
            "LC5308", f"the Airflow connection {conn.conn_id!r} has no host: set the address of a Kafka Connect worker"
        )
    url = host if "://" in host else f"{conn.schema or 'http'}://{host}"
    if conn.port:
        url = f"{url}:{conn.port}"
    extra: Mapping[str, Any] = conn.extra_dejson
    headers = {**{k: v for k, v in extra.items() if k not in _NO_HEADERS}, **(extra.get("headers") or {})}
    hide({"password": conn.password, "url": url, **{f"header.{name}": value for name, value in headers.items()}})
    verify = extra.get("verify", True)
    if isinstance(verify, str):
        # The extra of a connection often has texts instead of other types.
        verify = {"true": True, "1": True, "false": False, "0": False}.get(verify.strip().lower(), verify)
    return {
        "url": url,
        "login": conn.login or None,
        "password": conn.password or None,
        "headers": {str(k): str(v) for k, v in headers.items()},
        "verify": verify if isinstance(verify, str) else bool(verify),
    }
