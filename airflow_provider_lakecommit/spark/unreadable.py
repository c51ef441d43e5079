# SPDX-License-Identifier: Apache-2.0
"""Why a span cannot be read: the client's last error, and the brokers' answers about the partition.

Contract: a reason names the span, and what to do. Offsets removed by retention, a truncated or recreated log and an
answer too large for the client are :class:`~airflow_provider_lakecommit.exceptions.SourceError`; brokers that do not
return a partition's end are :class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`; brokers that
return it but nothing in between mean corruption.

Of corruption, records that differ from what was written, every batch's checksum is compared (``check.crcs``). The
client skips a batch that fails it, or cannot be decompressed, and only sends an event, so an event of
:data:`~airflow_provider_lakecommit.kafka.partition_tail.CORRUPTION` ends the reading of its span: nothing after it may
count as a gap. :func:`corruption` finds its end, the next readable offset, by trial reads; a batch is corrupt as a
whole.

Failure story: a batch that was corrupted in transit and is intact when read again is a
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`, to be read again. The same check separates
brokers that answer but give nothing at some offset from brokers that do not answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from airflow_provider_lakecommit.core import RESET_BLOCKED, RESET_OFFSETS, OffsetRange, Span
from airflow_provider_lakecommit.exceptions import SourceCorruptError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import LastError, first_readable, is_truncation
from airflow_provider_lakecommit.spark.chunks import PartitionReading

# librdkafka reports a refused answer only by this text, drops the connection and retries for ever.
TOO_LARGE = "increase receive.message.max.bytes"
RECEIVE_BYTES = "receive.message.max.bytes"
SHOWN = 4
ENDS_SECONDS = 5.0
"""How long brokers that return nothing may take to report a partition's end."""


class Unreadable(LastError):
    """The reasons of one reader; also its client's error callback."""

    consumer: Consumer

    def __init__(self, check_seconds: float, read_timeout: float) -> None:
        super().__init__()
        self._check_seconds = check_seconds
        self._read_timeout = read_timeout
        self.too_large: str | None = None
        self._waiting = False

    def __call__(self, error: KafkaError) -> None:
        if TOO_LARGE in error.str():
            self.too_large = error.str()
        super().__call__(error)

    def throttled(self, _event: object) -> None:
        """Handle the client's event for a quota that delays it."""
        self._waiting = True

    def out_of_range(self, reading: PartitionReading, error: KafkaError) -> SourceError:
        if is_truncation(error):
            return SourceError(
                "LC5052",
                f"{reading.span} cannot be read: the partition's log differs from the one read up to "
                f"{reading.position} ({error.str()}); the next plan names the offset and how to continue",
            )
        low, stable = self.watermarks(reading)
        if reading.position < low:
            last = min(low, reading.span.range.end) - 1
            return SourceError(
                "LC5053",
                f"{reading.span}: offsets {reading.position} to {last} are no longer in the topic, which now begins at "
                f"{low} (retention); give them up with `{RESET_BLOCKED} SPEC --skip --whole --range "
                f"{reading.span.partition.topic}:{reading.span.partition.partition}={reading.position}-{last + 1}` "
                f"once they are blocked, or restart with `{RESET_OFFSETS} SPEC --from earliest`",
                (Span(reading.span.partition, OffsetRange(reading.position, last + 1)),),
            )
        return SourceError(
            "LC5054",
            f"{reading.span} cannot be read at {reading.position}: the partition holds [{low}, {stable}) "
            f"({error.str()}); it was truncated or recreated; restart the landing with `{RESET_OFFSETS} SPEC --from "
            "earliest`",
        )

    def watermarks(self, reading: PartitionReading, seconds: float | None = None) -> tuple[int, int]:
        partition, seconds = reading.span.partition, seconds or self._check_seconds
        try:
            marks = self.consumer.get_watermark_offsets(TopicPartition(partition.topic, partition.partition), seconds)
        except KafkaException as e:
            raise SourceUnavailableError("LC5055", f"{reading.span}: cannot read the ends of the partition: {e}") from e
        if marks is None:
            raise SourceUnavailableError(
                "LC5056", f"{reading.span}: the brokers did not report the partition's ends in {seconds:.0f} s"
            )
        return marks

    def nothing_comes(self, reading: PartitionReading) -> Exception:
        """Return the error for a position without data: brokers that report the partition's end are available."""
        if (found := self._not_given(reading, self.consumer)) is not None:
            return found
        return SourceUnavailableError(
            "LC5057",
            f"{reading.span}: no data for {self._read_timeout:.0f} s at offset {reading.position} "
            f"({self.cause or 'no error was reported'}); the span is read again when the brokers answer",
        )

    def withheld(self, reading: PartitionReading, asking: Consumer) -> SourceCorruptError | None:
        """Return the corruption at a position without data for a while, unless a quota explains it. Data that a new
        client receives was only late.

        :param asking: that client
        """
        if self._waiting:
            return None
        found = self._not_given(reading, asking)
        return found if isinstance(found, SourceCorruptError) else None

    def _not_given(self, reading: PartitionReading, asking: Consumer) -> Exception | None:
        """Return why brokers that answer send nothing; ``None`` if they do not answer, or have nothing there."""
        try:
            low, stable = self.watermarks(reading, min(self._check_seconds, ENDS_SECONDS))
        except SourceUnavailableError:
            return None
        if not low <= reading.position < stable:
            return None
        why = f"{self.cause or 'no error was reported'}: the brokers answer, but return nothing at this offset"
        return corruption(asking, reading.span, reading.position, why)

    def larger_than_taken(self, readings: Collection[PartitionReading]) -> SourceError:
        positions = [f"{r.span.partition}@{r.position}" for r in readings]
        rests = [(r.span, r.position, _readable_from(self.consumer, r.span, r.position)) for r in readings]
        shown = ", ".join(positions[:SHOWN]) + (f" and {len(positions) - SHOWN} more" if len(positions) > SHOWN else "")
        where = f"the record at {shown}" if len(positions) == 1 else f"one of the records at {shown}"
        return SourceError(
            "LC5058",
            f"{where}, together with its compressed batch, exceeds the limit {RECEIVE_BYTES} of a broker's answer "
            f"({self.too_large}): raise {RECEIVE_BYTES} in the Kafka settings of the landing",
            # The unread rest of each: the consumer reads nothing else any more.
            tuple(Span(s.partition, OffsetRange(start, end)) for s, start, end in rests if start < end),
        )


def corruption(consumer: Consumer, span: Span, position: int, cause: str) -> SourceError | SourceUnavailableError:
    """Return the error for corruption at a position of a span.

    :param consumer: has finished reading
    :param cause: message of the client or the broker
    """
    end = _readable_from(consumer, span, position)
    if end <= position:
        return SourceUnavailableError(
            "LC5002",
            f"{span}: the data at offset {position} was corrupted in transit ({cause}) and is intact now; the span is "
            "read again",
        )
    lost = replace(span, range=OffsetRange(position, end))
    return SourceCorruptError(
        "LC5003",
        f"{lost.partition}: offsets {position} to {end - 1} are corrupt ({cause}): restore this "
        "partition from an intact replica or copy, and they are read again; if there is none, give "
        f"them up once they are blocked: `{RESET_BLOCKED} SPEC --skip --whole --range "
        f"{lost.partition.topic}:{lost.partition.partition}={position}-{end}`",
        (lost,),
    )


def _readable_from(consumer: Consumer, span: Span, position: int) -> int:
    p = span.partition
    return first_readable(consumer, p.topic, p.partition, position, span.range.end)
