# SPDX-License-Identifier: Apache-2.0
"""How the values of a scalar column are read: what the JSON parser is asked for, and how that becomes the table's type.

Contract: ``convert`` takes an array of the type ``wire``, nulls included, and gives one of the table's type with the
same values at the same places, or raises :class:`ValueError` (Arrow's own ``ArrowInvalid`` is one) that says what is
wrong with a value of it. It never rounds, cuts off, guesses or fills in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[pa.Array, pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a scalar. Without ``convert`` the parser's array is the table's."""

    wire: pa.DataType
    convert: Convert | None = None


def require(truths: pa.Array, values: pa.Array, what: str) -> None:
    """Check that no truth is false.

    :raises ValueError: naming the first of the ``values`` whose is not
    """
    if not pc.all(truths, min_count=0).as_py():
        raise ValueError(f"{values.filter(pc.invert(truths))[0].as_py()!r} is {what}")
