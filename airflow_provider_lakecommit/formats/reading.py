# SPDX-License-Identifier: Apache-2.0
"""How the values of a scalar column are read: the parser's type, and the conversion to the table's.

``convert`` returns the same values at the same positions, nulls included, or raises :class:`ValueError`. It never
rounds, cuts, guesses or fills in.
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
    """Raise :class:`ValueError` for the first of the ``values`` whose truth is false."""
    if not pc.all(truths, min_count=0).as_py():
        raise ValueError(f"{values.filter(pc.invert(truths))[0].as_py()!r} is {what}")
