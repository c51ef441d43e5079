# SPDX-License-Identifier: Apache-2.0
"""Records as they leave the reader, and the progress of each span of a slice. Spans share chunks, so that short spans
cost no more per record than long ones.

Contract: the runs of a chunk cover its records without a gap, in order; the records of a run belong to one span, in
order of offsets, including tombstones. :func:`bounded` cuts a chunk so that each part holds at most the given bytes of
values, or a single record. :func:`narrowest` finds the record that makes a chunk fail.

A position only increases, up to the end of its span. Records of one partition come in order of offsets, so a span's
records among the polled ones are found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Message

from airflow_provider_lakecommit.core import ReadPosition, Span


class Run(NamedTuple):
    """Positions ``[start, end)`` of a chunk hold records of the ``span``-th span."""

    span: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Records, their values (``None``: a tombstone), and their spans."""

    messages: Sequence[Message]
    values: Sequence[bytes | None]
    runs: Sequence[Run]

    @cached_property
    def bytes(self) -> int:
        """Return the bytes of the values."""
        return sum(map(len, filter(None, self.values)))


def chunk_of(messages: Sequence[Message], runs: Sequence[Run]) -> Chunk:
    """Return the records of the runs; other polled records belong to no span."""
    if sum(r.end - r.start for r in runs) < len(messages):
        messages = [m for r in runs for m in messages[r.start : r.end]]
        runs, moved = [], runs
        for r in moved:
            start = runs[-1].end if runs else 0
            runs.append(Run(r.span, start, start + r.end - r.start))
    values: list[bytes | None] = [m.value() for m in messages]
    return Chunk(messages=messages, values=values, runs=runs)


def bounded(chunk: Chunk, most_bytes: int) -> Iterator[Chunk]:
    """Yield the chunk in parts of at most so many bytes."""
    if chunk.bytes <= most_bytes:
        if chunk.messages:
            yield chunk
        return
    cuts, size_so_far = [0], 0
    for i, value in enumerate(chunk.values):
        size = len(value or b"")
        if size_so_far and size_so_far + size > most_bytes:
            cuts.append(i)
            size_so_far = 0
        size_so_far += size
    for start, end in pairwise([*cuts, len(chunk.messages)]):
        yield part_of(chunk, start, end)


def part_of(chunk: Chunk, start: int, end: int) -> Chunk:
    """Return the records at positions ``[start, end)``."""
    runs = (Run(r.span, max(r.start, start) - start, min(r.end, end) - start) for r in chunk.runs)
    return Chunk(
        messages=chunk.messages[start:end], values=chunk.values[start:end], runs=[r for r in runs if r.start < r.end]
    )


def narrowest(chunk: Chunk, fails: Callable[[Chunk], bool]) -> Chunk:
    """Return the first smallest failing part of a chunk, by halving; the whole chunk if no half fails."""
    while (many := len(chunk.messages)) > 1:
        halves = (part_of(chunk, 0, many // 2), part_of(chunk, many // 2, many))
        half = next((part for part in halves if fails(part)), None)
        if half is None:
            break
        chunk = half
    return chunk


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
