# SPDX-License-Identifier: Apache-2.0
"""The settings and partitions of a control topic, and commands for administrators."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.kafka import servers_of

TOPIC_SETTINGS: Mapping[str, str] = {
    # Records of one role share a key: compaction would delete all but the newest.
    "cleanup.policy": "delete",
    "retention.ms": str(30 * 24 * 3600 * 1000),
    # The broker's clock, so that no sender's clock decides how long a claim lasts or a record is kept.
    "message.timestamp.type": "LogAppendTime",
    # A reader unpacks a whole batch: a megabyte of gzip can hold a gigabyte.
    "compression.type": "uncompressed",
}
NOT_EVERYWHERE = "compression.type"
"""A setting that brokers other than those of Apache Kafka may refuse, and then have by themselves or not at all."""
PARTITIONS = 6


def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group, the same in every process and release."""
    return zlib.crc32(group_id.encode()) % partitions


def tool(name: str, config: Mapping[str, Any]) -> str:
    return f"{name} --bootstrap-server {servers_of(config)}"


def create_command(
    topic: str, config: Mapping[str, Any], partitions: int = PARTITIONS, replication: int | None = None
) -> str:
    factor = "" if replication is None else f" --replication-factor {replication}"
    settings = "".join(f" --config {key}={value}" for key, value in TOPIC_SETTINGS.items())
    return f"{tool('kafka-topics', config)} --create --topic {topic} --partitions {partitions}{factor}{settings}"


def no_partition(topic: str, config: Mapping[str, Any], partitions: int, number: int) -> str:
    return (
        f"control topic {topic!r} has {partitions} partitions, so no partition {number}: was it recreated with fewer? "
        f"Add them with `{tool('kafka-topics', config)} --alter --topic {topic} --partitions {number + 1}`"
    )
