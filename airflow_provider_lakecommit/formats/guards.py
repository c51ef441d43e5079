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
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.formats.decoder import Refusal

ROW = "r"
_HEAD, _JOINT, _TAIL = b'{"r":', b'}\n{"r":', b"}\n"
_NULL_DOCUMENT = re.compile(rb"\}[ \t\r\n]*null")
_BRACE, _SPACE, _N = 0x7D, 0x20, 0x6E
_CACHED = 1 << 17
"""Bytes examined at a time, so that intermediate arrays stay in the processor's cache."""


def block_text(values: Sequence[bytes]) -> bytes:
    """Return the values as one text for the parser.

    :raises Refusal: some value is not UTF-8, or would hand the parser a document ``null``
    """
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
