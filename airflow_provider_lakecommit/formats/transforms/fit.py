# SPDX-License-Identifier: Apache-2.0
"""Convert columns of a query to columns of a table.

:func:`misfit` tells before anything is read that a type can never be the table's without a guess; :func:`fitted`
converts the others. Nothing is rounded, cut or filled in: numbers or digits that do not fit, bytes of another length,
dates beyond the years 1 to 9999, 24:00, and missing required values inside structs, lists and maps are a
:class:`~airflow_provider_lakecommit.formats.decoder.Refusal`.

The engine makes infinity of ``1e200 * 1e200``, where the record must be refused. A record that has a non-finite number
itself, or a text of one, may have it in its rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.time_values import plausible

_MOST_DIGITS = 76
"""Digits of Arrow's widest decimal."""
_BYTE = pa.bool8()
"""The engine's boolean, as it keeps types."""
_WIDE = frozenset({"hugeint", "uhugeint"})
"""Whole numbers of 16 bytes, such as sums of lists."""
_WIDE_AS = pa.decimal128(38, 0)
_WIDEST = 10**38 - 1


def misfit(made: pa.DataType, target: pa.DataType) -> bool:
    """Return True if values of one type can never be converted to the other without a guess."""
    if made == target or kinds.is_null(made) or (made == _BYTE and kinds.is_boolean(target)):
        return False
    if kinds.is_struct(target):
        names = {f.name for f in target}
        return (
            not kinds.is_struct(made)
            or {f.name for f in made} != names
            or any(misfit(made.field(name).type, target.field(name).type) for name in names)
        )
    if kinds.is_map(target):
        return (
            not kinds.is_map(made) or misfit(made.key_type, target.key_type) or misfit(made.item_type, target.item_type)
        )
    if kinds.is_list(target):
        of_list = kinds.is_list(made) or kinds.is_large_list(made)
        return not of_list or misfit(made.value_type, target.value_type)
    if kinds.is_floating(made) and kinds.is_floating(target):
        return bool(made.bit_width > target.bit_width)
    return not _family(target) or _family(made) != _family(target)


def fitted(array: pa.Array, field: pa.Field, path: str, parent: pa.Array | None = None) -> pa.Array:
    """Return the values in the table's type.

    :param parent: validity of the enclosing value; at the top the caller finds missing values
    :raises Refusal: a value that the column cannot take
    """
    if not field.nullable and parent is not None and pc.any(pc.and_(array.is_null(), parent), min_count=0).as_py():
        raise Refusal("missing_required", path, f"required column {path} is missing or null")
    target = field.type
    if array.type == target and not _has(target, kinds.is_temporal):
        return array
    if array.type == _BYTE:
        return array.storage.cast(target)
    if kinds.is_null(array.type):
        return pa.nulls(len(array), target)
    mask = array.is_null() if array.null_count else None
    if kinds.is_struct(target):
        parts = [fitted(array.field(f.name), f, f"{path}.{f.name}", array.is_valid()) for f in target]
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)
    if kinds.is_map(target):
        keys = fitted(array.keys, target.key_field, f"{path}.key", _all(array.keys))
        items = fitted(array.items, target.item_field, f"{path}.value", _all(array.items))
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    if kinds.is_list(target):
        values = fitted(array.values, target.value_field, f"{path}.element", _all(array.values))
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
    try:
        return _scalars(array, target)
    except ValueError as e:
        raise Refusal("wrong_value", path, f"column {path}: {e}") from e


def refused_values(array: pa.Array, field: pa.Field, positions: np.ndarray) -> dict[int, Refusal]:
    """Return the records with a value that :func:`fitted` refuses, each with the reason for its rows alone.

    :param positions: the record of each row, in order
    """
    starts = [0, *(np.flatnonzero(np.diff(positions)) + 1).tolist(), len(positions)]
    found: dict[int, Refusal] = {}
    pending = [(0, len(starts) - 1)]
    while pending:
        first, end = pending.pop()
        rows = array.slice(starts[first], starts[end] - starts[first])
        try:
            fitted(pa.concat_arrays([rows]), field, field.name)
        except Refusal as e:
            if end - first == 1:
                found[int(positions[starts[first]])] = e
            else:
                middle = (first + end) // 2
                pending += [(first, middle), (middle, end)]
    return found


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _scalars(array: pa.Array, target: pa.DataType) -> pa.Array:
    if kinds.is_temporal(target):
        return plausible(array, target)
    if _is_wide(array.type):
        array = _narrowed(array)
    if kinds.is_decimal(target) and kinds.is_integer(array.type):
        # Arrow requires room for the whole integer type; this needs room for the values only.
        array = array.cast(pa.decimal256(_MOST_DIGITS, target.scale))
    if kinds.is_fixed_size_binary(target):
        right = pc.equal(pc.binary_length(array), target.byte_width)
        if not pc.all(right, min_count=0).as_py():
            raise ValueError(f"not {target.byte_width} bytes long")
    return array.cast(target)


def _narrowed(array: pa.Array) -> pa.Array:
    """Return decimals, which have the same bytes as such numbers."""
    stored = array.storage
    made = pa.Array.from_buffers(_WIDE_AS, len(stored), stored.buffers(), stored.null_count, stored.offset)
    # An unsigned one with too many digits would be read as negative.
    least = 0 if array.type.type_name == "uhugeint" else -_WIDEST
    beyond = (pc.less(made, pa.scalar(least, _WIDE_AS)), pc.greater(made, pa.scalar(_WIDEST, _WIDE_AS)))
    if any(pc.any(found, min_count=0).as_py() for found in beyond):
        raise ValueError("a whole number has more than 38 digits")
    return made


def _all(array: pa.Array) -> pa.Array:
    return pa.repeat(pa.scalar(True), len(array))


def _family(kind: pa.DataType) -> str:
    """Return what types have in common whose values convert to each other where they fit; empty for other types."""
    if kinds.is_timestamp(kind):
        return "local" if kind.tz is None else "moment"
    families = {
        "exact": kinds.is_integer(kind) or kinds.is_decimal(kind) or _is_wide(kind),
        "text": kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind),
        "octets": kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind),
        "time": kinds.is_time(kind),
        "date": kinds.is_date(kind),
    }
    return next((name for name, found in families.items() if found), "")


def _is_wide(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.OpaqueType) and kind.type_name in _WIDE


def _has(kind: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Return True if a type, or one within it, is of some kind."""
    if kinds.is_nested(kind):
        return any(_has(kind.field(i).type, is_one) for i in range(kind.num_fields))
    return bool(is_one(kind))


_IS_ONE = r"(?i)^\s*[+-]?(nan|inf|infinity)\s*$"
Rows = np.ndarray[tuple[int], np.dtype[np.bool_]]


def overflown(column: pa.ChunkedArray, positions: np.ndarray, records: pa.Table) -> list[int]:
    """Return the records with such a number only from the SQL, in order.

    :param column: a column of the SQL
    :param positions: the record of each row
    """
    if not _has(column.type, kinds.is_floating):
        return []
    suspects = np.unique(positions[_odd_rows(column)])
    if not len(suspects):
        return []
    have = np.zeros(records.num_rows, bool)
    for own in records.columns:
        have |= _odd_rows(own, texts=True)
    return [int(i) for i in suspects[~have[suspects]]]


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
