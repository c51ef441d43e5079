# SPDX-License-Identifier: Apache-2.0
"""Bounded reads of Kafka: the records of some spans, and the proof that they are all there.

Contract: :meth:`SliceReader.read` gives the records of the spans in chunks of bounded size, those of each span in order
of offsets. It ends when the consumer's *position* has reached the end of every span: record counts prove nothing,
because compaction, aborted transactions and control records leave holes. Records of open or aborted transactions are
never given. Nothing is committed to a consumer group, nothing resets silently.

One consumer serves all spans. Spans of different partitions are read side by side and share chunks; several spans of
one partition are read in rounds. What a record costs does not depend on how many partitions the records come from.

Failure story: :class:`~airflow_provider_lakecommit.exceptions.SourceError` when offsets are gone (retention), the
partition ends before the planned end, the topic is gone, made anew, or was made anew while it was read, or when an
answer of a broker is larger than ``receive.message.max.bytes`` lets it be;
:class:`~airflow_provider_lakecommit.exceptions.SourceDamagedError` when records are not what was written, or the
brokers tell the partition's ends and give nothing in between (:mod:`~airflow_provider_lakecommit.spark.damage`);
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError` when no record and no position arrive for
``read_timeout`` seconds, and no ends either, or the right to read is missing. The message names the span. Brokers that
hold a client back by a quota are waited for as long.
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
from airflow_provider_lakecommit.kafka import DAMAGE, DENIED, is_truncation
from airflow_provider_lakecommit.signing import PREFIX
from airflow_provider_lakecommit.spark.chunks import Chunk, bounded, chunk_of
from airflow_provider_lakecommit.spark.collector import COLLECTOR
from airflow_provider_lakecommit.spark.damage import Damage
from airflow_provider_lakecommit.spark.positions import (
    Partition,
    PartitionReading,
    offset_of,
    partition_of,
    rounds,
    stretches,
)
from airflow_provider_lakecommit.spark.topics import NOT_THERE, check_topics, denied
from airflow_provider_lakecommit.spark.unreadable import Unreadable

__all__ = ["SliceReader"]

log = logging.getLogger(__name__)

# What stays in a processor's cache from the broker to the rows is handled in less time than bigger batches.
BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20
FIRST_BATCH = 500
POLL_SECONDS = 0.1
READ_TIMEOUT = 60.0
WITHHELD_SECONDS = 15.0
"""Without any progress, after which brokers are asked whether they have more: those that say so, and give it to no
request, have damage there.
"""
TOO_LARGE_SECONDS = 5.0
ASK_SECONDS = 15.0
_OURS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
}
_DEFAULTS: dict[str, Any] = {
    "group.id": "lakecommit-reader",
    # A byte that was altered where a broker keeps it would land as another value.
    "check.crcs": True,
    # How long a full queue rests: librdkafka's 1000 ms makes reading four times slower.
    "fetch.queue.backoff.ms": 5,
    # Only what is there already is read: a request that waits for more holds up the partitions that come after it.
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 32_768,
}
QUEUED = (2_000, 20_000)
"""Records of a partition that wait in the client, at least and at most; a quarter of the longest span in between."""
FETCH_BYTES = (256 << 10, 1 << 20)
"""Bytes of a partition in an answer, at least and at most; a batch that is larger comes alone. An eighth of the longest
span in between, with :data:`WIRE_BYTES` for a record.
"""
WIRE_BYTES = 100


class SliceReader:
    """Reads spans; a context manager.

    :param kafka: librdkafka settings; those that the proof rests on cannot be overridden
    :param read_timeout: seconds without any progress after which the source counts as unavailable
    :param ask_seconds: how long the brokers may take to describe topics and partitions
    :param should_stop: asked between polls; when true the iteration ends early and :attr:`stopped` says so
    :param known: how far partitions were read before: where a span goes on from there, the leader has to confirm it
    :ivar reached: of each span that was begun, by its place, the offset up to which all of it was given
    :ivar seen: of each span that is read, by its place, where its newest record of a known leader epoch ended
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        spans: Sequence[Span],
        *,
        batch_records: int = BATCH_RECORDS,
        batch_bytes: int = BATCH_BYTES,
        read_timeout: float = READ_TIMEOUT,
        ask_seconds: float = ASK_SECONDS,
        should_stop: Callable[[], bool] = lambda: False,
        known: Mapping[SourcePartition, ReadPosition] = MappingProxyType({}),
    ) -> None:
        self._spans = spans
        self._known = known
        self.seen: dict[int, ReadPosition] = {}
        self.reached: dict[int, int] = {}
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._read_timeout = read_timeout
        self._ask_seconds = ask_seconds
        self._should_stop = should_stop
        self._one_topic = len({s.partition.topic for s in spans}) == 1
        self.stopped = False
        self._record_bytes = batch_bytes / FIRST_BATCH
        theirs = {k: v for k, v in kafka.items() if not k.startswith(PREFIX)}
        self._trouble = Unreadable(ask_seconds, read_timeout)
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
        """The records of all spans; the topics are compared before the first and after the last one."""
        check_topics(self._admin, self._spans, self._ask_seconds, lambda: self._trouble.cause)
        for round_ in rounds(self._spans):
            yield from self._read_round(round_)
            if self.stopped:
                break
        check_topics(self._admin, self._spans, self._ask_seconds, lambda: self._trouble.cause)

    # -- one round: at most one span per partition --------------------------------------------------------------------

    def _read_round(self, readings: Sequence[PartitionReading]) -> Iterator[Chunk]:
        open_: dict[Partition, PartitionReading] = {
            (r.span.partition.topic, r.span.partition.partition): r for r in readings
        }
        self._consumer.assign([self._place(r) for r in open_.values()])
        alive = looked = time.monotonic()
        while open_:
            if self._should_stop():
                self.stopped = True
                for reading in open_.values():
                    self._note(reading)
                break
            before = sum(r.position for r in open_.values())
            chunk = self._sort(self._poll(open_.values()), open_)
            yield from bounded(chunk, self._batch_bytes)
            self._ask_positions(open_)
            moved = sum(r.position for r in open_.values()) > before
            self._drop_done(open_)
            now = time.monotonic()
            alive = now if moved else alive
            if looked <= alive < now - WITHHELD_SECONDS:
                looked = now
                self._look_for_damage(open_.values())
            if self._trouble.too_large and now - alive > TOO_LARGE_SECONDS:
                raise self._trouble.larger_than_taken(open_.values())
            if now - alive > self._read_timeout:
                raise self._trouble.nothing_comes(next(iter(open_.values())))
        self._consumer.unassign()

    def _look_for_damage(self, readings: Collection[PartitionReading]) -> None:
        """Nothing has come for a while.

        :raises SourceDamagedError: it never will
        """
        # Another client: what this one is given, and where it stands, must not be lost to the one that reads on.
        asking = Consumer(self._settings)
        try:
            if (error := self._trouble.withheld(next(iter(readings)), asking)) is not None:
                raise error
        finally:
            asking.close()

    def _place(self, reading: PartitionReading) -> TopicPartition:
        partition = reading.span.partition
        known = self._known.get(partition)
        if known is None or known.offset != reading.position:
            return TopicPartition(partition.topic, partition.partition, reading.position)
        return TopicPartition(partition.topic, partition.partition, reading.position, leader_epoch=known.leader_epoch)

    def _poll(self, readings: Any) -> list[Message]:
        left = sum(r.span.range.end - r.position for r in readings)
        wanted = min(self._batch_records, left, max(1, int(self._batch_bytes / self._record_bytes)))
        try:
            return self._consumer.consume(wanted, POLL_SECONDS)
        except KafkaException as e:
            raise SourceUnavailableError(
                "LC5028", f"reading {self._spans[0]} and {len(self._spans) - 1} more: {e}"
            ) from e

    def _sort(self, polled: Sequence[Message], open_: Mapping[Partition, PartitionReading]) -> Chunk:
        """Sort what was polled into records of the open spans and events, and move the positions behind it."""
        messages = polled
        events = [m for m in polled if m.error() is not None]
        if events:
            messages = [m for m in polled if m.error() is None]
            # Before any position is moved: what lies behind damage must not make a gap of it.
            self._check_damage(polled, open_)
        runs = []
        for key, start, end in stretches(messages, one_topic=self._one_topic):
            # Late records of a span that is done already belong to nobody.
            if (reading := open_.get(key)) is not None and (run := reading.take(messages, start, end)):
                runs.append(run)
        for event in events:
            self._heed(event, open_)
        chunk = chunk_of(messages, runs)
        if chunk.messages:
            self._record_bytes = max(1.0, chunk.bytes / len(chunk.messages))
        return chunk

    def _ask_positions(self, open_: Mapping[Partition, PartitionReading]) -> None:
        """Ask the consumer's position, which also passes control records."""
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
        if reading.seen is not None:
            self.seen[reading.index] = reading.seen

    # -- what can be wrong --------------------------------------------------------------------------------------------

    def _check_damage(self, polled: Sequence[Message], open_: Mapping[Partition, PartitionReading]) -> None:
        """Raise if the polled messages report corruption where a span is still to be read."""
        for place, event in enumerate(polled):
            error, reading = event.error(), open_.get(partition_of(event))
            if error is None or reading is None or error.code() not in DAMAGE:
                continue
            same, end = partition_of(event), reading.span.range.end
            others = [(i, offset_of(m)) for i, m in enumerate(polled) if m.error() is None and partition_of(m) == same]
            position = max([reading.position, *(o + 1 for i, o in others if i < place)])
            behind = next((o for i, o in others if i > place), None)
            if behind is None:
                # It has passed control records before the damage, too.
                position = max(position, self._position(same))
            if position < end and behind != position:
                start = max(position, offset_of(event)) if offset_of(event) < end else position
                raise Damage(self._consumer, reading.span).found(start, error.str())

    def _position(self, key: Partition) -> int:
        (at,) = self._consumer.position([TopicPartition(*key)])
        return 0 if at.offset == OFFSET_INVALID else int(at.offset)

    def _heed(self, event: Message, open_: Mapping[Partition, PartitionReading]) -> None:
        """An event in place of a record: the end of a partition, or an error."""
        error = event.error()
        if error is None:
            return
        code, reading = error.code(), open_.get(partition_of(event))
        if code in NOT_THERE:
            span = (reading or next(iter(open_.values()))).span
            raise SourceError("LC5029", f"{span} cannot be read: {error.str()}; is the topic there?")
        if code in DENIED:
            raise denied(f"{(reading or next(iter(open_.values()))).span} cannot be read", error, "READ")
        if reading is None or reading.done:
            # What is wrong behind a span is not its own.
            self._trouble(error)
        elif code == KafkaError._PARTITION_EOF:
            self._at_end_of_log(reading, offset_of(event))
        elif is_truncation(error):
            raise self._trouble.out_of_range(reading, error)
        elif code == KafkaError._AUTO_OFFSET_RESET:
            # A client that was led astray by damage behind the span asks for wrong offsets.
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
                f"{reading.span} was planned, but the partition ends at {stable}: it was truncated or made anew; "
                f"compare the topic with the plan, then start the landing anew with `{RESET_OFFSETS} SPEC --from "
                "earliest`",
            )


def _fetching(spans: Sequence[Span]) -> dict[str, int]:
    """How far the client reads ahead: what is fetched beyond the end of a span is thrown away."""
    longest = max((len(s.range) for s in spans), default=0)
    return {
        "queued.min.messages": _between(QUEUED, longest // 4),
        "fetch.message.max.bytes": _between(FETCH_BYTES, longest * WIRE_BYTES // 8),
    }


def _between(ends: tuple[int, int], wanted: int) -> int:
    return max(ends[0], min(ends[1], wanted))
