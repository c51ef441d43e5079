# SPDX-License-Identifier: Apache-2.0
"""Texts of numbers as decimals, exactly or not at all.

Arrow converts short texts without an exponent correctly. Of others it may silently make another number: 1 of 2¹²⁸ + 1,
0 of ``1e-41``. :func:`decimals_of` converts these in Python, one by one.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

_SHORT = 38
"""Longest text whose digits, with as many zeros behind them, fit in 256 bits."""
_MOST_DIGITS = 76
_TOLD = 60


def decimals_of(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the numbers of texts, null for null.

    :raises ValueError: a text is not a number, or the target does not hold it
    """
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
        raise ValueError(f"{shown!r} has more than the {target.scale} decimals of {target}")
    if significant and len(significant) + exponent > target.precision - target.scale:
        raise ValueError(f"{shown!r} has more than the {target.precision} digits of {target}")
    return Decimal((sign, tuple(map(int, significant)), exponent)) if significant else Decimal(0)
