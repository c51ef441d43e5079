# SPDX-License-Identifier: Apache-2.0
"""Bounded reads of Kafka: the records of some spans, and the proof that they are complete.

Contract: :meth:`SliceReader.read` yields the records of the spans in chunks of bounded size, those of each span in
order of offsets. It ends when the consumer's *position* has reached the end of every span: record counts prove nothing,
because compaction, aborted transactions and control records leave holes. Records of open or aborted transactions are
never returned. Nothing is committed to a consumer group, nothing resets silently.

One consumer serves all spans. Spans of different partitions are read together and share chunks; several spans of one
partition are read in rounds. The cost of a record does not depend on the number of partitions.

Failure story: :class:`~airflow_provider_lakecommit.exceptions.SourceError` if offsets were removed (retention), the
partition ends before the planned end, the topic was deleted or recreated, also during the read, or an answer of a
broker exceeds ``receive.message.max.bytes``; :class:`~airflow_provider_lakecommit.exceptions.SourceCorruptError` if
records are corrupt, or brokers report the partition's ends but return nothing in between
(:mod:`~airflow_provider_lakecommit.spark.unreadable`);
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError` if no record, position or partition end arrives
for ``read_timeout`` seconds, or the right to read is missing. The message names the span. A quota extends the wait.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core import RESET_OFFSETS, ReadPosition, SourcePartition, Span
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import CORRUPTION, DENIED, is_truncation
from airflow_provider_lakecommit.signing import PREFIX
from airflow_provider_lakecommit.spark.chunks import (
    Chunk,
    Partition,
    PartitionReading,
    bounded,
    chunk_of,
    offset_of,
    partition_of,
    rounds,
    stretches,
)
from airflow_provider_lakecommit.spark.collector import COLLECTOR
from airflow_provider_lakecommit.spark.topics import NOT_THERE, check_topics, denied
from airflow_provider_lakecommit.spark.unreadable import Unreadable, corruption

log = logging.getLogger(__name__)

# Batches that fit a processor's cache from the broker to the rows take less time than bigger ones.
BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20
FIRST_BATCH = 500
POLL_SECONDS = 0.1
READ_TIMEOUT = 60.0
WITHHELD_SECONDS = 15.0
"""Seconds without progress before asking the brokers for the partition's end: if they have more, but return it to no
request, the partition is corrupt there.
"""
TOO_LARGE_SECONDS = 5.0
CHECK_SECONDS = 15.0
_OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
_DEFAULTS: dict[str, Any] = {
    "group.id": "lakecommit-reader",
    # A byte altered on a broker would land as another value.
    "check.crcs": True,
    # How long a full queue pauses: librdkafka's 1000 ms makes reading four times slower.
    "fetch.queue.backoff.ms": 5,
    # Read only what is available: a request that waits for more delays the partitions after it.
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
}
QUEUED = (2_000, 20_000)
"""Fewest and most records of a partition that wait in the client; a quarter of the longest span in between."""
FETCH_BYTES = (256 << 10, 1 << 20)
"""Fewest and most bytes of a partition in an answer (a larger batch comes alone): an eighth of the longest span, with
:data:`WIRE_BYTES` per record.
"""
WIRE_BYTES = 100


class SliceReader:
    """Reads spans; a context manager.

    :param kafka: librdkafka settings; those that the proof needs cannot be overridden
    :param read_timeout: seconds without progress after which the source counts as unavailable
    :param check_seconds: how long the brokers may take to describe topics and partitions
    :param should_stop: called between polls; if true, reading ends early and :attr:`stopped` is set
    :param known: earlier positions of partitions: the leader must confirm the position that a span continues from
    :ivar reached: by index of each begun span, the offset up to which all of it was returned
    :ivar observed: by index of each span, the end of its newest record with a known leader epoch
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        spans: Sequence[Span],
        *,
        batch_records: int = BATCH_RECORDS,
        batch_bytes: int = BATCH_BYTES,
        read_timeout: float = READ_TIMEOUT,
        check_seconds: float = CHECK_SECONDS,
        should_stop: Callable[[], bool] = lambda: False,
        known: Mapping[SourcePartition, ReadPosition] = MappingProxyType({}),
    ) -> None:
        self._spans = spans
        self._known = known
        self.observed: dict[int, ReadPosition] = {}
        self.reached: dict[int, int] = {}
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._read_timeout = read_timeout
        self._check_seconds = check_seconds
        self._should_stop = should_stop
        self._one_topic = len({s.partition.topic for s in spans}) == 1
        self.stopped = False
        self._record_bytes = batch_bytes / FIRST_BATCH
        theirs = {k: v for k, v in kafka.items() if not k.startswith(PREFIX)}
        self._trouble = Unreadable(check_seconds, read_timeout)
        shared = {**theirs, "error_cb": self._trouble, "throttle_cb": self._trouble.throttled, "logger": log}
        self._admin = AdminClient({k: v for k, v in shared.items() if k not in _OURS and k not in _DEFAULTS})
        defaults = {**_DEFAULTS, **_fetching(spans)}
        self._settings = {**defaults, **shared, **_OURS}
        self._consumer = self._trouble.consumer = Consumer(self._settings)

    def __enter__(self) -> Self:
        COLLECTOR.rest()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        COLLECTOR.resume()
        self._consumer.close()

    def read(self) -> Iterator[Chunk]:
        """Yield the records of all spans; the topics are compared before the first and after the last one."""
        check_topics(self._admin, self._spans, self._check_seconds, lambda: self._trouble.cause)
        for round_ in rounds(self._spans):
            yield from self._read_round(round_)
            if self.stopped:
                break
        check_topics(self._admin, self._spans, self._check_seconds, lambda: self._trouble.cause)

    # -- one round: at most one span per partition --------------------------------------------------------------------

    def _read_round(self, readings: Sequence[PartitionReading]) -> Iterator[Chunk]:
        open_: dict[Partition, PartitionReading] = {
            (r.span.partition.topic, r.span.partition.partition): r for r in readings
        }
        self._consumer.assign([self._partition_of(r) for r in open_.values()])
        alive = checked = time.monotonic()
        while open_:
            if self._should_stop():
                self.stopped = True
                for reading in open_.values():
                    self._note(reading)
                break
            before = sum(r.position for r in open_.values())
            yield from bounded(self._next(open_), self._batch_bytes)
            self._request_positions(open_)
            moved = sum(r.position for r in open_.values()) > before
            self._drop_done(open_)
            now = time.monotonic()
            alive = now if moved else alive
            if checked <= alive < now - WITHHELD_SECONDS:
                checked = now
                self._find_corruption(open_.values())
            if self._trouble.too_large and now - alive > TOO_LARGE_SECONDS:
                raise self._trouble.larger_than_taken(open_.values())
            if now - alive > self._read_timeout:
                raise self._trouble.nothing_comes(next(iter(open_.values())))
        self._consumer.unassign()

    def _find_corruption(self, readings: Collection[PartitionReading]) -> None:
        """Check for corruption after a while without progress."""
        # Use another client: this one must not lose its data and position.
        asking = Consumer(self._settings)
        try:
            if (error := self._trouble.withheld(next(iter(readings)), asking)) is not None:
                raise error
        finally:
            asking.close()

    def _partition_of(self, reading: PartitionReading) -> TopicPartition:
        partition = reading.span.partition
        known = self._known.get(partition)
        if known is None or known.offset != reading.position:
            return TopicPartition(partition.topic, partition.partition, reading.position)
        return TopicPartition(partition.topic, partition.partition, reading.position, leader_epoch=known.leader_epoch)

    def _next(self, open_: Mapping[Partition, PartitionReading]) -> Chunk:
        """Poll messages, sort them into records of the open spans and events, and move the positions past them."""
        left = sum(r.span.range.end - r.position for r in open_.values())
        batch = min(self._batch_records, left, max(1, int(self._batch_bytes / self._record_bytes)))
        try:
            messages: Sequence[Message] = self._consumer.consume(batch, POLL_SECONDS)
        except KafkaException as e:
            raise SourceUnavailableError(
                "LC5028", f"reading {self._spans[0]} and {len(self._spans) - 1} more: {e}"
            ) from e
        if events := [m for m in messages if m.error() is not None]:
            # Before any position moves: data after corruption must not turn it into a gap.
            self._check_corruption(messages, open_)
            messages = [m for m in messages if m.error() is None]
        runs = []
        for key, start, end in stretches(messages, one_topic=self._one_topic):
            # Late records of a finished span are ignored.
            if (reading := open_.get(key)) is not None and (run := reading.take(messages, start, end)):
                runs.append(run)
        for event in events:
            self._heed(event, open_)
        chunk = chunk_of(messages, runs)
        if chunk.messages:
            self._record_bytes = max(1.0, chunk.bytes / len(chunk.messages))
        return chunk

    def _request_positions(self, open_: Mapping[Partition, PartitionReading]) -> None:
        """Read the consumer's position, which also passes control records."""
        for at in self._consumer.position([TopicPartition(t, p) for t, p in open_]):
            reading = open_[at.topic, at.partition]
            if at.offset != OFFSET_INVALID:
                reading.position = max(reading.position, at.offset)
                reading.see(at.offset, at.leader_epoch)

    def _drop_done(self, open_: dict[Partition, PartitionReading]) -> None:
        done = [key for key, r in open_.items() if r.done]
        for key in done:
            self._note(open_.pop(key))
        if done and open_:
            self._consumer.incremental_unassign([TopicPartition(t, p) for t, p in done])

    def _note(self, reading: PartitionReading) -> None:
        self.reached[reading.index] = min(reading.position, reading.span.range.end)
        if reading.observed is not None:
            self.observed[reading.index] = reading.observed

    # -- what can be wrong --------------------------------------------------------------------------------------------

    def _check_corruption(self, polled: Sequence[Message], open_: Mapping[Partition, PartitionReading]) -> None:
        """Raise if the polled messages report corruption where a span is still to be read."""
        for index, event in enumerate(polled):
            error, reading = event.error(), open_.get(partition_of(event))
            if error is None or reading is None or error.code() not in CORRUPTION:
                continue
            same, end = partition_of(event), reading.span.range.end
            others = [(i, offset_of(m)) for i, m in enumerate(polled) if m.error() is None and partition_of(m) == same]
            position = max([reading.position, *(o + 1 for i, o in others if i < index)])
            behind = next((o for i, o in others if i > index), None)
            if behind is None:
                # It has passed control records before the corruption, too.
                position = max(position, self._position(same))
            if position < end and behind != position:
                start = max(position, offset_of(event)) if offset_of(event) < end else position
                raise corruption(self._consumer, reading.span, start, error.str())

    def _position(self, key: Partition) -> int:
        (at,) = self._consumer.position([TopicPartition(*key)])
        return 0 if at.offset == OFFSET_INVALID else int(at.offset)

    def _heed(self, event: Message, open_: Mapping[Partition, PartitionReading]) -> None:
        error = event.error()
        if error is None:
            return
        code, reading = error.code(), open_.get(partition_of(event))
        if code in NOT_THERE:
            span = (reading or next(iter(open_.values()))).span
            raise SourceError("LC5029", f"{span} cannot be read: {error.str()}; check that the topic exists")
        if code in DENIED:
            raise denied(f"{(reading or next(iter(open_.values()))).span} cannot be read", error, "READ")
        if reading is None or reading.done:
            # An error after a span is not its own.
            self._trouble(error)
        elif code == KafkaError._PARTITION_EOF:
            self._at_end_of_log(reading, offset_of(event))
        elif is_truncation(error):
            raise self._trouble.out_of_range(reading, error)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            # Corruption after the span can make a client request wrong offsets.
            reading.position = max(reading.position, self._position(partition_of(event)))
            if not reading.done:
                raise self._trouble.out_of_range(reading, error)
        else:
            self._trouble(error)

    def _at_end_of_log(self, reading: PartitionReading, offset: int) -> None:
        reading.position = max(reading.position, offset)
        if reading.done:
            return
        _, stable = self._trouble.watermarks(reading)
        if stable < reading.span.range.end:
            raise SourceError(
                "LC5030",
                f"{reading.span} was planned, but the partition ends at {stable}: it was truncated or recreated; "
                f"compare the topic with the plan, then restart the landing with `{RESET_OFFSETS} SPEC --from "
                "earliest`",
            )


def _fetching(spans: Sequence[Span]) -> dict[str, int]:
    """Return settings that limit how far the client reads ahead: data past the end of a span is discarded."""
    longest = max((len(s.range) for s in spans), default=0)
    return {
        "queued.min.messages": _between(QUEUED, longest // 4),
        "fetch.message.max.bytes": _between(FETCH_BYTES, longest * WIRE_BYTES // 8),
    }


def _between(ends: tuple[int, int], records: int) -> int:
    return max(ends[0], min(ends[1], records))
