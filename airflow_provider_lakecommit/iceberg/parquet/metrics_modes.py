# SPDX-License-Identifier: Apache-2.0
"""The metrics mode of each column of a table: whether it is counted, and how long its bounds are.

Contract: modes depend on the column name: ``write.metadata.metrics.column.<name>``, else the default, else
``truncate(16)`` for the first 100 columns (``…max-inferred-column-defaults``) and none for the others. A sort column
gets at least ``truncate(16)``. An invalid mode is ignored, as by the Java writers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import ListType, MapType, NestedField, StructType

log = logging.getLogger(__name__)

MAX_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
MAX_INFERRED_DEFAULT = 100
LENGTH = 16
NONE, COUNTS, FULL = -1, 0, 1 << 31
"""Metrics modes as the length of their bounds; ``truncate(n)`` is n."""
_TRUNCATE = re.compile(r"truncate\((\d+)\)")


def lengths(schema: Schema, properties: Mapping[str, str], sorted_by: frozenset[int]) -> Callable[[int, str], int]:
    """The metrics mode of a column, by its id and name."""
    declared = properties.get(TableProperties.DEFAULT_WRITE_METRICS_MODE)
    first = None if declared is not None else _first_columns(schema, _most_inferred(properties))
    default = LENGTH if declared is None else _mode(declared, LENGTH)

    def length(field_id: int, name: str) -> int:
        inferred = default if first is None or field_id in first else NONE
        if field_id in sorted_by and inferred in (NONE, COUNTS):
            inferred = LENGTH
        own = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}")
        return inferred if own is None else _mode(own, inferred)

    return length


def _most_inferred(properties: Mapping[str, str]) -> int:
    try:
        most = int(properties.get(MAX_INFERRED, MAX_INFERRED_DEFAULT))
    except ValueError:
        most = -1
    return most if most >= 0 else MAX_INFERRED_DEFAULT


def _first_columns(schema: Schema, most: int) -> set[int]:
    """Return the ids of the columns that have metrics by default: of a struct first its primitive fields, then the
    nested ones.
    """
    ids: list[int] = []

    def visit(fields: Iterable[NestedField]) -> None:
        fields = tuple(fields)
        ids.extend(f.field_id for f in fields if f.field_type.is_primitive)
        for kind in (f.field_type for f in fields):
            if isinstance(kind, StructType):
                visit(kind.fields)
            elif isinstance(kind, ListType):
                visit([kind.element_field])
            elif isinstance(kind, MapType):
                visit([kind.key_field, kind.value_field])

    visit(schema.fields)
    return set(ids[:most])


def _mode(text: str, fallback: int) -> int:
    mode = text.strip().lower()
    if mode in ("none", "counts", "full"):
        return {"none": NONE, "counts": COUNTS, "full": FULL}[mode]
    cut = _TRUNCATE.fullmatch(mode)
    if cut is None or int(cut[1]) < 1:
        log.warning("Ignored unreadable metrics mode %r", text)
        return fallback
    return int(cut[1])
