# SPDX-License-Identifier: Apache-2.0
"""Bytes in JSON: binary and fixed by a declared encoding, uuid by its canonical text.

An encoding is never guessed. ``base64`` and ``base64url`` must be canonical (RFC 4648); ``base64url`` may lack padding.
``hex`` takes both cases. ``utf8`` are the bytes of the text. A ``fixed[n]`` takes exactly n bytes. A decimal with
encoding ``base64`` is written as by Kafka Connect: a big-endian whole number, scaled by the column. A uuid is
8-4-4-4-12 hexadecimal digits (RFC 9562).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.reading import Reading, require

_UUID = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
_EXACT = Context(prec=38)
_NIL = "00000000-0000-0000-0000-000000000000"
_URL_SAFE = str.maketrans("-_+/", "+/  ")


def octet_reading(encoding: str) -> Reading:
    """Return the reading of a binary or fixed column by an encoding."""
    decode = _DECODERS[encoding]

    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        return pa.array([None if text is None else decode(text) for text in array.to_pylist()], target)

    return Reading(pa.string(), convert)


def unscaled_reading() -> Reading:
    """Return the reading of a decimal written as the bytes of its digits."""

    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        return pa.array([None if text is None else _unscaled(text, target) for text in array.to_pylist()], target)

    return Reading(pa.string(), convert)


def _unscaled(text: str, target: pa.DataType) -> Decimal:
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
