# SPDX-License-Identifier: Apache-2.0
"""The progress of each span of a slice, and the polled records that belong to it.

Contract: a position only increases, up to the end of its span. Records of one partition come in order of offsets, so a
span's records are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from confluent_kafka import Message

from airflow_provider_lakecommit.core import ReadPosition, Span
from airflow_provider_lakecommit.spark.chunks import Run

Partition = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class PartitionReading:
    """The progress of a span. ``observed`` is the end of its newest record with a known leader epoch."""

    index: int
    span: Span
    position: int
    observed: ReadPosition | None = None

    @property
    def done(self) -> bool:
        return self.position >= self.span.range.end

    def take(self, messages: Sequence[Message], start: int, end: int) -> Run | None:
        """Return the records among ``messages[start:end]``, all of this partition, that belong to this span; move the
        position past all of them.
        """
        due, limit = self.position, self.span.range.end
        if offset_of(messages[start]) < due:
            start = bisect_left(messages, due, start, end, key=offset_of)
        if start == end:
            return None
        self.position = min(offset_of(messages[end - 1]) + 1, limit)
        if offset_of(messages[end - 1]) >= limit:
            end = bisect_left(messages, limit, start, end, key=offset_of)
        if start == end:
            return None
        self.see(offset_of(messages[end - 1]) + 1, messages[end - 1].leader_epoch())
        return Run(self.index, start, end)

    def see(self, offset: int, leader_epoch: int | None) -> None:
        """Note a record or transaction marker that ends at this offset; those after the span are ignored."""
        known = self.span.range.start if self.observed is None else self.observed.offset
        if leader_epoch is not None and leader_epoch >= 0 and known < offset <= self.span.range.end:
            self.observed = ReadPosition(offset=offset, leader_epoch=leader_epoch)


def position_behind(span: Span, observed: ReadPosition | None, leader_epoch: int | None) -> ReadPosition | None:
    """Return the position at the end of a span that was read to its end; ``observed``, if no later one is known.

    Markers and aborted records of transactions after the last record have no epoch. A log that loses them and grows
    again has new records there, so the position is at the end, under the epoch of the leader that planned it. A record
    of a later epoch means that the log had changed by then.

    :param observed: end of the newest record with a known epoch
    :param leader_epoch: epoch of the leader that reported the end
    """
    end = span.range.end
    if leader_epoch is None or (
        observed is not None and (observed.offset >= end or observed.leader_epoch > leader_epoch)
    ):
        return observed
    return ReadPosition(offset=end, leader_epoch=leader_epoch)


def rounds(spans: Sequence[Span]) -> Iterator[list[PartitionReading]]:
    """Yield spans that can be read together: the n-th of each partition."""
    waiting: dict[Partition, list[PartitionReading]] = {}
    for i, span in enumerate(spans):
        if span.range:
            reading = PartitionReading(index=i, span=span, position=span.range.start)
            waiting.setdefault((span.partition.topic, span.partition.partition), []).append(reading)
    while waiting:
        yield [readings.pop(0) for readings in waiting.values()]
        waiting = {p: readings for p, readings in waiting.items() if readings}


def stretches(messages: Sequence[Message], *, one_topic: bool) -> Iterator[tuple[Partition, int, int]]:
    """Yield the stretches of consecutive records of one partition."""
    if not messages:
        return
    keys: Sequence[Any] = [m.partition() if one_topic else partition_of(m) for m in messages]
    starts = [0, *(i for i, (a, b) in enumerate(pairwise(keys), 1) if a != b), len(messages)]
    for start, end in pairwise(starts):
        yield partition_of(messages[start]), start, end


def partition_of(message: Message) -> Partition:
    return str(message.topic()), int(message.partition() or 0)


def offset_of(message: Message) -> int:
    return int(message.offset() or 0)
