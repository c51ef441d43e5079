# SPDX-License-Identifier: Apache-2.0
"""Check that no process works for a connector.

Contract: :func:`check_stopped` returns only if none does: neither Connect, as far as it answers, nor, whatever Connect
reports, a member of the connector's consumer groups. A paused connector is active: its coordinator continues to commit.

Failure story: a worker that was cut off from Kafka for longer than its session, and still hangs in a commit, cannot be
detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.operations.kafka_connect.consumer_group import look_at_group
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.operations.kafka_connect.sink import source_group


def check_stopped(
    kafka: Mapping[str, Any],
    connector: str,
    rest: ConnectRest | None,
    *,
    group: str | None = None,
    stated_gone: bool = False,
) -> None:
    """Check that no process works for the connector: neither Connect nor, whatever Connect reports, a member of its
    groups.

    :param rest: Connect, if it is reachable
    :param group: the group in the connector's events, if its tasks read in another one
    :param stated_gone: without Connect, the user states that the connector does not exist
    :raises ConnectorError: a process works for it, or it is unknown whether one does
    """
    if rest is not None:
        _check_connect(rest, connector)
    elif not stated_gone:
        raise ConnectorError(
            "LC7523",
            f"it is unknown if connector {connector} is stopped: name its Kafka Connect, or state that it was deleted",
        )
    own = source_group(connector)
    for name in dict.fromkeys((own, group or own, f"{group or own}-coord")):
        if members := look_at_group(kafka, name).members:
            raise ConnectorError(
                "LC7524",
                f"consumer group {name} has {len(members)} members ({', '.join(members[:3])}): connector {connector} "
                "is active, even if it is paused. Stop it (PUT /connectors/NAME/stop) or delete it, then wait for the "
                "end of its session (45 s by default)",
            )


def _check_connect(rest: ConnectRest, connector: str) -> None:
    if connector not in rest.connectors():
        return
    status = rest.status(connector)
    if not status.is_stopped:
        raise ConnectorError(
            "LC7525",
            f"{status}: its coordinator commits even while it is paused, and failed tasks may be restarted. Stop "
            "it (PUT /connectors/NAME/stop) or delete it",
        )
