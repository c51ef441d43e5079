# SPDX-License-Identifier: Apache-2.0
"""Text envelope of everything that is ours on the wire: readable JSON while small, compressed when large, refused above
a limit.

Contract: ``unpack(pack(x)) == x`` for JSON values. A value of more than 8 kB is deflated and base64-encoded behind the
mark ``z:``, so that a reader needs no side information. Every envelope is an object with a version ``v``; a reader
takes its own version and the one before it. Failure story: over the limit, damaged, or of a version that is not read:
:class:`WireError` that says what it was and what to do. A small text that unpacks into more than 64 MiB is damaged.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.exceptions import WireError

__all__ = ["COMPRESS_ABOVE", "DAMAGE", "VERSION", "number", "pack", "text", "unpack"]

VERSION = 1
COMPRESS_ABOVE = 8_000
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What reading damaged JSON values may raise; every reader of an envelope turns it into :class:`WireError`."""
_MARK = "z:"
_UNPACKED_LIMIT = 64 << 20


def pack(values: Mapping[str, Any], *, what: str, limit: int, remedy: str) -> str:
    """Encode; ``limit`` is in bytes of the encoded text.

    :raises WireError: when the text is over ``limit``
    """
    packed = json.dumps({"v": VERSION, **values}, separators=(",", ":"), ensure_ascii=True)
    if len(packed) > COMPRESS_ABOVE:
        packed = _MARK + base64.b64encode(zlib.compress(packed.encode("ascii"), 6)).decode("ascii")
    if len(packed) > limit:
        raise WireError(f"{what} takes {len(packed)} bytes, the limit is {limit}: {remedy}")
    return packed


def unpack(packed: str | bytes, *, what: str) -> dict[str, Any]:
    """Decode.

    :raises WireError: when the text is damaged, not ours, or of a version that is not read
    """
    raw = packed.decode("ascii", "replace") if isinstance(packed, bytes) else packed
    try:
        if raw.startswith(_MARK):
            raw = _inflated(base64.b64decode(raw[len(_MARK) :], validate=True))
        values = json.loads(raw)
        version = number(values["v"])
    except (*DAMAGE, zlib.error) as e:
        raise WireError(f"{what} is damaged or was not written by this provider: {type(e).__name__} {e}") from e
    if version > VERSION:
        raise WireError(
            f"{what} has version {version}, this release reads up to {VERSION}: upgrade airflow-provider-lakecommit"
        )
    if version < VERSION - 1:
        raise WireError(f"{what} has version {version}, this release reads from {VERSION - 1} on: it is too old")
    return dict(values)


def number(value: Any) -> int:
    """A whole number, and nothing that merely looks like one.

    :raises TypeError: anything else
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r:.80} is not a whole number")
    return value


def text(value: Any) -> str:
    """:raises TypeError: anything but a text"""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    return value


def _inflated(data: bytes) -> str:
    inflate = zlib.decompressobj()
    out = inflate.decompress(data, _UNPACKED_LIMIT)
    if not inflate.eof:
        raise ValueError("it is cut off, or too large")
    return out.decode("ascii")
