# SPDX-License-Identifier: Apache-2.0
"""Records as they leave the reader. Spans share chunks, so that short spans cost no more per record than long ones.

Contract: the runs of a chunk cover its records without a gap, in order; the records of a run belong to one span, in
order of offsets, including tombstones. :func:`bounded` cuts a chunk so that each part holds at most the given bytes of
values, or a single record. :func:`narrowest` finds the record that makes a chunk fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Message


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
        messages=chunk.messages[start:end],
        values=chunk.values[start:end],
        runs=[r for r in runs if r.start < r.end],
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
