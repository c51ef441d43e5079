# SPDX-License-Identifier: Apache-2.0
"""A consumer group as the brokers report it: its members, and how far it has read.

Contract: the brokers answer each time. A group that they do not know has no members and no offsets; offsets expire some
days after the last member has left (``offsets.retention.minutes``). A coordinator election is waited for, and so are,
if requested, transactions that may still commit offsets. :func:`set_group_offsets` is for a group without members; it
may be repeated.

Failure story: brokers that do not answer, or reject the request, are a :class:`ControlTopicError`: whether a process
works for the connector must be known before its work is taken over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core import source_group
from airflow_provider_lakecommit.exceptions import ConnectorError, ControlTopicError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.redaction import redacted

ANSWER_SECONDS = 30.0
"""Time for the brokers to answer."""
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
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
"""A group's coordinator that is being elected, or reads the group's state still."""
_Request = Callable[[AdminClient, float], Mapping[str, Future[Any]]]
"""Makes a request that ends after so many seconds, and returns its answer by group."""


def members_of(config: Mapping[str, Any], group: str) -> tuple[str, ...]:
    """Return the client ids of a group's members.

    :raises ControlTopicError: they do not answer, or reject the request
    """
    facts = _asker(config, group)(lambda c, left: c.describe_consumer_groups([group], request_timeout=left))
    return () if facts is None else tuple(sorted(str(m.client_id) for m in facts.members))


def check_no_members(config: Mapping[str, Any], connector: str, group: str | None = None) -> None:
    """Check that no process works for a connector of Kafka Connect, by the members of its groups.

    :param group: the group in the connector's events, if its tasks read in another one
    :raises ConnectorError: a process works for it
    """
    own = source_group(connector)
    for name in dict.fromkeys((own, group or own, f"{group or own}-coord")):
        if members := members_of(config, name):
            raise ConnectorError(
                "LC7524",
                f"consumer group {name} has {len(members)} members ({', '.join(members[:3])}): connector {connector} "
                "is active, even if it is paused. Stop it (PUT /connectors/NAME/stop) or delete it, then wait for the "
                "end of its session (45 s by default)",
            )


def offsets_of_group(config: Mapping[str, Any], group: str, *, decided: bool = False) -> dict[tuple[str, int], int]:
    """Return the next offsets that a group reads, by topic and partition.

    :param decided: wait for open transactions that may still change offsets
    :raises ControlTopicError: they do not answer, or reject the request
    """
    ask, end = _asker(config, group), time.monotonic() + ANSWER_SECONDS
    request = ConsumerGroupTopicPartitions(group)
    while True:
        offsets = ask(
            lambda c, left: c.list_consumer_group_offsets([request], request_timeout=left, require_stable=decided)
        )
        found: list[TopicPartition] = [] if offsets is None else offsets.topic_partitions or []
        first = next((p for p in found if p.error is not None), None)
        if first is None:
            return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}
        if time.monotonic() + PAUSE_SECONDS >= end:
            problem = f"{first.topic}[{first.partition}]: {first.error}"
            raise ControlTopicError(
                "LC7503", f"the offsets of group {group!r} are not stable yet ({problem}): try again later"
            )
        time.sleep(PAUSE_SECONDS)


def set_group_offsets(config: Mapping[str, Any], group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Set where a group without members continues; partitions that are not named keep their offset.

    :raises ControlTopicError: it has members, or the brokers do not answer or reject it
    """
    positions = [TopicPartition(topic, number, offset) for (topic, number), offset in sorted(offsets.items())]
    request = ConsumerGroupTopicPartitions(group, positions)
    done = _asker(config, group)(lambda c, left: c.alter_consumer_group_offsets([request], request_timeout=left))
    if done is None or (refused := [p for p in done.topic_partitions or [] if p.error is not None]):
        why = "unknown group" if done is None else f"{refused[0].topic}[{refused[0].partition}]: {refused[0].error}"
        raise ControlTopicError("LC7504", f"cannot set the offsets of consumer group {group!r}: {why}")


def _asker(config: Mapping[str, Any], group: str) -> Callable[[_Request], Any]:
    """Return a function that makes requests about a group until one time; its answer is ``None`` for an unknown one."""
    doing, end = f"asking for consumer group {group!r}", time.monotonic() + ANSWER_SECONDS
    trouble = LastError(config.get("error_cb"))
    client = made(AdminClient, config, trouble)

    def ask(request: _Request) -> Any:
        while True:
            left = max(end - time.monotonic(), PAUSE_SECONDS)
            try:
                return request(client, left)[group].result(left + ANSWER_SECONDS)
            except KafkaException as e:
                error = e.args[0]
            text = error.str() or error.name()
            if error.code() in _UNKNOWN:
                return None
            if error.code() not in _AGAIN:
                raise ControlTopicError(
                    "LC7505",
                    f"{doing}: Kafka at {bootstrap_servers(config)}: {redacted(text, config)}; "
                    "grant this principal DESCRIBE on the group",
                )
            if time.monotonic() + PAUSE_SECONDS >= end:
                raise unreachable(
                    ControlTopicError, doing, config, trouble, ANSWER_SECONDS, error.str() or error.name()
                )
            time.sleep(PAUSE_SECONDS)

    return ask
