# SPDX-License-Identifier: Apache-2.0
"""Damage in a partition: records that the brokers hand out, and that are not what was written.

Contract: every batch's checksum is compared (``check.crcs``). A batch that fails it, or cannot be decompressed, is
passed over by the client with no more than an event, so an event of
:data:`~airflow_provider_lakecommit.kafka.damage.DAMAGE` ends the reading of its span:
nothing behind it may be taken for a gap. :meth:`Damage.found` is where the damage ends: at the next offset from which
the partition can be read, asked of the brokers by trying; a batch is damaged as a whole,
because nobody can tell where in it.

Failure story: a batch that was damaged on its way and is whole when it is asked for again, is no damage:
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`, to be read again. The same way brokers that
answer but give nothing at some offset are told from brokers that do not answer.
"""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import Consumer

from airflow_provider_lakecommit.core import RESET_BLOCKED, OffsetRange, Span
from airflow_provider_lakecommit.exceptions import SourceDamagedError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import first_readable

__all__ = ["Damage"]


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
                "LC5002",
                f"{self._span}: what came at offset {position} was damaged on its way ({said}), and is whole now; the "
                "span is read again",
            )
        lost = replace(self._span, range=OffsetRange(position, end))
        return SourceDamagedError(
            "LC5003",
            f"damage: {lost.partition}, offsets {position} to {end - 1} are not what was written ({said}): restore "
            "this partition from a replica or a copy that is whole, and they are read again; if there is none, give "
            f"them up when they are blocked: `{RESET_BLOCKED} --skip --whole --range "
            f"{lost.partition.topic}:{lost.partition.partition}={position}-{end}`",
            (lost,),
        )

    def end(self, position: int) -> int:
        """The first offset from which something can be read, at or after a position."""
        p = self._span.partition
        return first_readable(self._consumer, p.topic, p.partition, position, self._span.range.end)
