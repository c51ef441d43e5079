# SPDX-License-Identifier: Apache-2.0
"""Floating-point numbers that SQL made too large.

Contract: :func:`overflown` names the rows in which a number is infinite, or none at all, though nothing of their record
is: the engine makes that of ``1e200 * 1e200``, where a record is to be refused. A record that has such a number itself,
or a text that says one (``NaN``, ``-inf``), may have it in its rows.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

__all__ = ["overflown"]

_SAYS_ONE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)


def overflown(column: pa.ChunkedArray, places: np.ndarray, records: pa.Table) -> list[int]:
    """The records that SQL alone made such a number of, in order.

    :param column: one that the SQL gave
    :param places: the record of each row
    """
    if not _has_floats(column.type) or all(map(_all_finite, column.chunks)):
        return []
    suspects = {place for place, value in zip(places.tolist(), column.to_pylist(), strict=True) if _odd(value)}
    return [i for i in sorted(suspects) if not _odd(records.slice(i, 1).to_pylist(), texts=True)]


def _has_floats(kind: pa.DataType) -> bool:
    if kinds.is_nested(kind):
        return any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(kinds.is_floating(kind))


def _all_finite(array: pa.Array) -> bool:
    """Also of what no row shows any more, which then costs a look at each row."""
    kind = array.type
    if kinds.is_struct(kind):
        return all(_all_finite(array.field(i)) for i in range(kind.num_fields))
    if kinds.is_map(kind):
        return _all_finite(array.keys) and _all_finite(array.items)
    if kinds.is_nested(kind):
        return _all_finite(array.values)
    return not kinds.is_floating(kind) or bool(pc.all(pc.is_finite(array), min_count=0).as_py())


def _odd(value: Any, *, texts: bool = False) -> bool:
    """Is it, or has it within, a number that is not finite?

    :param texts: does a text that says one count?
    """
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, str):
        return texts and _SAYS_ONE.fullmatch(value) is not None
    if isinstance(value, dict):
        return any(_odd(each, texts=texts) for each in value.values())
    return isinstance(value, list | tuple) and any(_odd(each, texts=texts) for each in value)
