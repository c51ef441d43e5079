# SPDX-License-Identifier: Apache-2.0
"""The text envelope of our data on the wire: readable JSON if small, compressed if large, refused above a limit.

A value of more than 8 kB is deflated and base64-encoded behind the mark ``z:``. Every envelope is an object with a
version ``v``; readers accept their version and the one before it. The limits hold for reading too: text that is too
long, unpacks into more than :func:`check_text` allows, or has a number that no offset can have, is damaged.

JSON of unknown origin is measured before it is parsed, because a few bytes may unpack into a text that is parsed into a
thousand times its size. :func:`check_text` measures length, nesting and number of parts without building any;
:func:`bounded_json` parses what passed. Both ends check, so that nothing is written that no reader accepts. Bad text
raises :class:`ValueError` or :class:`RecursionError`, within a small multiple of its length of memory. ``NaN`` is
refused.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from airflow_provider_lakecommit.exceptions import WireError

VERSION = 1
COMPRESS_ABOVE = 8_000
CORRUPTION = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading damaged JSON values may raise; every reader of an envelope turns it into :class:`WireError`."""
_MARK = "z:"
_PACKED_LIMIT = 1 << 20
_LONG = 1 << 63
TEXT_LIMIT = 16 << 20
"""Bytes of a JSON text, unpacked. Our largest, a plan whose packed text fills its header, takes a quarter of that."""
DEPTH_LIMIT = 64
PARTS_LIMIT = 1_000_000
"""Commas and opening brackets: about as many values are built."""
# One that is not closed reaches to the end, so that the text is passed over once, whatever it holds.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def pack(values: Mapping[str, Any], *, what: str, limit: int, remedy: str) -> str:
    """Encode; ``limit`` is in bytes of the encoded text."""
    packed = raw = json.dumps({"v": VERSION, **values}, separators=(",", ":"), ensure_ascii=True)
    if len(packed) > COMPRESS_ABOVE:
        packed = _MARK + base64.b64encode(zlib.compress(packed.encode("ascii"), 6)).decode("ascii")
    if len(packed) > limit:
        raise WireError("LC2341", f"{what} takes {len(packed)} bytes, the limit is {limit}: {remedy}")
    try:
        check_text(raw.encode("ascii"))
    except ValueError as e:
        raise WireError("LC2342", f"{what} could not be read back, {e}: {remedy}") from e
    return packed


def unpack(packed: str | bytes, *, what: str, limit: int = _PACKED_LIMIT) -> dict[str, Any]:
    """Decode a text of at most ``limit`` bytes."""
    try:
        if len(packed) > limit:
            raise ValueError(f"it has {len(packed)} bytes, {limit} are read at most")
        raw = packed.decode("ascii", "replace") if isinstance(packed, bytes) else packed
        if raw.startswith(_MARK):
            raw = _inflated(base64.b64decode(raw[len(_MARK) :], validate=True))
        values = bounded_json(raw)
        version = number(values["v"])
    except (*CORRUPTION, zlib.error) as e:
        raise WireError(
            "LC2343", f"{what} is corrupt or was not written by this provider: {type(e).__name__} {e}"
        ) from e
    if version > VERSION:
        raise WireError(
            "LC2344",
            f"{what} has version {version}, this release reads up to {VERSION}: upgrade airflow-provider-lakecommit",
        )
    if version < VERSION - 1:
        raise WireError(
            "LC2345", f"{what} has version {version}, this release reads from {VERSION - 1} on: it is too old"
        )
    return dict(values)


def number(value: Any) -> int:
    """Return a whole number of 64 bits, and nothing that merely resembles one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r:.80} is not a whole number")
    if not -_LONG <= value < _LONG:
        raise ValueError("a number has more than 64 bits")
    return value


def count(value: Any) -> int:
    """Return a :func:`number` that is not negative."""
    # There are dozens in each record, and nearly all are this.
    if type(value) is int and 0 <= value < _LONG:
        return value
    if (found := number(value)) < 0:
        raise ValueError(f"{found} is below 0")
    return found


def text(value: Any) -> str:
    """Return a text that can be shown and stored: a lone half of a surrogate pair is replaced."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    if value.isascii():
        return value
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value if whole == value else whole


def _inflated(data: bytes) -> str:
    inflate = zlib.decompressobj()
    out = inflate.decompress(data, TEXT_LIMIT + 1)
    if not inflate.eof:
        raise ValueError("it is cut off, or too large")
    return out.decode("ascii")


def check_text(raw: bytes, *, depth: int = DEPTH_LIMIT, parts: int = PARTS_LIMIT, limit: int = TEXT_LIMIT) -> None:
    """Raise if the text is too long, too deep or has too many parts."""
    if len(raw) > limit:
        raise ValueError(f"it has {len(raw)} bytes, {limit} are read at most")
    opened = raw.count(b"[") + raw.count(b"{")
    if opened <= depth and opened + raw.count(b",") <= parts:
        # It is none of that even if all of these stand outside of strings, as with nearly every text.
        return
    bare = _STRING.sub(b"", raw)
    brackets = bare.translate(None, _NO_BRACKETS)
    found = bare.count(b",") + brackets.count(b"[") + brackets.count(b"{")
    if found > parts:
        raise ValueError(f"it has {found} parts, {parts} are read at most")
    deepest = max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
    if deepest > depth:
        raise ValueError(f"it is nested {deepest} deep, {depth} are read at most")


def bounded_json(text: str, *, depth: int = DEPTH_LIMIT, parts: int = PARTS_LIMIT, limit: int = TEXT_LIMIT) -> Any:
    """Return the value of a text within the bounds."""
    if len(text) > limit:
        raise ValueError(f"it has {len(text)} letters, {limit} are read at most")
    check_text(text.encode("utf-8", "surrogatepass"), depth=depth, parts=parts, limit=limit)
    return _DECODER.decode(text)


def _constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("it holds NaN, which is no number")
    return float(name)


_DECODER = json.JSONDecoder(parse_constant=_constant)
