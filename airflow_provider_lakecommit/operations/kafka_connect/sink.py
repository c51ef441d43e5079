# SPDX-License-Identifier: Apache-2.0
"""Where an Iceberg sink of Kafka Connect commits: its control topic, group and interval, as its configuration has them.

Contract: what the configuration leaves out has the connector's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_lakecommit.exceptions import SpecError

CONTROL_TOPIC = "control-iceberg"
INTERVAL_MS = "300000"


def source_group(connector: str) -> str:
    """Return the consumer group of Connect's tasks; by default also the group in the sink's events."""
    return f"connect-{connector}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A connector, as an observer of its commits has to know it. ``interval`` is in seconds."""

    control_topic: str
    group: str
    interval: float

    @classmethod
    def of(cls, connector: str, config: Mapping[str, str]) -> Sink:
        """Return it from the connector's configuration.

        :raises SpecError: it is no Iceberg sink
        """
        if "iceberg" not in config.get("connector.class", "").lower():
            raise SpecError(
                "LC7522",
                f"connector {connector!r} is {config.get('connector.class', 'of no class')}, no Iceberg sink: name its "
                "control_topic and control_group_id if it uses the same protocol",
            )
        return cls(
            control_topic=config.get("iceberg.control.topic", CONTROL_TOPIC),
            group=config.get("iceberg.connect.group-id") or source_group(connector),
            interval=int(config.get("iceberg.control.commit.interval-ms", INTERVAL_MS)) / 1000,
        )
