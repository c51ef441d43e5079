# SPDX-License-Identifier: Apache-2.0
"""Convert read values to the table's type; failing ones are found by halves and set to null, so that only their records
fail.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.reading import Convert

MOST_DIGITS = 76
"""Digits of a number of 256 bits."""


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


def whole_numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert to integers, or a decimal that holds them."""
    if pa.types.is_decimal(target):
        wide = values.cast(pa.decimal256(MOST_DIGITS, 0)).cast(pa.decimal256(MOST_DIGITS, target.scale))
        return wide.cast(target)
    return values.cast(target)


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
