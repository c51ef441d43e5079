# SPDX-License-Identifier: Apache-2.0
"""The items of arrays and maps, of all records in step.

Contract: :func:`each_item` yields cursors at the first items of all that have one, then at the second, and so on, with
the cursors that they belong to; numbers and other items with fixed positions come all at once, in pieces of
:data:`PIECE`. The caller reads the items. Arrays come in blocks: a count, negative if a length follows, and a zero
count at the end.

A step costs as much for one record as for a thousand. So if few records have many items left, or blocks are many and
small, the items of these records are found by a walk over their bytes (:data:`Walk`), and read at once; an item that
cannot be walked over stands for the rest of its array, and its reader finds the error. The choice depends on
neighboring records; values and failing records do not, but of several errors in a record another one may come first. So
a block may be read ``in_step``: then only arrays of :data:`LONG` items and more are walked over.

Failure story: a count that exceeds the record fails it before anything is allocated; of items without bytes, a record
may have :data:`~airflow_provider_lakecommit.formats.avro.block.MOST_EMPTY` in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from airflow_provider_lakecommit.formats.avro.block import Bools, Cursor, Ints

SMALL = 1024
"""Most items of a block that is walked over together with the previous one."""
Walk = Callable[[memoryview, int, int], int]
"""From the position of a value to the next one, within an end."""
_FIXED = {"boolean": 1, "float": 4, "double": 8, "null": 0}
LONG = 4096
STEP = 100
"""Items that can be walked over in the time of a step."""
PIECE = 1 << 18
"""Items that are read at once if their type fixes their positions: each takes some 50 bytes meanwhile."""


def each_item(
    cursor: Cursor, active: Bools | None, least: int, path: str, stride: int | None = None, walk: Walk | None = None
) -> Iterator[tuple[Cursor, Ints]]:
    """Yield cursors at items, and the positions of the cursors that they belong to.

    :param least: fewest bytes of an item
    :param stride: as in :attr:`~airflow_provider_lakecommit.formats.avro.writer.WriterType.stride`
    :param walk: walks over an item
    """
    # Items without bytes are counted block by block.
    walk = walk if least else None
    alive = cursor.live(active)
    left = np.arange(len(cursor)) if alive is None else np.flatnonzero(alive)
    while len(left):
        counts = _counts(cursor, left, least, path)
        # Those with the most items first: all that still have one are then at the front.
        order = np.argsort(-counts, kind="stable")
        left, counts = left[order], counts[order]
        inner = cursor.some(left)
        if stride is not None and (walk is None or cursor.block.in_step or int(counts.sum()) > STEP):
            yield from _all_items(inner, left, counts, stride, path)
        else:
            long = 0 if walk is None else _walks(counts, cursor.block.in_step)
            if long and walk is not None:
                yield _walked(inner, left[:long], counts[:long], walk)
            for n in range(int(counts[long]) if long < len(counts) else 0):
                many = int(np.searchsorted(-counts, -n, side="left"))
                items = Cursor(inner.block, inner.at[long:many], inner.ends[long:many], inner.records[long:many])
                yield items, left[long:many]
        cursor.put(left, inner)
        again = counts > 0
        if (alive := cursor.some(left).live(None)) is not None:
            again &= alive
        left = np.sort(left[again])


def _walks(counts: Ints, in_step: bool) -> int:
    """Return how many of the first cursors to walk over, because the saved steps cost more; ``counts`` fall."""
    if in_step:
        return int(np.searchsorted(-counts, -LONG, side="right"))
    saved = (counts[0] - np.append(counts[1:], 0)) * STEP - np.cumsum(counts)
    best = int(np.argmax(saved))
    return best + 1 if saved[best] > 0 else 0


def _walked(inner: Cursor, left: Ints, counts: Ints, walk: Walk) -> tuple[Cursor, Ints]:
    """Return the same for the first cursors by a walk, including small blocks that follow."""
    octets, starts, found = inner.block.octets.data, list[int](), np.zeros(len(left), np.int64)
    inner.block.walked[inner.records[: len(left)]] = True
    for n, many in enumerate(counts.tolist()):
        before = len(starts)
        inner.at[n] = _item_starts(walk, octets, int(inner.at[n]), int(inner.ends[n]), many, starts)
        found[n] = len(starts) - before
    owners = np.repeat(np.arange(len(left)), found)
    return Cursor(inner.block, np.array(starts, np.int64), inner.ends[owners], inner.records[owners]), left[owners]


def _all_items(inner: Cursor, left: Ints, counts: Ints, stride: int, path: str) -> Iterator[tuple[Cursor, Ints]]:
    """Yield cursors at all items of a block of each, positioned by the length; move the originals past them."""
    begins, behind = inner.at.copy(), np.cumsum(counts)
    stops = inner.block.stops
    # The bytes after the records are stops too, so that a position beyond all is beyond its record.
    first, last = np.searchsorted(stops, begins), len(stops) - 1
    if stride:
        inner.at += counts * stride
    else:
        inner.at[:] = np.where(counts > 0, stops[np.minimum(first + counts - 1, last)] + 1, begins)
        over = inner.at > inner.ends
        if over.any():
            inner.fail(over, "not_avro", path, f"the record ends in {path}")
            inner.at[over] = inner.ends[over]
    for start in range(0, int(behind[-1]), PIECE):
        position = np.arange(start, min(start + PIECE, int(behind[-1])))
        owners = np.searchsorted(behind, position, side="right")
        number = position - (behind - counts)[owners]
        if stride:
            starts = begins[owners] + number * stride
        else:
            starts = np.where(number == 0, begins[owners], stops[np.minimum(first[owners] + number - 1, last)] + 1)
        ends = inner.ends[owners]
        yield Cursor(inner.block, np.minimum(starts, ends), ends, inner.records[owners]), left[owners]


def _counts(cursor: Cursor, left: Ints, least: int, path: str) -> Ints:
    heads = cursor.some(left)
    counts = heads.number(None, path)
    sized = counts < 0
    if sized.any():
        odd = sized & (heads.number(sized, path) < 0)
        if odd.any():
            heads.fail(odd, "not_avro", path, f"{path}: the length of its items is negative")
        counts = np.where(sized, -counts, counts)
    room = (heads.ends - heads.at) // least if least else heads.block.empties[heads.records]
    wrong = (counts < 0) | (counts > room)
    alive = heads.live(None)
    if alive is not None:
        wrong &= alive
    if wrong.any():
        heads.fail(wrong, "not_avro", path, f"{path}: it has more items than fit in the record")
        alive = heads.live(None)
    cursor.put(left, heads)
    counts = counts if alive is None else np.where(alive, counts, 0)
    if not least:
        # No record has two of these cursors: items without bytes come one by one.
        heads.block.empties[heads.records] -= counts
    return counts


class _WrongError(Exception):
    """There is no valid value."""


def _item_starts(walk: Walk, octets: memoryview, at: int, end: int, many: int, starts: list[int]) -> int:
    """Add the positions of so many items, and those of small blocks after them.

    :return: the position of the next count, which the caller checks
    """
    due = len(starts)
    try:
        while many:
            due += many
            while len(starts) < due:
                starts.append(at)
                at = walk(octets, at, end)
            many, items = _next_block(octets, at, end)
            at = items if many else at
    except _WrongError:
        starts += starts[-1:] * (due - len(starts))
    return at


def _next_block(octets: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a block's number of items and their begin; zero at the end, or if it is not small, or invalid."""
    try:
        many, at = _value(octets, at, end)
        if many < 0:
            many, (size, at) = -many, _value(octets, at, end)
            many = many if size >= 0 else 0
    except _WrongError:
        return 0, at
    return (many if many <= min(SMALL, end - at) else 0), at


