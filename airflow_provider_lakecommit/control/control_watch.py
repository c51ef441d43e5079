# SPDX-License-Identifier: Apache-2.0
"""Follows a control topic: every committed record of all partitions, merged by time, then the new ones.

Contract: one consumer, no consumer group, no stored offsets. Up to the end as of the first read, records come by
timestamp, each partition's in its own order; then as they arrive. Memory is bounded: a partition that is ahead of the
others is paused. Damaged records are skipped, as by all readers. A missing topic is a :class:`ControlTopicError`;
brokers that do not answer are none, they only set :attr:`ControlWatch.trouble` until they do.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_provider_lakecommit.control.bounded_records import FETCH, size_of, without_foreign
from airflow_provider_lakecommit.control.control_log import ControlRecord, checked, control_record
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.exceptions import ControlTopicError, LakecommitError
from airflow_provider_lakecommit.kafka import CORRUPTION, READER_SETTINGS, STAYS_SECONDS, LastError, made, unreachable
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.signing import SigningKeys

AHEAD = 2000
"""Records of one partition that are held while others are waited for."""
AHEAD_BYTES = 4 << 20
"""Of one partition, likewise."""
AT_ONCE = 64
POLL_SECONDS = 0.1
PROBE_SECONDS = 2.0

_SETTINGS = {**READER_SETTINGS, "group.id": "lakecommit-watches-without-group", "fetch.wait.max.ms": 250, **FETCH}
# More than mostly comes in fetch.wait.max.ms, unless there is a log to be read. A broker never has more for one
# partition than a fetch may bring of it, and would wait each time if it were asked for that.
_GATHER: dict[str, Any] = {"fetch.min.bytes": FETCH["fetch.message.max.bytes"] // 2}


class ControlWatch:
    """A watch on one control topic, for one thread at a time; a context manager.

    :param since: begin with records of that age, in seconds; by default at the beginning of the log
    :param newest: begin that many offsets before the end, instead, in equal shares of the partitions
    :param timeout: seconds for the brokers to answer the first requests
    :param gather: let brokers batch records for up to a quarter of a second, which halves the cost
    :raises ControlTopicError: the topic does not exist or cannot be described
    """

    def __init__(
        self,
        topic: str,
        config: Mapping[str, Any],
        *,
        since: float | None = None,
        newest: int | None = None,
        timeout: float = 30.0,
        gather: bool = False,
    ) -> None:
        self.topic = topic
        self._config = config
        self._keys = SigningKeys.of(config)
        with ControlTopic(topic, config, timeout) as control:
            self._info = control.describe()
        self._partitions = range(self._info.partitions)
        self._heard = LastError(config.get("error_cb"))
        self._consumer = made(Consumer, config, self._heard, **_SETTINGS, **(_GATHER if gather else {}))
        try:
            self._consumer.assign(self._start_positions(since, newest, timeout))
        except KafkaException as e:
            self._consumer.close()
            raise ControlTopicError("LC2330", f"reading control topic {topic!r}: {redacted(str(e), config)}") from None
        self._queues: dict[int, deque[ControlRecord]] = {p: deque() for p in self._partitions}
        self._queued_bytes: Counter[int] = Counter()
        self._at_end: set[int] = set()
        self._reached: set[int] = set()
        self._paused: set[int] = set()
        self._probed = time.monotonic()
        self._corrupt: dict[int, tuple[int, float]] = {}
        self._strides: dict[int, int] = {}

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """The current problem with the brokers, or ``None``."""
        cause = self._heard.cause
        return None if cause is None else redacted(cause, self._config)

    @property
    def caught_up(self) -> bool:
        """Return True if all records that existed at the first read were returned."""
        return len(self._reached) == len(self._partitions) and not any(self._queues.values())

    def away(self, seconds: float) -> LakecommitError:
        doing = f"reading control topic {self.topic!r}"
        return unreachable(ControlTopicError, doing, self._config, self._heard, seconds)

    def poll(self, seconds: float = POLL_SECONDS) -> tuple[ControlRecord, ...]:
        """Return new records, after at most that time."""
        deadline = time.monotonic() + seconds
        out: list[ControlRecord] = []
        while True:
            left = max(0.0, deadline - time.monotonic())
            messages = self._consumer.consume(AT_ONCE, min(left, POLL_SECONDS))
            for message in messages:
                self._take(message)
            self._step_on()
            out.extend(self._merged())
            if out or left == 0 or (messages and self.caught_up):
                break
        self._probe()
        return tuple(out)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _start_positions(self, since: float | None, newest: int | None, timeout: float) -> list[TopicPartition]:
        positions = [TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in self._partitions]
        if newest is not None:
            for position in positions:
                low, high = self._consumer.get_watermark_offsets(position, timeout)
                position.offset = max(low, high - newest // len(positions))
        elif since is not None:
            moment = int((time.time() - since) * 1000)
            moments = [TopicPartition(self.topic, p, moment) for p in self._partitions]
            positions = list(self._consumer.offsets_for_times(moments, timeout))
        return positions

    def _take(self, message: Message) -> None:
        error, partition = message.error(), message.partition() or 0
        if error is None:
            self._heard.forget()
            queue = self._queues[partition]
            queue.append(without_foreign(checked(control_record(message), self._keys, self.topic, self._info)))
            self._queued_bytes[partition] += size_of(queue[-1])
            self._at_end.discard(partition)
            if queue[-1].offset > self._corrupt.get(partition, (queue[-1].offset, 0.0))[0]:
                self._readable_again(partition)
            if self._is_ahead(partition, 1) and partition not in self._paused:
                self._consumer.pause([TopicPartition(self.topic, partition)])
                self._paused.add(partition)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._heard.forget()
            self._readable_again(partition)
            self._at_end.add(partition)
            self._reached.add(partition)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            if partition in self._corrupt:
                # Behind a damaged batch the client asks for an offset that it made of wrong bytes.
                self._step(partition)
            else:
                # Retention ran past the watch: what is left is what there is.
                self._go_to(partition, OFFSET_BEGINNING)
        elif error.code() in CORRUPTION:
            self._corrupt.setdefault(partition, (message.offset() or 0, time.monotonic()))
        else:
            self._heard(error)

    def _step_on(self) -> None:
        """The client skips a batch with a wrong checksum, but stays at other damage, which it reports before the
        records in front of it: it is moved on, by twice as many offsets each time. So a large batch costs seconds, and
        at most as many records behind it are missed, which the ledger has.
        """
        for partition, (_, since) in list(self._corrupt.items()):
            if time.monotonic() - since > STAYS_SECONDS:
                self._step(partition)

    def _step(self, partition: int) -> None:
        [position] = self._consumer.position([TopicPartition(self.topic, partition)])
        stride = self._strides.get(partition, 1)
        offset = max(self._corrupt[partition][0], position.offset) + stride
        self._strides[partition] = 2 * stride
        self._corrupt[partition] = offset, time.monotonic()
        self._go_to(partition, offset)

    def _readable_again(self, partition: int) -> None:
        self._corrupt.pop(partition, None)
        self._strides.pop(partition, None)

    def _go_to(self, partition: int, offset: int) -> None:
        """Move on, also if the client has given up and cannot seek any more."""
        position = TopicPartition(self.topic, partition, offset)
        self._consumer.incremental_unassign([position])
        self._consumer.incremental_assign([position])
        if partition in self._paused:
            # A pause outlives the assignment.
            self._consumer.resume([position])
            self._paused.discard(partition)

    def _merged(self) -> list[ControlRecord]:
        """Yield the oldest records, as long as no partition could still have an older one."""
        out: list[ControlRecord] = []
        while True:
            if any(not queue and p not in self._at_end for p, queue in self._queues.items()):
                break
            ready = [(queue[0].timestamp, p) for p, queue in self._queues.items() if queue]
            if not ready:
                break
            oldest = min(ready)[1]
            out.append(self._queues[oldest].popleft())
            self._queued_bytes[oldest] -= size_of(out[-1])
        for p in [p for p in self._paused if not self._is_ahead(p, 2)]:
            self._consumer.resume([TopicPartition(self.topic, p)])
            self._paused.discard(p)
        return out

    def _is_ahead(self, partition: int, part: int) -> bool:
        return len(self._queues[partition]) * part >= AHEAD or self._queued_bytes[partition] * part >= AHEAD_BYTES

    def _probe(self) -> None:
        """A quiet topic does not show that the brokers are back."""
        now = time.monotonic()
        if self._heard.cause is None or now - self._probed < PROBE_SECONDS:
            return
        self._probed = now
        try:
            self._consumer.list_topics(self.topic, timeout=POLL_SECONDS)
        except KafkaException:
            return
        self._heard.forget()
