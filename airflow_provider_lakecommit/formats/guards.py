# SPDX-License-Identifier: Apache-2.0
"""Make a block of JSON values safe for Arrow's parser: each value is exactly one row, or refused.

The parser reads a stream of documents: alone, it would drop empty values, read two rows from one value, take ``null``
for a document (which ends the process) and invalid UTF-8 for text. So every value is wrapped as ``{"r":`` value ``}``:

- empty, truncated, several documents, trailing garbage, a byte order mark become syntax errors;
- ``null``, numbers, arrays, texts are no object by the type of ``r``;
- values cannot merge: ``}`` and ``{`` around a raw line feed are legal nowhere inside a value. If there are as many
  rows as values they are aligned; a value that closes the wrapper gives an extra row, or a field beside ``r``.

What remains is a value that closes the wrapper and goes on with the document ``null``: a ``}`` before an ``n``, or
before white space (rare in compact JSON), is examined closely.

Numbers with so many decimals that Arrow's parser must never see them in a decimal column.

If a number has 39 more decimals than its column keeps, the parser reads beyond a table of powers: ``1e-60`` becomes
zero, ``1e-999999999`` ends the process. :func:`too_fine` finds such values first, by searching the bytes for the few
ways to write one; only values with one of these are read a second time. Such a value that is no JSON object, or nested
too deep, is refused here, since the parser may convert a second document before it finds the error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.columns import Column
from airflow_provider_lakecommit.formats.decoder import Refusal

ROW = "r"
_HEAD, _JOINT, _TAIL = b'{"r":', b'}\n{"r":', b"}\n"
_NULL_DOCUMENT = re.compile(rb"\}[ \t\r\n]*null")
_BRACE, _SPACE, _N = 0x7D, 0x20, 0x6E
_CACHED = 1 << 17
"""Bytes examined at a time, so that intermediate arrays stay in the processor's cache."""


def block_text(values: Sequence[bytes]) -> bytes:
    """Return the values as one text for the parser."""
    # The ends are put on first, so that the text is built once and not copied.
    pieces = list(values)
    pieces[0] = _HEAD + pieces[0]
    pieces[-1] += _TAIL
    text = _JOINT.join(pieces)
    try:
        ends = pa.py_buffer(np.array([0, len(text)], np.int64))
        pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(text)]).validate(full=True)
    except pa.ArrowInvalid as e:
        raise Refusal("not_json", None, "the value is not valid UTF-8") from e
    if _suspicious(text, len(values)) and any(_smuggles_null(v) for v in values):
        raise Refusal("not_json", None, "the value is not one JSON document")
    return text


def _suspicious(text: bytes, values: int) -> bool:
    """Return True if a ``}`` directly precedes an ``n``, or white space other than that between two values."""
    octets, joints = np.frombuffer(text, np.uint8), 0
    for at in range(0, len(octets) - 1, _CACHED):
        part = octets[at : at + _CACHED + 1]
        brace, after = part[:-1] == _BRACE, part[1:]
        joints += int(np.count_nonzero(brace & (after <= _SPACE)))
        if (brace & (after == _N)).any():
            return True
    return joints != values


def _smuggles_null(value: bytes) -> bool:
    if not _NULL_DOCUMENT.search(value):
        return False
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return True
    return False


_LEAST = 39
# 39 decimals need an exponent of 20 or more, or 20 written digits. Several patterns are faster than one: each begins
# with literal bytes.
_SUSPECT = (r"""[eE]-0*([2-9][0-9]|[0-9]{3,})[\s,}\]"]""", r"\.[0-9]{20}", r"\\u00(2[bBdDeE]|3[0-9]|[46]5)")
_END = re.compile(r"(?:\.(?P<fraction>[0-9]*))?(?:[eE](?P<sign>[+-]?)0*(?P<power>[0-9]*))?\Z")
_MOST_DIGITS = 20
"""Digits of an exponent that are read; longer ones are out of bounds anyway."""


def with_decimals(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return the columns that the parser reads decimals for."""
    return tuple(c for c in columns if any(pa.types.is_decimal(node.wire) for node in c.nodes()))


def may_be_too_fine(text: bytes) -> bool:
    """Return True if some value of a block's text may hold such a number."""
    ends = pa.py_buffer(np.array([0, len(text)], np.int64))
    return bool(_suspects(pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(text)])).any())


def too_fine(columns: Sequence[Column], values: Sequence[bytes]) -> dict[int, Refusal]:
    """Return the values that the parser must not get, by position."""
    found: dict[int, Refusal] = {}
    for i in np.flatnonzero(_suspects(pa.array(values, pa.binary()))).tolist() if columns else ():
        try:
            record = json.loads(values[i].decode(), parse_float=str, parse_int=str)
        except (ValueError, RecursionError) as e:
            found[i] = Refusal("not_json", None, f"the value is not valid JSON: {getattr(e, 'msg', 'nested too deep')}")
            continue
        if (path := next(_below(columns, record), None)) is not None:
            reason = f"column {path}: a number has too many decimals"
            found[i] = Refusal("wrong_value", path, reason)
    return found


def _suspects(texts: pa.Array) -> Any:
    found = np.zeros(len(texts), bool)
    for pattern in _SUSPECT:
        found |= pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


def _below(columns: Sequence[Column], record: Any) -> Iterator[str]:
    for column in columns if isinstance(record, dict) else ():
        yield from _within(column, record.get(column.name))


def _within(column: Column, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _below(column.children, value)
    elif isinstance(value, list):
        for element in value:
            yield from _below(column.children, element) if column.is_map else _within(column.children[0], element)
    elif isinstance(value, str) and pa.types.is_decimal(column.wire) and _is_too_fine(value, column.target.type.scale):
        yield column.path


def _is_too_fine(text: str, scale: int) -> bool:
    """Return True if a text has too many digits behind its point, whether it is a number or only ends as one."""
    end = _END.search(text)
    if end is None:
        return False
    power = int((end["power"] or "")[:_MOST_DIGITS] or 0)
    digits = len(end["fraction"] or "") + (power if end["sign"] == "-" else -power)
    return digits >= _LEAST + scale
