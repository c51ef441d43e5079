# SPDX-License-Identifier: Apache-2.0
"""Damage in a partition: records that the brokers hand out, and that are not what was written.

Contract: every batch's checksum is compared (``check.crcs``). A batch that fails it, or cannot be decompressed, is
passed over by the client with no more than an event, so an event of
:data:`~airflow_provider_lakecommit.kafka.damage.DAMAGE` ends the reading of its span:
nothing behind it may be taken for a gap. :meth:`Damage.found` is where the damage ends: at the next offset from which
the partition can be read, asked of the brokers by trying (:func:`next_readable`); a batch is damaged as a whole,
because nobody can tell where in it.

Failure story: a batch that was damaged on its way and is whole when it is asked for again, is no damage:
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`, to be read again. The same way brokers that
answer but give nothing at some offset are told from brokers that do not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, TopicPartition

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.exceptions import SourceDamagedError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.damage import DAMAGE
from airflow_provider_lakecommit.reset_commands import RESET_BLOCKED
from airflow_provider_lakecommit.spark.positions import offset_of

__all__ = ["Damage", "next_readable"]

PROBE_SECONDS = 3.0
EVENTS = 3
"""So often the client tells of the same batch before it is believed that nothing else comes."""


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


class Damage:
    """Looks for the end of damage with a consumer whose reading is over."""

    def __init__(self, consumer: Consumer, span: Span) -> None:
        self._consumer = consumer
        self._span = span

    def found(self, position: int, said: str) -> SourceError | SourceUnavailableError:
        """The error for damage at a position.

        :param said: by the client or the broker
        """
        end = self.end(position)
        if end <= position:
            return SourceUnavailableError(
                f"{self._span}: what came at offset {position} was damaged on its way ({said}), and is whole now; the "
                "span is read again"
            )
        lost = replace(self._span, range=OffsetRange(position, end))
        return SourceDamagedError(
            f"damage: {lost.partition}, offsets {position} to {end - 1} are not what was written ({said}): restore "
            "this partition from a replica or a copy that is whole, and they are read again; if there is none, give "
            f"them up when they are blocked: `{RESET_BLOCKED} --skip --whole --range "
            f"{lost.partition.topic}:{lost.partition.partition}={position}-{end}`",
            (lost,),
        )

    def end(self, position: int) -> int:
        """The first offset from which something can be read, at or after a position."""
        return next_readable(self._readable, position, self._span.range.end)

    def _readable(self, offset: int) -> int | None:
        """The first offset that can be read from this one on; ``None``, where nothing comes."""
        p, said = self._span.partition, 0
        self._consumer.assign([TopicPartition(p.topic, p.partition, offset)])
        deadline = time.monotonic() + PROBE_SECONDS
        while said < EVENTS and time.monotonic() < deadline:
            for message in self._consumer.consume(1, 0.1):
                if (error := message.error()) is None or error.code() == KafkaError._PARTITION_EOF:
                    return offset_of(message)
                # Behind a damaged batch the client asks for an offset that it made of wrong bytes.
                said += EVENTS if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code() in DAMAGE
            (at,) = self._consumer.position([TopicPartition(p.topic, p.partition)])
            if at.offset > offset:
                return int(at.offset)
        return None
