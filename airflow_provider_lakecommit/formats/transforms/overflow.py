# SPDX-License-Identifier: Apache-2.0
"""Floating-point numbers that SQL made too large.

The engine makes infinity of ``1e200 * 1e200``, where the record must be refused. A record that has a non-finite number
itself, or a text of one, may have it in its rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_IS_ONE = r"(?i)^\s*[+-]?(nan|inf|infinity)\s*$"
Rows = np.ndarray[tuple[int], np.dtype[np.bool_]]


def overflown(column: pa.ChunkedArray, positions: np.ndarray, records: pa.Table) -> list[int]:
    """Return the records with such a number only from the SQL, in order.

    :param column: a column of the SQL
    :param positions: the record of each row
    """
    if not _has_floats(column.type):
        return []
    suspects = np.unique(positions[_odd_rows(column)])
    if not len(suspects):
        return []
    have = np.zeros(records.num_rows, bool)
    for own in records.columns:
        have |= _odd_rows(own, texts=True)
    return [int(i) for i in suspects[~have[suspects]]]


def _has_floats(kind: pa.DataType) -> bool:
    if kinds.is_nested(kind):
        return any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(kinds.is_floating(kind))


def _odd_rows(column: pa.ChunkedArray, *, texts: bool = False) -> Rows:
    """Return the rows with a non-finite number, also nested; with ``texts`` also as text."""
    found = [_odd(chunk, texts) for chunk in column.chunks]
    return np.concatenate(found) if found else np.zeros(0, bool)


def _odd(array: pa.Array, texts: bool) -> Rows:
    kind = array.type
    if kinds.is_floating(kind):
        return _true(pc.invert(pc.is_finite(array)))
    if texts and (kinds.is_string(kind) or kinds.is_large_string(kind)):
        return _true(pc.match_substring_regex(array, _IS_ONE))
    if kinds.is_struct(kind):
        return _either(array, [_odd(part, texts) for part in array.flatten()])
    if kinds.is_map(kind):
        within = _either(array.keys, [_odd(array.keys, texts), _odd(array.items, texts)])
        return _by_list(array, within)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _by_list(array, _odd(array.values, texts))
    return np.zeros(len(array), bool)


def _true(found: pa.Array) -> Rows:
    return np.asarray(pc.fill_null(found, False), bool)


def _either(array: pa.Array, parts: list[Rows]) -> Rows:
    found: Rows = np.logical_or.reduce([np.zeros(len(array), bool), *parts])
    return found


def _by_list(array: pa.Array, within: Rows) -> Rows:
    """Return the lists with one of these values, which are those of all lists, in one piece."""
    before = np.concatenate([[0], np.cumsum(within)])
    offsets = np.asarray(array.offsets)
    found: Rows = np.asarray(array.is_valid(), bool) & (before[offsets[1:]] > before[offsets[:-1]])
    return found
