# SPDX-License-Identifier: Apache-2.0
"""Read the bytes of a block of records for all records at once.

Contract: every record has its own cursor, so that each is evaluated by itself, whatever another one's corruption. A
read returns an array with one value per cursor; inactive cursors do not move, and their value is meaningless. A record
that cannot be read further fails: the first reason counts, and its cursors stay inactive. Nothing is read beyond the
block, and reading beyond a record fails it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_provider_lakecommit.formats.decoder import Refusal

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
MOST_EMPTY = 1 << 10
"""Most items without bytes in a record, in all of its arrays: a few bytes could claim more than memory holds."""
_WIDE = 16
"""Padding around the records, so that a word at the edge of one can be read."""
_INLINE = 12
"""Bytes that an Arrow view holds inline."""
_STOP, _SEVEN = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
_STEPS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_ONE = np.uint64(1)


@dataclass(slots=True)
class OctetBlock:
    """Records next to each other. ``failed`` are unreadable ones, with the reason; ``unknown`` are records with a field
    that the table lacks, by its path; ``empties`` counts the items without bytes that each may still have. With
    ``in_step``, the first error of a record depends on that record alone; ``walked`` are records whose reading depended
    on others (:mod:`~airflow_provider_lakecommit.formats.avro.items`).
    """

    octets: npt.NDArray[np.uint8]
    starts: Ints
    ends: Ints
    dead: Bools
    empties: Ints
    walked: Bools
    in_step: bool = False
    failed: dict[int, Refusal] = field(default_factory=dict)
    unknown: dict[str, list[Ints]] = field(default_factory=dict)
    ended: Ints | None = None

    @classmethod
    def of(cls, values: Sequence[bytes], skip: int, *, in_step: bool = False) -> OctetBlock:
        """:param skip: bytes at the beginning of each value before its record"""
        edge = bytes(_WIDE)
        octets = np.frombuffer(b"".join((edge, *values, edge)), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values))) + _WIDE
        starts = np.concatenate((np.full(min(1, len(ends)), _WIDE), ends[:-1])) + skip
        dead, empties = np.zeros(len(values), np.bool_), np.full(len(values), MOST_EMPTY)
        walked = np.zeros(len(values), np.bool_)
        return cls(octets=octets, starts=starts, ends=ends, dead=dead, empties=empties, walked=walked, in_step=in_step)

    @property
    def stops(self) -> Ints:
        """Return where a number may end: the positions of bytes without the continuation bit."""
        if self.ended is None:
            self.ended = np.flatnonzero(self.octets < 0x80)
        return self.ended

    def cursor(self) -> Cursor:
        return Cursor(self, self.starts.copy(), self.ends, np.arange(len(self.starts)))

    def fail(self, records: Ints, kind: str, column: str | None, reason: str) -> None:
        for record in records.tolist():
            self.failed.setdefault(record, Refusal(kind, column, reason))
        self.dead[records] = True

    def words(self, size: int) -> npt.NDArray[np.void]:
        """Return the next *size* bytes at each position."""
        return np.ndarray((len(self.octets) - size + 1,), f"V{size}", buffer=self.octets, strides=(1,))

    def numbers(self, kind: str) -> npt.NDArray[np.generic]:
        """Return the number that begins at each position."""
        kept = np.dtype(kind)
        return np.ndarray((len(self.octets) - kept.itemsize + 1,), kept, buffer=self.octets, strides=(1,))


@dataclass(slots=True)
class Cursor:
    """Read positions in some records, or in items of records. ``records`` are their record numbers."""

    block: OctetBlock
    at: Ints
    ends: Ints
    records: Ints

    def __len__(self) -> int:
        return len(self.at)

    def live(self, active: Bools | None) -> Bools | None:
        """Return the active cursors that have not failed; ``None`` means all."""
        if not self.block.failed:
            return active
        alive = ~self.block.dead[self.records]
        return alive if active is None else alive & active

    def fail(self, bad: Bools, kind: str, column: str | None, reason: str) -> None:
        self.block.fail(self.records[bad], kind, column, reason)

    def some(self, positions: Ints | slice) -> Cursor:
        """Return these cursors alone; :meth:`put` moves the originals."""
        return Cursor(self.block, self.at[positions], self.ends[positions], self.records[positions])

    def put(self, positions: Ints, moved: Cursor) -> None:
        """Move to the positions of other cursors."""
        self.at[positions] = moved.at

    def number(self, active: Bools | None, path: str) -> Ints:
        active = self.live(active)
        octets = self.block.octets
        first = octets[self.at] if active is None else np.where(active, octets[self.at], np.uint8(0))
        raw = first.astype(np.uint64)
        more = np.flatnonzero(first > 0x7F)
        if active is None:
            self.at += 1
        else:
            self.at += active
        if len(more):
            raw[more], length, wrong = _long_numbers(self.block, self.at[more] - 1)
            self.at[more] += length - 1
            if wrong.any():
                self.block.fail(self.records[more[wrong]], "not_avro", path, f"{path}: a number has more than 64 bits")
        over = self.at > self.ends
        if over.any():
            np.minimum(self.at, self.ends, out=self.at)
            self._ended(over, path)
        return ((raw >> _ONE) ^ (np.uint64(0) - (raw & _ONE))).view(np.int64)

    def spans(self, active: Bools | None, path: str) -> tuple[Ints, Ints]:
        """Read length-prefixed bytes: return their begins and lengths, zero if not active."""
        lengths = self.number(active, path)
        alive = self.live(active)
        wrong = (lengths < 0) | (lengths > self.ends - self.at)
        if alive is not None:
            wrong &= alive
        if wrong.any():
            self.fail(wrong, "not_avro", path, f"{path}: its length exceeds the record")
            alive = self.live(active)
        if alive is not None:
            lengths = np.where(alive, lengths, 0)
        starts = self.at.copy()
        self.at += lengths
        return starts, lengths

    def fixed(self, size: int, active: Bools | None, path: str) -> Ints:
        """Read so many bytes: return their begins; any position in the block if not active."""
        alive = self.live(active)
        short = self.ends - self.at < size
        if alive is not None:
            short &= alive
        if short.any():
            self._ended(short, path)
            alive = self.live(active)
        starts = self.at.copy() if alive is None else np.where(alive, self.at, _WIDE)
        self.at += size if alive is None else alive * size
        return starts

    def _ended(self, over: Bools, path: str) -> None:
        self.fail(over, "not_avro", path, f"the record ends in {path}")

    def end(self) -> None:
        """Check that nothing is left of the records."""
        left = self.ends - self.at
        left[self.block.dead[self.records]] = 0
        for position in np.flatnonzero(left).tolist():
            reason = f"{left[position]} bytes are left after the record: its schema is another one, or it is corrupt"
            self.block.fail(self.records[[position]], "not_avro", None, reason)

    def binary(self, starts: Ints, lengths: Ints, active: Bools | None) -> pa.Array:
        """Return bytes as an Arrow array."""
        views = np.empty((len(starts), 4), np.int32)
        views[:, 0] = lengths
        views[:, 1:] = self.block.words(_INLINE)[starts].view(np.int32).reshape(-1, 3)
        far = np.flatnonzero(lengths > _INLINE)
        views[far, 2] = 0
        views[far, 3] = starts[far]
        buffers = [bitmap(active), pa.py_buffer(views), pa.py_buffer(self.block.octets)]
        return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers).cast(pa.binary())


def bitmap(active: Bools | None) -> pa.Buffer | None:
    """Return the validity bitmap of an array."""
    return None if active is None else pa.py_buffer(np.packbits(active, bitorder="little"))


def _long_numbers(block: OctetBlock, at: Ints) -> tuple[npt.NDArray[np.uint64], Ints, Bools]:
    """Return numbers of more than one byte, their lengths, and which are too long."""
    words = block.numbers("<u8")[at].astype(np.uint64)
    stops = ~words & _STOP
    low = stops & (np.uint64(0) - stops)
    kept = low ^ (low - _ONE)
    lengths = (np.bitwise_count(kept) >> 3).astype(np.int64)
    raw = words & kept & _SEVEN
    for lower, upper, shift in _STEPS:
        raw = (raw & lower) | ((raw & upper) >> shift)
    wrong = np.zeros(len(at), np.bool_)
    far = np.flatnonzero(stops == 0)
    if len(far):
        ninth, tenth = block.octets[at[far] + 8], block.octets[at[far] + 9]
        longer = ninth > 0x7F
        raw[far] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
        raw[far] |= np.where(longer, tenth & 1, 0).astype(np.uint64) << np.uint64(63)
        lengths[far] = 9 + longer
        wrong[far] = longer & (tenth > 1)
    return raw, lengths, wrong


def pieces(values: Sequence[bytes], most: int) -> Iterator[tuple[int, int]]:
    """Yield pieces of the values of at most so many bytes, at least one value each."""
    if sum(map(len, values)) <= most:
        yield 0, len(values)
        return
    start = size = 0
    for i, value in enumerate(values):
        if size + len(value) > most and i > start:
            yield start, i
            start, size = i, 0
        size += len(value)
    yield start, len(values)
