# SPDX-License-Identifier: Apache-2.0
"""Numbers with so many decimals that Arrow's parser must never see them in a decimal column.

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

_LEAST = 39
# 39 decimals need an exponent of 20 or more, or 20 written digits. Several patterns are faster than one: each begins
# with literal bytes.
_SUSPECT = (
    r"""[eE]-0*([2-9][0-9]|[0-9]{3,})[\s,}\]"]""",
    r"\.[0-9]{20}",
    r"\\u00(2[bBdDeE]|3[0-9]|[46]5)",
)
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
    """Return the values that the parser must not get, by position.

    :param columns: of :func:`with_decimals`
    """
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
