# SPDX-License-Identifier: Apache-2.0
"""Check that topics are still the planned ones.

Contract: a topic is identified by its id, not its name; a plan without ids (of an old broker) is compared by partitions
only. Checked before the first record of a slice is read and after its last: a topic recreated in between cannot pass
for the old one.

Failure story: another id, fewer partitions, no such topic:
:class:`~airflow_provider_lakecommit.exceptions.SourceError`; a missing right, or no answer:
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError` with the right, or with the client's last error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core import RESET_OFFSETS, Span
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import DENIED, topic_id_text

LAG_SECONDS = 5.0
LAG_PAUSE = 0.1
NOT_THERE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def denied(what: str, error: KafkaError, right: str) -> SourceUnavailableError:
    """Return the error for a missing right: it can be granted without our knowledge, and no record is its cause."""
    return SourceUnavailableError(
        "LC5044",
        f"{what}: {error.str()}; grant this principal {right}: `kafka-acls --add --allow-principal User:NAME` with "
        f"--topic and --operation {right}; the next attempt continues",
    )


def check_topics(admin: AdminClient, spans: Sequence[Span], timeout: float, heard: Callable[[], str | None]) -> None:
    """Compare the topics of the spans with those of the brokers.

    :param timeout: seconds for an answer
    :param heard: returns the last error of the clients, for the message
    """
    topics = _describe(admin, sorted({s.partition.topic for s in spans}), timeout, heard)
    for span in spans:
        p, topic = span.partition, topics[span.partition.topic]
        topic_id = topic_id_text(topic.topic_id)
        if p.topic_id and topic_id != p.topic_id:
            raise SourceError(
                "LC5045",
                f"{span}: topic {p.topic} has id {topic_id}, the plan was made for {p.topic_id}: the topic was "
                f"recreated; restart the landing with `{RESET_OFFSETS} SPEC --from earliest`",
            )
        if p.partition >= len(topic.partitions):
            raise SourceError(
                "LC5046", f"{span}: topic {p.topic} has only {len(topic.partitions)} partitions; compare with the plan"
            )


def _describe(admin: AdminClient, names: list[str], timeout: float, heard: Callable[[], str | None]) -> dict[str, Any]:
    """Return the brokers' descriptions. A lagging broker does not know a new topic for a moment."""
    deadline = time.monotonic() + LAG_SECONDS
    while True:
        try:
            futures = admin.describe_topics(TopicCollection(names), request_timeout=timeout)
            return {name: future.result(timeout + 1) for name, future in futures.items()}
        except KafkaException as e:
            error: KafkaError = e.args[0]
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise _not_described(names, error, timeout, heard()) from e
        time.sleep(LAG_PAUSE)


def _not_described(names: Sequence[str], error: KafkaError, timeout: float, heard: str | None) -> Exception:
    if error.code() in NOT_THERE:
        return SourceError("LC5047", f"topics {', '.join(names)}: {error.str()}; check that the topics exist")
    if error.code() in DENIED:
        return denied(f"topics {', '.join(names)} cannot be described", error, "DESCRIBE")
    why = f" ({heard})" if heard else ""
    return SourceUnavailableError(
        "LC5048",
        f"the brokers did not describe the topics {', '.join(names)} in {timeout:.0f} s: {error.str()}{why}; check "
        "bootstrap.servers and the credentials",
    )
