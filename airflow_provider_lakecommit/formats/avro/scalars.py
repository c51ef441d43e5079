# SPDX-License-Identifier: Apache-2.0
"""Readers of single values, from a primitive Avro type to a primitive table type, null if not active.

Read values are converted at once; failing ones are found by halves and set to null, so that only their records fail.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.avro.block import Bools, Cursor, Ints, bitmap
from airflow_provider_lakecommit.formats.avro.writer import WriterType
from airflow_provider_lakecommit.formats.reading import MOST_DIGITS, Convert

Read = Callable[[Cursor, Bools | None], pa.Array]
"""Reads one value of a column, or of a part of one, per cursor, and moves past it."""
Raw = Callable[[Cursor, Bools | None, str], pa.Array]
"""Reads values in Avro's types."""
_DECIMAL_OCTETS = 16
_LOWEST = np.array([0x80, *bytes(_DECIMAL_OCTETS - 1)], np.uint8)
_TOO_LONG = "a number with more than 38 digits"
_INT = (-(2**31), 2**31)


def scalar(written: WriterType, convert: Convert | None, path: str, target: pa.DataType) -> Read:
    """Return the reader of a primitive type. Without ``convert``, the read type is the table's."""
    raw = _raw(written)

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        values = raw(cursor, active, path)
        if convert is None:
            return values
        made, wrong = each_converted(convert, values, target)
        for position, why in wrong:
            cursor.block.fail(cursor.records[[position]], "wrong_value", path, f"column {path}: {why}")
        return made

    return read


def _raw(written: WriterType) -> Raw:
    if written.logical == "decimal":
        return _decimals(written.size, written.scale)
    if written.kind == "enum":
        return _symbols(written.symbols)
    return _fixed(written.size) if written.kind == "fixed" else _RAW[written.kind]


