# SPDX-License-Identifier: Apache-2.0
"""The items of arrays and maps, of all records in step.

Contract: :func:`each_item` gives cursors at the first items of all that have one, then at the second, and so on, each
time with the cursors that they belong to; numbers, what else has its places told by its type, and long arrays come all
at once. The caller reads the items. Arrays come in blocks: a count, negative if a length follows, and a count of none
at the end.

Failure story: a count that cannot be within the record fails it before anything is made of it; of items that need no
bytes, a record is believed :data:`~airflow_provider_lakecommit.avro.block.MOST_EMPTY` in all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from airflow_provider_lakecommit.avro.block import Bools, Cursor, Ints
from airflow_provider_lakecommit.avro.walk import LONG, Walk, item_starts

__all__ = ["each_item"]


def each_item(
    cursor: Cursor, active: Bools | None, least: int, path: str, stride: int | None = None, walk: Walk | None = None
) -> Iterator[tuple[Cursor, Ints]]:
    """Cursors at items, and the places of those that they belong to.

    :param least: bytes of an item
    :param stride: as of :attr:`~airflow_provider_lakecommit.avro.writer.WriterType.stride`
    :param walk: over an item, for long arrays
    """
    alive = cursor.live(active)
    left = np.arange(len(cursor)) if alive is None else np.flatnonzero(alive)
    while len(left):
        counts = _counts(cursor, left, least, path)
        # Those with the most items first: all that still have one are then the first ones.
        order = np.argsort(-counts, kind="stable")
        left, counts = left[order], counts[order]
        inner = cursor.some(left)
        if stride is not None:
            yield _all_items(inner, left, counts, stride, path)
        else:
            long = 0 if walk is None else int(np.searchsorted(-counts, -LONG, side="right"))
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


def _walked(inner: Cursor, left: Ints, counts: Ints, walk: Walk) -> tuple[Cursor, Ints]:
    """The same of the first cursors, of which a walk tells where the items are."""
    octets, starts = inner.block.octets.data, list[int]()
    for n, many in enumerate(counts.tolist()):
        found, inner.at[n] = item_starts(walk, octets, int(inner.at[n]), int(inner.ends[n]), many)
        starts += found
    owners = np.repeat(np.arange(len(left)), counts)
    return Cursor(inner.block, np.array(starts), inner.ends[owners], inner.records[owners]), left[owners]


def _all_items(inner: Cursor, left: Ints, counts: Ints, stride: int, path: str) -> tuple[Cursor, Ints]:
    """Cursors at all items of a block of each, of which the length tells where the next one is; theirs go behind."""
    owners = np.repeat(np.arange(len(left)), counts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    if stride:
        starts = inner.at[owners] + number * stride
        inner.at += counts * stride
    else:
        stops = inner.block.stops
        first = np.searchsorted(stops, inner.at)
        # The bytes behind the records are stops too, so that one which is beyond all is beyond its record.
        ends = stops[np.minimum(first[owners] + number, len(stops) - 1)] + 1
        starts = np.where(number == 0, inner.at[owners], np.concatenate(([0], ends[:-1])))
        behind = np.flatnonzero(counts)
        inner.at[behind] = ends[np.cumsum(counts)[behind] - 1]
        over = inner.at > inner.ends
        if over.any():
            inner.fail(over, "not_avro", path, f"the record ends in {path}")
            inner.at[over] = inner.ends[over]
    return Cursor(inner.block, np.minimum(starts, inner.ends[owners]), inner.ends[owners], inner.records[owners]), left[
        owners
    ]


def _counts(cursor: Cursor, left: Ints, least: int, path: str) -> Ints:
    """How many items the next block of each has."""
    heads = cursor.some(left)
    counts = heads.number(None, path)
    sized = counts < 0
    if sized.any():
        sizes = heads.number(sized, path)
        odd = sized & ((sizes < 0) | (sizes > heads.ends - heads.at))
        if odd.any():
            heads.fail(odd, "not_avro", path, f"{path}: the length of its items is not within the record")
        counts = np.where(sized, -counts, counts)
    room = (heads.ends - heads.at) // least if least else heads.block.empties[heads.records]
    wrong = (counts < 0) | (counts > room)
    alive = heads.live(None)
    if alive is not None:
        wrong &= alive
    if wrong.any():
        heads.fail(wrong, "not_avro", path, f"{path}: it has more items than the record has room for")
        alive = heads.live(None)
    cursor.put(left, heads)
    counts = counts if alive is None else np.where(alive, counts, 0)
    if not least:
        # No record has two of these cursors: items of no bytes come one by one.
        heads.block.empties[heads.records] -= counts
    return counts
