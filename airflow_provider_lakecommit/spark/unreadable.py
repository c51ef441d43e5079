# SPDX-License-Identifier: Apache-2.0
"""Why a span cannot be read: what the client said last, and what the brokers tell of the partition when they are asked.

Contract: a reason names the span, and what to do. Offsets that retention removed, a log that was cut or made anew and
an answer too large for the client are :class:`~airflow_provider_lakecommit.exceptions.SourceError`; brokers that do not
tell where a partition ends are :class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`; those that tell
it and give nothing in between have damage (:mod:`~airflow_provider_lakecommit.spark.damage`).
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from airflow_provider_lakecommit.core import RESET_BLOCKED, RESET_OFFSETS, OffsetRange, Span
from airflow_provider_lakecommit.exceptions import SourceDamagedError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import LastError, is_truncation
from airflow_provider_lakecommit.spark.damage import Damage
from airflow_provider_lakecommit.spark.positions import PartitionReading

__all__ = ["Unreadable"]

# librdkafka tells of an answer that it does not take by this text only, drops the connection and asks again, for ever.
TOO_LARGE = "increase receive.message.max.bytes"
RECEIVE_BYTES = "receive.message.max.bytes"
SHOWN = 4
ENDS_SECONDS = 5.0
"""How long brokers that give nothing may take to tell where a partition ends; those that are away do not."""


class Unreadable(LastError):
    """The reasons of one reader, also its client's error callback."""

    consumer: Consumer

    def __init__(self, ask_seconds: float, read_timeout: float) -> None:
        super().__init__()
        self._ask_seconds = ask_seconds
        self._read_timeout = read_timeout
        self.too_large: str | None = None
        self._held_back = False

    def __call__(self, error: KafkaError) -> None:
        if TOO_LARGE in error.str():
            self.too_large = error.str()
        super().__call__(error)

    def throttled(self, _event: object) -> None:
        """The client's callback for a broker that holds it back by a quota."""
        self._held_back = True

    def out_of_range(self, reading: PartitionReading, error: KafkaError) -> SourceError:
        if is_truncation(error):
            return SourceError(
                "LC5052",
                f"{reading.span} cannot be read: the partition's log is another one than that which was read up to "
                f"{reading.position} ({error.str()}); the next plan says from where on, and how to go on",
            )
        low, stable = self.watermarks(reading)
        if reading.position < low:
            last = min(low, reading.span.range.end) - 1
            return SourceError(
                "LC5053",
                f"{reading.span}: offsets {reading.position} to {last} are no longer in the topic, which begins at "
                f"{low} now (retention); give them up with `{RESET_BLOCKED} --skip --whole --range "
                f"{reading.span.partition.topic}:{reading.span.partition.partition}={reading.position}-{last + 1}` "
                f"when they are blocked, or start anew with `{RESET_OFFSETS} SPEC --from earliest`",
                (Span(reading.span.partition, OffsetRange(reading.position, last + 1)),),
            )
        return SourceError(
            "LC5054",
            f"{reading.span} cannot be read at {reading.position}: the partition holds [{low}, {stable}) "
            f"({error.str()}); it was truncated or made anew; start the landing anew with `{RESET_OFFSETS} SPEC --from "
            "earliest`",
        )

    def watermarks(self, reading: PartitionReading, seconds: float | None = None) -> tuple[int, int]:
        partition, seconds = reading.span.partition, seconds or self._ask_seconds
        try:
            marks = self.consumer.get_watermark_offsets(TopicPartition(partition.topic, partition.partition), seconds)
        except KafkaException as e:
            raise SourceUnavailableError(
                "LC5055", f"{reading.span}: the ends of the partition could not be asked for: {e}"
            ) from e
        if marks is None:
            raise SourceUnavailableError(
                "LC5056", f"{reading.span}: the ends of the partition did not come in {seconds:.0f} s"
            )
        return marks

    def nothing_comes(self, reading: PartitionReading) -> Exception:
        """Brokers that tell where the partition ends are not away: they cannot give what lies at the position."""
        return self._not_given(reading, self.consumer) or self._unavailable(reading)

    def withheld(self, reading: PartitionReading, asking: Consumer) -> SourceDamagedError | None:
        """The damage at a position at which nothing has come for a while, unless a quota explains that. What comes to a
        client that asks anew is only late.

        :param asking: that client
        """
        if self._held_back:
            return None
        found = self._not_given(reading, asking)
        return found if isinstance(found, SourceDamagedError) else None

    def _not_given(self, reading: PartitionReading, asking: Consumer) -> Exception | None:
        """Why nothing comes from brokers that answer; ``None``: they do not, or have nothing there."""
        try:
            low, stable = self.watermarks(reading, min(self._ask_seconds, ENDS_SECONDS))
        except SourceUnavailableError:
            return None
        if not low <= reading.position < stable:
            return None
        why = f"{self.cause or 'no error was reported'}: the brokers answer, and give nothing at this offset"
        return Damage(asking, reading.span).found(reading.position, why)

    def _unavailable(self, reading: PartitionReading) -> SourceUnavailableError:
        why = self.cause or "no error was reported"
        return SourceUnavailableError(
            "LC5057",
            f"{reading.span}: nothing arrived for {self._read_timeout:.0f} s at offset {reading.position} ({why}); "
            "the span is read again when the brokers answer",
        )

    def larger_than_taken(self, readings: Collection[PartitionReading]) -> SourceError:
        places = [f"{r.span.partition}@{r.position}" for r in readings]
        shown = ", ".join(places[:SHOWN]) + (f" and {len(places) - SHOWN} more" if len(places) > SHOWN else "")
        where = f"the record at {shown}" if len(places) == 1 else f"one of the records at {shown}"
        return SourceError(
            "LC5058",
            f"{where}, with those compressed together with it, is larger than {RECEIVE_BYTES} lets a broker's answer "
            f"be ({self.too_large}): set {RECEIVE_BYTES} among the Kafka settings of the landing to more than that",
            self._not_readable(readings),
        )

    def _not_readable(self, readings: Collection[PartitionReading]) -> tuple[Span, ...]:
        """From where each of them is, what cannot be read. The consumer reads nothing else any more."""
        ends = [(r.span, r.position, Damage(self.consumer, r.span).end(r.position)) for r in readings]
        return tuple(Span(s.partition, OffsetRange(start, end)) for s, start, end in ends if start < end)
