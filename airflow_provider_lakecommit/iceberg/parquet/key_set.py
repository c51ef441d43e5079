# SPDX-License-Identifier: Apache-2.0
"""Keys of rows, found among the rows of data files: a 64-bit hash first, then the values themselves.

Contract: a key has one or several columns of primitive types; a null is in no key. :meth:`KeySet.find` is exact:
hashes only select the rows whose values are compared. Integers of any width, dates and timestamps hash alike, so files
of before a column was widened are searched too, after a cast.

Memory: 64 bits of a bitmap, the hash and the values per key, and one block of the file.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers

_ODD, _MORE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_WORD = 8
_BITS = (1 << np.arange(8)).astype(np.uint8)


def whole_numbers(array: pa.Array) -> Numbers | None:
    """Return integers, booleans, dates, times and timestamps as 64-bit integers; ``None`` for other types."""
    kind = array.type
    if pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        array = array.view(pa.int64())
    elif not pa.types.is_integer(kind):
        return None
    numbers: Numbers = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64, copy=False)


def order_numbers(array: pa.Array) -> Numbers:
    """Return the values of a column that orders rows as 64-bit integers; a null is older than every value.

    :raises TypeError: the type orders nothing
    """
    numbers = whole_numbers(array)
    if numbers is None:
        raise TypeError(f"{array.type} orders nothing")
    if not array.null_count:
        return numbers
    return np.where(array.is_valid().to_numpy(zero_copy_only=False), numbers, np.iinfo(np.int64).min)


def hashes(columns: Sequence[pa.Array], seed: int = 0) -> Numbers:
    """Return a 64-bit hash of each row. Of one column of whole numbers it is different for different values."""
    first = whole_numbers(columns[0]) if len(columns) == 1 else None
    if first is not None:
        return first.view(np.uint64) * _ODD
    out = np.full(len(columns[0]), seed * 2 + 1, np.uint64)
    for column in columns:
        numbers = whole_numbers(column)
        if numbers is not None:
            _mix(out, numbers.view(np.uint64))
        else:
            _mix_bytes(out, column)
    return out


def equal_rows(these: Sequence[pa.Array], others: Sequence[pa.Array]) -> Numbers:
    """Return which rows have equal values in all columns; a null equals nothing."""
    out = np.ones(len(these[0]), bool)
    for one, other in zip(these, others, strict=True):
        out &= pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    return out


class KeySet:
    """Different keys. ``order`` lists them by their hashes.

    :param columns: one array per key column
    :param hashed: the hashes of the keys, no two of them equal
    """

    def __init__(self, columns: Sequence[pa.Array], hashed: Numbers, seed: int) -> None:
        self._columns, self._seed = columns, seed
        self._order = np.argsort(hashed)
        self._hashed = hashed[self._order]
        bits = max(16, math.ceil(math.log2(max(2, len(hashed)) * 64)))
        self._shift = np.uint64(64 - bits)
        self._bitmap = np.zeros(1 << (bits - 3), np.uint8)
        if len(hashed):
            # By their order, the bits of a byte are next to each other.
            slots = (self._hashed >> self._shift).view(np.int64)
            first = np.flatnonzero(np.diff(slots >> 3, prepend=-1))
            self._bitmap[slots[first] >> 3] = np.bitwise_or.reduceat(_BITS.take(slots & 7), first)
        self._sorted = [_sorted(column) for column in columns]

    def values(self, column: int) -> pa.Array:
        """Return the values of a key column, one per key."""
        return self._columns[column]

    def may_have(self, column: int, low: Any, high: Any) -> bool:
        """Return False if no key has a value between these bounds, which are whole numbers, texts, bytes or decimals.

        :param column: number of the key column
        """
        values = self._sorted[column]
        value = partial(_value, values)
        first = bisect.bisect_left(range(len(values)), low, key=value)
        return first < len(values) and not high < value(first)

    def find(self, columns: Sequence[pa.Array]) -> tuple[Numbers, Numbers]:
        """Return the positions of rows that have one of the keys, and which key each of them has."""
        hashed = hashes(columns, self._seed)
        # An index of signed numbers needs no conversion.
        slots = (hashed >> self._shift).view(np.int64)
        maybe = np.flatnonzero(self._bitmap.take(slots >> 3) & _BITS.take(slots & 7))
        if not len(maybe):
            return maybe, maybe
        found = hashed[maybe]
        at = np.searchsorted(self._hashed, found)
        at[at == len(self._hashed)] = 0
        same = self._hashed[at] == found
        rows, keys = maybe[same], self._order[at[same]]
        equal = equal_rows(_taken(columns, rows), _taken(self._columns, keys))
        return rows[equal], keys[equal]


def _sorted(column: pa.Array) -> Numbers | pa.Array:
    numbers = whole_numbers(column)
    return np.sort(numbers) if numbers is not None else column.take(pc.array_sort_indices(column))


def _value(values: Numbers | pa.Array, i: int) -> Any:
    value = values[i]
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _taken(columns: Sequence[pa.Array], rows: Numbers) -> list[pa.Array]:
    row_numbers = pa.array(rows)
    return [column.take(row_numbers) for column in columns]


def _mix(out: Numbers, octets: Numbers) -> None:
    """Mix one word into each hash, in place."""
    out ^= octets
    out *= _ODD
    out ^= out >> np.uint64(32)
    out *= _MORE


def _mix_bytes(out: Numbers, column: pa.Array) -> None:
    """Mix texts, bytes or decimals in, eight bytes at a time."""
    data, starts, lengths = _bytes_of(column)
    _mix(out, lengths.astype(np.uint64))
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    octets = np.ndarray((len(data) + 1,), "<u8", padded, strides=(1,))
    for at in range(0, int(lengths.max(initial=0)), _WORD):
        rows = np.flatnonzero(lengths > at)
        left = np.minimum(lengths[rows] - at, _WORD)
        word = octets[starts[rows] + at] & (np.uint64(2**64 - 1) >> (8 * (_WORD - left)).astype(np.uint64))
        mixed = out[rows]
        _mix(mixed, word)
        out[rows] = mixed


def _bytes_of(column: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bytes of a column, and where each value begins and how long it is; nulls are empty."""
    kind, many = column.type, len(column)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        width = kind.byte_width
        starts = (np.arange(many, dtype=np.int64) + column.offset) * width
        lengths = np.full(many, width, np.int64)
        buffer = column.buffers()[1]
    else:
        column = column.cast(pa.large_binary())
        _, offsets, buffer = column.buffers()
        ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + many + 1] if many else np.zeros(1, int)
        starts, lengths = ends[:-1], np.diff(ends)
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8), starts, lengths
