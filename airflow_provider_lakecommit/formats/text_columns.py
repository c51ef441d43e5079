# SPDX-License-Identifier: Apache-2.0
"""Columns that are read from texts: fields of CSV, keys and headers of records.

A text becomes exactly the value that it writes, or it is refused; nothing is trimmed or rounded. Whole numbers are
digits with an optional ``-``, other numbers are written as in JSON, booleans are ``true`` and ``false``. Dates, times,
bytes and uuids follow the landing's ``timestamps`` and ``encodings``.

:func:`wrong_texts` judges each value; what only the conversion finds refuses the block, and the caller isolates the
record.

Arrow converts short texts without an exponent correctly. Of others it may silently make another number: 1 of 2¹²⁸ + 1,
0 of ``1e-41``. :func:`decimals_of` converts these in Python, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.columns import Column, columns_of
from airflow_provider_lakecommit.formats.decoder import Refusal

_WHOLE = (r"^-?[0-9]+$", "a whole number")
NUMBER = r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_TRUTH = (r"^(true|false)$", "true or false")


def text_columns(schema: Schema, options: FormatOptions, skip: Set[str] = frozenset()) -> tuple[Column, ...]:
    """Return the columns of a table that are read from texts.

    :raises TableError: naming every column that no single text fills, and every rule that does not fit
    """
    columns = columns_of(schema, options, skip)
    if nested := [c.name for c in columns if c.children]:
        raise TableError(
            "LC4029", f"columns {', '.join(nested)} are structs, lists or maps, which one text cannot fill"
        )
    return columns


def wrong_texts(column: Column, texts: pa.Array) -> tuple[pa.Array, str] | None:
    """Return which non-null texts are certainly no values of a column, and the reason."""
    form = _form(column.wire)
    if form is None:
        return None
    good = pc.fill_null(pc.match_substring_regex(texts, form[0]), True)
    return (pc.invert(good), f"column {column.path} is not {form[1]}") if not pc.all(good).as_py() else None


def filled(column: Column, texts: pa.Array) -> pa.Array:
    wire = column.wire
    try:
        parsed = decimals_of(texts, wire) if pa.types.is_decimal(wire) else texts.cast(wire)
    except ValueError as e:
        raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e
    return column.finish(parsed)


def _form(wire: pa.DataType) -> tuple[str, str] | None:
    if pa.types.is_integer(wire):
        return _WHOLE
    if pa.types.is_boolean(wire):
        return _TRUTH
    return (NUMBER, "a number") if pa.types.is_floating(wire) or pa.types.is_decimal(wire) else None


def bad_texts(values: Sequence[bytes]) -> list[int]:
    """Return the positions of values that are not UTF-8."""
    try:
        pa.array(values, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return [i for i, value in enumerate(values) if not _is_text(value)]
    return []


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_SHORT = 38
"""Longest text whose digits, with as many zeros behind them, fit in 256 bits."""
_MOST_DIGITS = 76
_TOLD = 60


def decimals_of(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the numbers of texts, null for null."""
    odd = pc.or_(pc.greater(pc.binary_length(texts), _SHORT), pc.match_substring(texts, "e", ignore_case=True))
    positions = pc.indices_nonzero(odd.fill_null(False))
    if not len(positions):
        return _short(texts, target)
    plain = pc.if_else(odd, pa.scalar(None, texts.type), texts)
    rest = pa.array([_exactly(text, target) for text in texts.take(positions).to_pylist()], target)
    return pc.replace_with_mask(_short(plain, target), odd.fill_null(False), rest)


def _short(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return texts.cast(pa.decimal256(_MOST_DIGITS, target.scale)).cast(target)


def _exactly(text: str, target: pa.DataType) -> Decimal:
    shown = text if len(text) <= _TOLD else f"{text[:_TOLD]}…"
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:
        raise ValueError(f"{shown!r} is not a number") from None
    if not isinstance(exponent, int):
        raise ValueError(f"{shown!r} is not a number")
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    exponent += len(written) - len(significant)
    if significant and exponent < -target.scale:
        raise ValueError(
            f"{shown!r} has more than the {target.scale} decimals of decimal({target.precision}, {target.scale})"
        )
    if significant and len(significant) + exponent > target.precision - target.scale:
        raise ValueError(
            f"{shown!r} has more than the {target.precision} digits of decimal({target.precision}, {target.scale})"
        )
    return Decimal((sign, tuple(map(int, significant)), exponent)) if significant else Decimal(0)