def walk_over(kind: str, size: int, parts: Sequence[Walk | None]) -> Walk | None:
    """Return how to walk over values of a type, by Avro's word for it; ``None`` if impossible.

    :param size: size of a fixed
    :param parts: its fields, branches or items
    """
    walks = tuple(part for part in parts if part is not None)
    if len(walks) < len(parts):
        return None
    match kind:
        case "int" | "long" | "enum":
            return _number
        case "bytes" | "string":
            return _octets
        case "record":
            return partial(_all, walks)
        case "union":
            return partial(_one, walks)
        case "array":
            return partial(_blocks, walks[0])
        case "map":
            return partial(_blocks, entry_walk(walks[0]))
    return partial(_fixed, size or _FIXED.get(kind, 0))


def entry_walk(value: Walk) -> Walk:
    return partial(_all, (_octets, value))


def _value(octets: memoryview, at: int, end: int) -> tuple[int, int]:
    raw = shift = 0
    while at < end:
        octet = octets[at]
        at += 1
        raw |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise _WrongError


def _number(octets: memoryview, at: int, end: int) -> int:
    while at < end:
        at += 1
        if octets[at - 1] < 0x80:
            return at
    raise _WrongError


def _octets(octets: memoryview, at: int, end: int) -> int:
    length, at = _value(octets, at, end)
    if not 0 <= length <= end - at:
        raise _WrongError
    return at + length


def _fixed(size: int, _octets: memoryview, at: int, end: int) -> int:
    if at + size > end:
        raise _WrongError
    return at + size


def _all(walks: tuple[Walk, ...], octets: memoryview, at: int, end: int) -> int:
    for walk in walks:
        at = walk(octets, at, end)
    return at


def _one(walks: tuple[Walk, ...], octets: memoryview, at: int, end: int) -> int:
    which, at = _value(octets, at, end)
    if not 0 <= which < len(walks):
        raise _WrongError
    return walks[which](octets, at, end)


def _blocks(walk: Walk, octets: memoryview, at: int, end: int) -> int:
    while True:
        many, at = _value(octets, at, end)
        if many == 0:
            return at
        if many < 0:
            many, at = -many, _number(octets, at, end)
        for _ in range(many):
            at = walk(octets, at, end)
