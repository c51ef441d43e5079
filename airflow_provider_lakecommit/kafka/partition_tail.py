# SPDX-License-Identifier: Apache-2.0
"""Read one partition between two known offsets, committed records only, and stay at the end for the next read.

Contract: :meth:`PartitionTail.read` yields every committed record of `[start, end)` once, in order, and is done when
the *position* has reached `end`: the last offsets of a range may be transaction markers or aborted records, which no
client receives. A read that starts at the end of the previous one needs no new connection and no seek. It joins no
consumer group and stores no offset.

Failure story: an offset that the broker does not have (deleted by retention, truncated, topic recreated) is
:class:`StaleTopicError`: the ends must be requested again. It waits for a broker that restarts; `timeout` seconds
without progress raise the `away` error with the cause, a partition without read rights raises it at once. A corrupt
batch is requested once more, since it may have been corrupted in transit; then a :class:`CorruptBatch` takes its place,
and the batches after it are read.

Records that differ from what was written are an error of their own: a batch with altered bytes fails its checksum,
cannot be decompressed, or has an unknown form. Waiting does not fix it, and it does not mean that brokers are
unreachable. A batch is corrupt as a whole, because the exact place is unknown; its end is found by trying.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.kafka.admin_requests import DENIED, StaleTopicError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable

# Markers are stepped over inside the client without a word to us, so the position is looked at this often.
POLL_SECONDS = 0.003
STAYS_SECONDS = 1.0
"""After which a client that met damage and gives nothing is moved on, if the brokers answer at once: else it is they
who are slow, and what comes next may be whole.
"""

READER_SETTINGS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": 16384,
    # A byte that was altered on a broker's disk would be read as another record.
    "check.crcs": True,
}
"""Of a consumer of committed records that joins no group and stores no offset."""
_SETTINGS: dict[str, Any] = {
    **READER_SETTINGS,
    "group.id": "lakecommit-reads-without-group",
    # A read that starts elsewhere waits for the fetch in flight; an end without a record is reported with the next one.
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 10,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CorruptBatch:
    """Stands for records that cannot be read, from an offset on; ``cause`` is what the client or the broker says."""

    start: int
    cause: str


class PartitionTail:
    """One consumer, assigned to one partition.

    :param away: the error if the brokers do not answer.
    :param settings: further settings of the consumer
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        partition: int,
        *,
        timeout: float,
        away: type[LakecommitError],
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._config = config
        self._topic = topic
        self._partition = partition
        self._timeout = timeout
        self._away = away
        self._trouble = LastError(config.get("error_cb"))
        self._consumer = made(Consumer, config, self._trouble, **{**_SETTINGS, **settings})
        self._next = -1
        self._ahead: Message | None = None
        self._corrupt: tuple[int, int] | None = None

    def read(self, start: int, end: int) -> Iterator[Message | CorruptBatch]:
        """The committed records of `[start, end)`. `end` must not be above the last stable offset."""
        if start != self._next:
            self._move(start)
        self._trouble.forget()
        heard = stays = time.monotonic()
        while self._next < end:
            before = self._next
            taken = self._take(end)
            if isinstance(taken, CorruptBatch):
                yield taken
            elif taken is not None and (offset := taken.offset() or 0) >= end:
                self._ahead, self._next = taken, end
            elif taken is not None:
                self._next = offset + 1
                if self._corrupt is not None and offset > self._corrupt[0]:
                    self._corrupt = None
                yield taken
            if self._next > before:
                heard = stays = time.monotonic()
            elif self._is_corrupt and time.monotonic() - stays > STAYS_SECONDS:
                heard, stays = self._stepped(heard, end), time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                raise self._nothing_comes(end)

    def close(self) -> None:
        self._consumer.close()

    def _move(self, start: int) -> None:
        self._ahead = None
        self._next = start
        self._consumer.assign([TopicPartition(self._topic, self._partition, start)])

    def _take(self, end: int) -> Message | CorruptBatch | None:
        """Return the next record; None if there is none yet (the position may have moved nevertheless)."""
        if self._ahead is not None:
            message, self._ahead = self._ahead, None
            return message
        polled = self._consumer.poll(POLL_SECONDS)
        error = None if polled is None else polled.error()
        if polled is not None and error is None:
            return polled
        if polled is not None and error is not None:
            # After a corrupt batch the client requests an offset that it computed from wrong bytes.
            astray = error.code() == KafkaError._AUTO_OFFSET_RESET and self._corrupt is not None
            if astray or error.code() in CORRUPTION:
                return self._pass_over(error.str(), polled.offset() or 0, end, astray=astray)
            self._evaluate(error, polled.offset())
        self._next = max(self._next, self._position())
        return None

    def _position(self) -> int:
        [position] = self._consumer.position([TopicPartition(self._topic, self._partition)])
        return int(position.offset)

    def _pass_over(self, cause: str, offset: int, end: int, *, astray: bool) -> CorruptBatch | None:
        """Decide how to handle corruption at an offset. The client reports it before it returns the records before it.
        It usually skips a batch with a wrong checksum by itself, and stops at any other corruption, with or without an
        error.
        """
        if self._corrupt is None:
            self._corrupt = (offset if self._next <= offset < end else self._next), 1
            self._consumer.assign([TopicPartition(self._topic, self._partition, self._next)])
            return None
        start, failures = self._corrupt
        self._corrupt = start, failures + 1
        if failures == 1:
            return CorruptBatch(start=start, cause=cause)
        if astray or self._next > start:
            self._step(end)
        return None

    @property
    def _is_corrupt(self) -> bool:
        return self._corrupt is not None and self._corrupt[1] > 1

    def _stepped(self, heard: float, end: int) -> float:
        """Return when brokers last answered: now, if they answer at once and only the corruption blocks."""
        if not answers_at_once(self._consumer, self._topic, self._partition):
            return heard
        self._step(end)
        return time.monotonic()

    def _step(self, end: int) -> None:
        """Continue after the corruption."""
        start, _ = self._corrupt or (self._next, 0)
        behind = max(self._next, start) + 1
        self._move(first_readable(self._consumer, self._topic, self._partition, behind, end))

    def _nothing_comes(self, end: int) -> LakecommitError:
        name = f"{self._topic}[{self._partition}]"
        try:
            where = TopicPartition(self._topic, self._partition)
            self._consumer.get_watermark_offsets(where, CHECK_SECONDS, cached=False)
        except KafkaException:
            doing = f"reading {name} from offset {self._next} to {end}"
            return unreachable(self._away, doing, self._config, self._trouble, self._timeout)
        cause = f" ({self._trouble.cause})" if self._trouble.cause else ""
        return self._away(
            "LC2013",
            f"reading {name}: the brokers answer, but return nothing from offset {self._next} to {end} for "
            f"{self._timeout:.0f} s{cause}: they are too slow, or the log is corrupt there; if this persists, restore "
            "the partition from a replica, or delete the unreadable records: `kafka-delete-records` with "
            f'{{"topic": "{self._topic}", "partition": {self._partition}, "offset": {end}}}',
        )

    def _evaluate(self, error: KafkaError, offset: int | None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._next = max(self._next, offset or 0)
        elif error.code() in _MOVED:
            self._next = -1
            raise StaleTopicError(f"{self._topic}[{self._partition}]: {error.str()}")
        elif error.code() in DENIED:
            raise self._away(
                "LC2014",
                f"reading {self._topic}[{self._partition}]: Kafka at {bootstrap_servers(self._config)} reports: "
                f"{error.str()}; grant this principal READ and DESCRIBE on topic {self._topic!r}",
            )
        else:
            self._trouble(error)


PROBE_SECONDS = 3.0
PATIENCE_SECONDS = 60.0
"""For which brokers that are slow are waited for."""
AT_ONCE_SECONDS = 0.1
CHECK_SECONDS = 5.0
"""For which brokers that give nothing are asked whether they are there."""
EVENTS = 3
"""After this many reports of the same batch, the client is assumed to return nothing else."""

CORRUPTION = frozenset(
    {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED, KafkaError.INVALID_MSG}
)
"""What the client or a broker says of bytes that cannot be what was written: checksum, compression, form."""


def answers_at_once(consumer: Consumer, topic: str, partition: int) -> bool:
    """Return False if brokers are slow or unreachable."""
    began = time.monotonic()
    try:
        consumer.get_watermark_offsets(TopicPartition(topic, partition), CHECK_SECONDS, cached=False)
    except KafkaException:
        return False
    return time.monotonic() - began < AT_ONCE_SECONDS


def first_readable(consumer: Consumer, topic: str, partition: int, start: int, limit: int) -> int:
    """Return the first offset from which something can be read, from ``start`` on; ``limit``, if none is before it.

    :param consumer: is assigned to other offsets, so its reading is over
    """
    return next_readable(partial(_readable, consumer, topic, partition), start, limit)


def next_readable(readable: Callable[[int], int | None], start: int, limit: int) -> int:
    """The first offset from which something can be read, from ``start`` on; ``limit``, if there is none before it.

    :param readable: the first offset that is read from an offset on, or ``None``. Damage is a stretch: from some offset
        on all can be read.
    """
    if (found := readable(start)) is not None:
        return min(found, limit)
    # Where nothing comes each question costs seconds: one for all where it lasts to the end.
    if limit - 1 > start and readable(limit - 1) is None:
        return limit
    below, step = start, 1
    while (at := start + step) < limit and (found := readable(at)) is None:
        below, step = at, step * 2
    beyond = min(at, limit)
    while beyond - below > 1:
        middle = (below + beyond) // 2
        if (found := readable(middle)) is None:
            below = middle
        else:
            beyond = middle
    return beyond


def _readable(consumer: Consumer, topic: str, partition: int, offset: int) -> int | None:
    """Return the first offset that can be read from this one on; ``None``, where nothing comes."""
    events, began = 0, time.monotonic()
    deadline = began + PROBE_SECONDS
    consumer.assign([TopicPartition(topic, partition, offset)])
    while events < EVENTS:
        if time.monotonic() > deadline:
            # Slow brokers do not prove that data is missing.
            if answers_at_once(consumer, topic, partition) or time.monotonic() - began > PATIENCE_SECONDS:
                break
            deadline = time.monotonic() + PROBE_SECONDS
        for message in consumer.consume(1, 0.1):
            if (error := message.error()) is None or error.code() == KafkaError._PARTITION_EOF:
                return int(message.offset() or 0)
            # After a corrupt batch the client requests an offset that it computed from wrong bytes.
            events += EVENTS if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code() in CORRUPTION
        (at,) = consumer.position([TopicPartition(topic, partition)])
        if at.offset > offset:
            return int(at.offset)
    return None
