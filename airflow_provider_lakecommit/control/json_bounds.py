# SPDX-License-Identifier: Apache-2.0
"""JSON of unknown origin, measured before it is parsed.

A few bytes may unpack into a text that is parsed into a thousand times its size. :func:`check_text` measures length,
nesting and number of parts without building any; :func:`bounded_json` parses what passed. Both ends check, so that
nothing is written that no reader accepts. Bad text raises :class:`ValueError` or :class:`RecursionError`, within a
small multiple of its length of memory. ``NaN`` is refused.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

TEXT_LIMIT = 16 << 20
"""Bytes of a JSON text, unpacked. Our largest, a plan whose packed text fills its header, takes a quarter of that."""
DEPTH_LIMIT = 64
PARTS_LIMIT = 1_000_000
"""Commas and opening brackets: about as many values are built."""
# One that is not closed reaches to the end, so that the text is passed over once, whatever it holds.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


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
