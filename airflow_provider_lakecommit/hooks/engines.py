# SPDX-License-Identifier: Apache-2.0
"""Choose the engine that runs the jobs of a landing by the type of the Spark connection.

Contract: connections of the Spark provider keep their meaning. ``spark_connect`` is a warm Spark Connect server,
``spark`` is spark-submit; any other type is used as ``spark``, as in the provider's own hooks. Nothing is contacted.

Failure story: a missing or unusable connection is a :class:`SpecError` with its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.connections import connection
from airflow_provider_lakecommit.hooks.secrets import hide

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark import Engine

CONNECT = "spark_connect"


def engine_of(
    conn_id: str,
    *,
    deployment: str,
    landing: str,
    lane: str = "live",
    conf: Mapping[str, Any] | None = None,
    grace: timedelta,
) -> Engine:
    """Return the engine of a connection.

    :param deployment: identifies the warm session, together with landing and stream
    :param conf: Spark settings of the jobs; a running server cannot apply them
    :param grace: maximum duration of a job after a request to stop

    :raises SpecError: the connection is missing or unusable
    """
    found = connection(conn_id, "spark", "the master as host (local[2], yarn, …), or of type `spark_connect`")
    if found.conn_type != CONNECT:
        from airflow_provider_lakecommit.hooks.spark import SparkSubmit

        return SparkSubmit(conn_id, conf=conf, grace=grace)
    if conf:
        raise SpecError(
            "LC5306",
            f"the Spark connection {conn_id!r} is of type `{CONNECT}`: set {', '.join(sorted(conf))} on its server, "
            "or remove spark_conf",
        )
    from airflow_provider_lakecommit.spark import ConnectEngine

    return ConnectEngine(connect_url(conn_id), deployment=deployment, landing=landing, lane=lane)


def connect_url(conn_id: str) -> str:
    """Return the URL of a connection of type ``spark_connect``, as the Spark provider builds it. It may contain a
    token.
    """
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    try:
        url = str(SparkConnectHook(conn_id).get_connection_url())
    except (ValueError, AttributeError, TypeError):
        # Not with their text: parts of the connection may be in it.
        raise SpecError(
            "LC5307",
            f"the Spark connection {conn_id!r} cannot be used: set the server as host (without a path), its port, "
            "and the token as password if the server requires one",
        ) from None
    hide({"remote": url})
    return url