def _numbers(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
    values = cursor.number(active, path)
    return _array(pa.int64(), values, cursor.live(active))


def _ints(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
    values = cursor.number(active, path)
    wrong = (values < _INT[0]) | (values >= _INT[1])
    if wrong.any():
        cursor.fail(wrong, "not_avro", path, f"{path}: an int has more than 32 bits")
    return _array(pa.int64(), values, cursor.live(active))


def _booleans(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
    octets = cursor.block.octets[cursor.fixed(1, active, path)]
    alive = cursor.live(active)
    wrong = octets > 1 if alive is None else (octets > 1) & alive
    if wrong.any():
        cursor.fail(wrong, "not_avro", path, f"{path}: a boolean is neither 0 nor 1")
        alive = cursor.live(active)
    return pa.Array.from_buffers(pa.bool_(), len(cursor), [bitmap(alive), bitmap(octets == 1)])


def _floats(kind: str, size: int, target: pa.DataType) -> Raw:
    def read(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
        values = cursor.block.numbers(kind)[cursor.fixed(size, active, path)]
        return _array(target, values, cursor.live(active))

    return read


def _binary(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
    starts, lengths = cursor.spans(active, path)
    return cursor.binary(starts, lengths, cursor.live(active))


def _fixed(size: int) -> Raw:
    def read(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
        starts = cursor.fixed(size, active, path)
        return cursor.binary(starts, np.full(len(cursor), size), cursor.live(active))

    return read


def _symbols(symbols: tuple[str, ...]) -> Raw:
    known = pa.array(symbols, pa.string())

    def read(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
        positions = cursor.number(active, path)
        wrong = (positions < 0) | (positions >= len(symbols))
        if wrong.any():
            cursor.fail(wrong, "not_avro", path, f"{path}: the index is beyond an enum of {len(symbols)} symbols")
            positions = np.where(wrong, 0, positions)
        return known.take(_array(pa.int64(), positions, cursor.live(active)))

    return read


def _decimals(size: int, scale: int) -> Raw:
    """Read big-endian bytes of a number, as a type that holds all of Arrow's range."""

    def read(cursor: Cursor, active: Bools | None, path: str) -> pa.Array:
        if size:
            starts, lengths = cursor.fixed(size, active, path), np.full(len(cursor), size)
        else:
            starts, lengths = cursor.spans(active, path)
        alive = cursor.live(active)
        if alive is not None:
            lengths = np.where(alive, lengths, 0)
        empty = (lengths == 0) if alive is None else (lengths == 0) & alive
        if empty.any():
            cursor.fail(empty, "not_avro", path, f"{path}: a decimal without bytes")
        _drop_sign_octets(cursor, starts, lengths, path)
        octets = _big_endian(cursor, starts, lengths)
        if (lengths == _DECIMAL_OCTETS).any():
            # It has 39 digits, which Arrow misses: its negation does not exist.
            lowest = (octets == _LOWEST).all(axis=1)
            lowest &= True if alive is None else alive
            cursor.fail(lowest, "wrong_value", path, f"column {path}: {_TOO_LONG}")
        buffers = [bitmap(cursor.live(active)), pa.py_buffer(octets[:, ::-1].copy())]
        return pa.Array.from_buffers(pa.decimal128(38, scale), len(cursor), buffers)

    return read


def _big_endian(cursor: Cursor, starts: Ints, lengths: Ints) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return the last bytes of each number, extended on the left by its sign."""
    ends = starts + np.minimum(lengths, _DECIMAL_OCTETS)
    octets = cursor.block.words(_DECIMAL_OCTETS)[ends - _DECIMAL_OCTETS].view(np.uint8).reshape(-1, _DECIMAL_OCTETS)
    signs = np.where(cursor.block.octets[starts] > 0x7F, np.uint8(0xFF), np.uint8(0))
    outside = np.arange(_DECIMAL_OCTETS) < (_DECIMAL_OCTETS - lengths)[:, None]
    return np.where(outside, signs[:, None], octets)


def _drop_sign_octets(cursor: Cursor, starts: Ints, lengths: Ints, path: str) -> None:
    """Drop bytes that only repeat the sign, in numbers longer than a decimal."""
    octets, far = cursor.block.octets, np.flatnonzero(lengths > _DECIMAL_OCTETS)
    for length in np.unique(lengths[far]).tolist():
        positions, extra = far[lengths[far] == length], length - _DECIMAL_OCTETS
        signs = np.where(octets[starts[positions] + extra] > 0x7F, np.uint8(0xFF), np.uint8(0))
        own = cursor.block.words(extra)[starts[positions]].view(np.uint8).reshape(-1, extra)
        if (wrong := (own != signs[:, None]).any(axis=1)).any():
            bad = np.zeros(len(cursor), np.bool_)
            bad[positions[wrong]] = True
            cursor.fail(bad, "wrong_value", path, f"column {path}: {_TOO_LONG}")
        starts[positions], lengths[positions] = starts[positions] + extra, _DECIMAL_OCTETS


def _array(kind: pa.DataType, values: np.ndarray[tuple[int], np.dtype[np.generic]], active: Bools | None) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [bitmap(active), pa.py_buffer(np.ascontiguousarray(values))])


_RAW: dict[str, Raw] = {
    "boolean": _booleans,
    "int": _ints,
    "long": _numbers,
    "float": _floats("<f4", 4, pa.float32()),
    "double": _floats("<f8", 8, pa.float64()),
    "bytes": _binary,
    "string": _binary,
}


def each_converted(convert: Convert, values: pa.Array, target: pa.DataType) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Return the values in the table's type, null if impossible, and the reasons of those by position."""
    try:
        return convert(values, target), []
    except (ValueError, OverflowError) as e:
        if len(values) == 1:
            return pa.nulls(1, target), [(0, str(e))]
    half = len(values) // 2
    first, wrong = each_converted(convert, values.slice(0, half), target)
    second, more = each_converted(convert, values.slice(half), target)
    return pa.concat_arrays([first, second]), [*wrong, *((half + position, why) for position, why in more)]


def text(values: pa.Array, _target: pa.DataType) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueError("a text that is not UTF-8") from None


def exact_number(values: pa.Array, target: pa.DataType) -> pa.Array:
    numbers = values.cast(target, safe=False)
    back = numbers.cast(pa.float64()).cast(pa.int64(), safe=False)
    if not pc.all(pc.equal(back, values), min_count=0).as_py():
        raise ValueError(f"a whole number that a {target} does not hold exactly")
    return numbers


def decimal_of(scale: int) -> Convert:
    """Return the conversion of numbers of a scale to the table's decimal, without rounding."""

    def convert(values: pa.Array, target: pa.DataType) -> pa.Array:
        if scale == target.scale:
            narrow = values.cast(target)
            narrow.validate(full=True)
            return narrow
        return values.cast(pa.decimal256(MOST_DIGITS, target.scale)).cast(target)

    return convert
