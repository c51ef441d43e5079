# SPDX-License-Identifier: Apache-2.0
"""How the values of a scalar column are read: the parser's type, and the conversion to the table's.

A conversion returns the same values at the same positions, nulls included, or raises :class:`ValueError`. It never
rounds, cuts, guesses or fills in.

Bytes in JSON are read by a declared encoding, never a guessed one. ``base64`` and ``base64url`` must be canonical
(RFC 4648); ``base64url`` may lack padding. ``hex`` takes both cases. ``utf8`` are the bytes of the text. A ``fixed[n]``
takes exactly n bytes. A decimal with encoding ``base64`` is written as by Kafka Connect: a big-endian whole number,
scaled by the column. A uuid is 8-4-4-4-12 hexadecimal digits (RFC 9562).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[pa.Array, pa.DataType], pa.Array]
_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
MOST_DIGITS = 76
"""Digits of a number of 256 bits."""
_EXACT = Context(prec=38)
_NIL = "00000000-0000-0000-0000-000000000000"
_URL_SAFE = str.maketrans("-_+/", "+/  ")


def unchanged(array: pa.Array, _target: pa.DataType) -> pa.Array:
    return array


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a scalar; ``convert`` takes arrays of the parser's type ``wire``."""

    wire: pa.DataType
    convert: Convert = unchanged


def require(truths: pa.Array, values: pa.Array, what: str) -> None:
    """Raise :class:`ValueError` for the first of the ``values`` whose truth is false."""
    if not pc.all(truths, min_count=0).as_py():
        raise ValueError(f"{values.filter(pc.invert(truths))[0].as_py()!r} is {what}")


def whole_numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert whole numbers of up to 64 bits to integers, or to a decimal that holds them."""
    if pa.types.is_decimal(target):
        wide = values.cast(pa.decimal256(MOST_DIGITS, 0)).cast(pa.decimal256(MOST_DIGITS, target.scale))
        return wide.cast(target)
    return values.cast(target)


def octet_reading(encoding: str) -> Reading:
    """Return the reading of a binary or fixed column by an encoding."""
    decode = _DECODERS[encoding]
    return Reading(pa.string(), lambda array, target: _each(array, decode, target))


def unscaled_reading() -> Reading:
    """Return the reading of a decimal written as the bytes of its digits."""
    return Reading(pa.string(), lambda array, target: _each(array, partial(_unscaled, target), target))


def _each(texts: pa.Array, decode: Callable[[str], Any], target: pa.DataType) -> pa.Array:
    return pa.array([None if text is None else decode(text) for text in texts.to_pylist()], target)


def _unscaled(target: pa.DataType, text: str) -> Decimal:
    if not text:
        raise ValueError("an empty text is not a number")
    digits = int.from_bytes(_base64(text), "big", signed=True)
    if abs(digits) >= 10**target.precision:
        raise ValueError(f"{digits} has more than the {target.precision} digits of its column")
    return Decimal(digits).scaleb(-target.scale, _EXACT)


def _base64(text: str) -> bytes:
    octets = binascii.a2b_base64(text, strict_mode=True)
    if binascii.b2a_base64(octets, newline=False) != text.encode():
        raise ValueError(f"{text!r} is not canonical base64: it has bits that would be lost")
    return octets


def _base64url(text: str) -> bytes:
    padded = text if "=" in text else text + "=" * (-len(text) % 4)
    return _base64(padded.translate(_URL_SAFE))


def _uuid(array: pa.Array, target: pa.DataType) -> pa.Array:
    require(pc.match_substring_regex(array, _UUID), array, "not a uuid (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)")
    digits = pc.replace_substring(array.fill_null(_NIL), "-", "")
    octets = binascii.unhexlify("".join(digits.to_pylist()))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(array), [None, pa.py_buffer(octets)])
    if array.null_count:
        values = pc.if_else(array.is_valid(), values, pa.scalar(None, pa.binary(16)))
    return target.wrap_array(values) if isinstance(target, pa.BaseExtensionType) else values


_DECODERS: dict[str, Callable[[str], bytes]] = {
    "base64": _base64,
    "base64url": _base64url,
    "hex": binascii.unhexlify,
    "utf8": str.encode,
}
UUID_READING = Reading(pa.string(), _uuid)
