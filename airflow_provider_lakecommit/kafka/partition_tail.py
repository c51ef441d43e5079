# SPDX-License-Identifier: Apache-2.0
"""Reads one partition between two known offsets, committed records only, and stays at the end for the next read.

Contract: :meth:`PartitionTail.read` gives every committed record of `[start, end)` once, in order, and is done when
the *position* has reached `end`: the last offsets of a range may be transaction markers or aborted records, which
nobody is ever given. A read that starts where the last one ended costs no new connection and no seek. No consumer
group is joined and no offset stored.

Failure story: an offset that the broker does not have (deleted by retention, cut off, topic made anew) is
:class:`StaleTopicError`: the borders must be asked for again. A broker that restarts is waited for; `timeout`
seconds without any progress end in the `away` error with the cause, a partition that may not be read at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.kafka.admin_requests import DENIED, StaleTopicError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable

__all__ = ["PartitionTail"]

# Markers are stepped over inside the client without a word to us, so the position is looked at this often.
POLL_SECONDS = 0.003

_SETTINGS: dict[str, Any] = {
    "group.id": "lakecommit-reads-without-group",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # A read that starts elsewhere waits for the fetch in flight; an end without a record is reported with the next one.
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
    "queued.max.messages.kbytes": 16384,
}
_MOVED = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class PartitionTail:
    """One consumer, assigned to one partition.

    :param away: the error when the brokers do not answer.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, partition: int, *, timeout: float, away: type[LakecommitError]
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._timeout = timeout
        self._away = away
        self._trouble = LastError(config.get("error_cb"))
        self._consumer = made(Consumer, config, self._trouble, **_SETTINGS)
        self._next = -1
        self._ahead: Message | None = None

    def read(self, start: int, end: int) -> Iterator[Message]:
        """The committed records of `[start, end)`. `end` must not be above the last stable offset."""
        if start != self._next:
            self._move(start)
        self._trouble.forget()
        heard = time.monotonic()
        while self._next < end:
            before = self._next
            message = self._take()
            if message is not None and (offset := message.offset() or 0) >= end:
                self._ahead, self._next = message, end
            elif message is not None:
                self._next = offset + 1
                yield message
            if self._next > before:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                doing = f"reading {self._topic}[{self._partition}] from offset {self._next} to {end}"
                raise unreachable(self._away, doing, self._config, self._trouble, self._timeout)

    def close(self) -> None:
        self._consumer.close()

    def _move(self, start: int) -> None:
        self._ahead = None
        self._next = start
        self._consumer.assign([TopicPartition(self._topic, self._partition, start)])

    def _take(self) -> Message | None:
        """The next record; None when there is none yet, and then the position may have moved all the same."""
        if self._ahead is not None:
            message, self._ahead = self._ahead, None
            return message
        polled = self._consumer.poll(POLL_SECONDS)
        error = None if polled is None else polled.error()
        if polled is not None and error is None:
            return polled
        if polled is not None and error is not None:
            self._judge(error, polled.offset())
        self._next = max(self._next, self._position())
        return None

    def _position(self) -> int:
        [place] = self._consumer.position([TopicPartition(self._topic, self._partition)])
        return int(place.offset)

    def _judge(self, error: KafkaError, offset: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next, offset or 0)
        elif error.code() in _MOVED:
            self._next = -1
            raise StaleTopicError(f"{self._topic}[{self._partition}]: {error.str()}")
        elif error.code() in DENIED:
            raise self._away(
                f"reading {self._topic}[{self._partition}]: Kafka at {bootstrap_servers(self._config)} says: "
                f"{error.str()}; grant this principal READ and DESCRIBE on topic {self._topic!r}"
            )
        else:
            self._trouble(error)
