# SPDX-License-Identifier: Apache-2.0
"""A consumer group as the brokers see it: who is in it, and how far it has read.

Contract: asked now, of the brokers. A group that they do not know has no members and no offsets; offsets expire some
days after the last member has left (``offsets.retention.minutes``). A coordinator that is being elected is waited for.

Failure story: brokers that do not answer, or do not allow the question, are a :class:`ControlTopicError`: whether
somebody is at work must be known before anything is done in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.redaction import redacted

__all__ = ["GroupFacts", "look_at_group"]

PAUSE_SECONDS = 0.1
_UNKNOWN = frozenset({KafkaError.GROUP_ID_NOT_FOUND, KafkaError.UNKNOWN_TOPIC_OR_PART})
_AGAIN = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""A group's coordinator that is being elected, or reads the group's state still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """``members`` are its members' client ids, ``offsets`` the next offsets to read, by topic and partition."""

    group: str
    members: tuple[str, ...]
    offsets: Mapping[tuple[str, int], int]


def look_at_group(config: Mapping[str, Any], group: str, timeout: float = 30.0) -> GroupFacts:
    """The group as it is now.

    :param timeout: seconds for the brokers to answer
    :raises ControlTopicError: they do not, or may not be asked
    """
    trouble = LastError(config.get("error_cb"))
    client = made(AdminClient, config, trouble)
    asked = ConsumerGroupTopicPartitions(group)
    end = time.monotonic() + timeout

    def ask(request: Callable[[float], Mapping[str, Future[Any]]]) -> Any:
        return _answer(request, group, config, trouble, timeout, end)

    facts = ask(lambda left: client.describe_consumer_groups([group], request_timeout=left))
    places = ask(lambda left: client.list_consumer_group_offsets([asked], request_timeout=left))
    found = [] if places is None else places.topic_partitions or []
    return GroupFacts(
        group=group,
        members=() if facts is None else tuple(sorted(str(m.client_id) for m in facts.members)),
        offsets={(p.topic, p.partition): p.offset for p in found if p.offset >= 0},
    )


def _answer(
    request: Callable[[float], Mapping[str, Future[Any]]],
    group: str,
    config: Mapping[str, Any],
    trouble: LastError,
    timeout: float,
    end: float,
) -> Any:
    """The answer; ``None`` for a group that is not known."""
    doing = f"asking for consumer group {group!r}"
    while True:
        left = max(end - time.monotonic(), PAUSE_SECONDS)
        try:
            return request(left)[group].result(left + timeout)
        except KafkaException as e:
            error = e.args[0]
        if error.code() in _UNKNOWN:
            return None
        if error.code() not in _AGAIN:
            raise ControlTopicError(
                f"{doing}: Kafka at {bootstrap_servers(config)} says: {redacted(error.str() or error.name(), config)}; "
                "grant this principal DESCRIBE on the group"
            )
        if time.monotonic() + PAUSE_SECONDS >= end:
            raise unreachable(ControlTopicError, doing, config, trouble, timeout, error.str() or error.name())
        time.sleep(PAUSE_SECONDS)
