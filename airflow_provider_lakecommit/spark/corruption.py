# SPDX-License-Identifier: Apache-2.0
"""Corruption in a partition: records that differ from what was written.

Contract: every batch's checksum is compared (``check.crcs``). The client skips a batch that fails it, or cannot be
decompressed, and only sends an event, so an event of :data:`~airflow_provider_lakecommit.kafka.corruption.CORRUPTION`
ends the reading of its span: nothing after it may count as a gap. :meth:`Damage.found` finds the end of the corruption,
the next readable offset, by trial reads; a batch is corrupt as a whole.

Failure story: a batch that was corrupted in transit and is intact when read again is a
:class:`~airflow_provider_lakecommit.exceptions.SourceUnavailableError`, to be read again. The same check separates
brokers that answer but give nothing at some offset from brokers that do not answer.
"""

from __future__ import annotations

from dataclasses import replace

from confluent_kafka import Consumer

from airflow_provider_lakecommit.core import RESET_BLOCKED, OffsetRange, Span
from airflow_provider_lakecommit.exceptions import SourceCorruptError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import first_readable


class Corruption:
    """Finds the end of corruption with a consumer that has finished reading."""

    def __init__(self, consumer: Consumer, span: Span) -> None:
        self._consumer = consumer
        self._span = span

    def found(self, position: int, cause: str) -> SourceError | SourceUnavailableError:
        """Return the error for corruption at a position.

        :param cause: message of the client or the broker
        """
        end = self.end(position)
        if end <= position:
            return SourceUnavailableError(
                "LC5002",
                f"{self._span}: the data at offset {position} was corrupted in transit ({cause}) and is intact now; "
                "the span is read again",
            )
        lost = replace(self._span, range=OffsetRange(position, end))
        return SourceCorruptError(
            "LC5003",
            f"{lost.partition}: offsets {position} to {end - 1} are corrupt ({cause}): restore this "
            "partition from an intact replica or copy, and they are read again; if there is none, give "
            f"them up once they are blocked: `{RESET_BLOCKED} SPEC --skip --whole --range "
            f"{lost.partition.topic}:{lost.partition.partition}={position}-{end}`",
            (lost,),
        )

    def end(self, position: int) -> int:
        """Return the first readable offset at or after a position."""
        p = self._span.partition
        return first_readable(self._consumer, p.topic, p.partition, position, self._span.range.end)
