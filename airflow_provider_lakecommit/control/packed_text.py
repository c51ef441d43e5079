# SPDX-License-Identifier: Apache-2.0
"""The text envelope of our data on the wire: readable JSON if small, compressed if large, refused above a limit.

A value of more than 8 kB is deflated and base64-encoded behind the mark ``z:``. Every envelope is an object with a
version ``v``; readers accept their version and the one before it. The limits hold for reading too: text that is too
long, unpacks into more than :mod:`.json_bounds` allows, or has a number that no offset can have, is damaged.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.control.json_bounds import TEXT_LIMIT, bounded_json, check_text
from airflow_provider_lakecommit.exceptions import WireError

VERSION = 1
COMPRESS_ABOVE = 8_000
CORRUPTION = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading damaged JSON values may raise; every reader of an envelope turns it into :class:`WireError`."""
_MARK = "z:"
_PACKED_LIMIT = 1 << 20
_LONG = 1 << 63


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
