# SPDX-License-Identifier: Apache-2.0
"""Numbers so fine that Arrow's parser takes them for zero in a decimal column.

A number with 39 or more digits behind its point than its column keeps (``1e-60``) makes the parser look up a power of
ten beyond the end of its table; what it finds there can be zero, and then so is the number. Contract: :func:`too_fine`
tells of parsed rows which decimal is such a number, by the texts of the records that have a zero; a block without one
costs a comparison for each decimal, one with zeros a look through its texts, however many columns have them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.columns import Column

__all__ = ["too_fine", "with_decimals"]

_LEAST = 39
# An exponent of 20 or more, or 20 digits written: one of them it takes to have 39 digits behind the point.
_SUSPECT = r"""[eE]-0*([2-9][0-9]|[0-9]{3,})[\s,}\]"]|\.[0-9]{20}"""


def with_decimals(columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that the parser reads decimals for, or that hold some; those written as bytes it reads as texts."""
    return tuple(c for c in columns if any(pa.types.is_decimal(node.wire) for node in c.nodes()))


def too_fine(columns: Sequence[Column], rows: pa.StructArray, values: Sequence[bytes]) -> str | None:
    """The path of one of the columns in which a value has a number with too many digits behind its point."""
    zeros = np.zeros(len(values), bool)
    for column in columns:
        zeros |= _zeros(column, rows.field(rows.type.get_field_index(column.name)))
    if not zeros.any():
        return None
    suspect = pc.match_substring_regex(pa.array(values, pa.binary()), _SUSPECT).to_numpy(zero_copy_only=False)
    found = (next(_below(columns, _record(values[i])), None) for i in np.flatnonzero(zeros & suspect).tolist())
    return next(filter(None, found), None)


def _record(value: bytes) -> dict[str, Any]:
    """The record with its numbers as they are written. One too deep for this has unknown fields that cannot be counted,
    and is refused for that.
    """
    try:
        return dict(json.loads(value, parse_float=str, parse_int=str))
    except RecursionError:
        return {}


def _zeros(column: Column, array: pa.Array) -> Any:
    """In which rows the column has a zero; in all of them if one is somewhere below it."""
    if not column.children:
        return pc.equal(array, pa.scalar(0, array.type)).fill_null(False).to_numpy(zero_copy_only=False)
    return _holds_zero(array)


def _holds_zero(array: pa.Array) -> bool:
    if pa.types.is_struct(array.type):
        return any(_holds_zero(array.field(i)) for i in range(array.type.num_fields))
    if pa.types.is_list(array.type):
        return _holds_zero(array.values)
    return pa.types.is_decimal(array.type) and bool(pc.any(pc.equal(array, pa.scalar(0, array.type))).as_py())


def _below(columns: Sequence[Column], record: dict[str, Any]) -> Iterator[str]:
    for column in columns:
        yield from _within(column, record.get(column.name))


def _within(column: Column, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _below(column.children, value)
    elif isinstance(value, list):
        for element in value:
            yield from _below(column.children, element) if column.is_map else _within(column.children[0], element)
    elif isinstance(value, str) and pa.types.is_decimal(column.wire):
        try:
            number = Decimal(value)
        except InvalidOperation:
            return
        if number and int(number.as_tuple().exponent) <= -_LEAST - column.target.type.scale:
            yield column.path
