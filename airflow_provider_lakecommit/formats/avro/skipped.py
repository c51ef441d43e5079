# SPDX-License-Identifier: Apache-2.0
"""Skip fields that a table lacks."""

from __future__ import annotations

import numpy as np

from airflow_provider_lakecommit.formats.avro.block import Bools, Cursor, Ints
from airflow_provider_lakecommit.formats.avro.items import each_item
from airflow_provider_lakecommit.formats.avro.walk import entry_walk
from airflow_provider_lakecommit.formats.avro.writer import WriterType

_WIDTHS = {"boolean": 1, "float": 4, "double": 8}


def passed(kind: WriterType, cursor: Cursor, active: Bools | None, path: str) -> Bools | None:
    """Move past the value; return which are present, ``None`` for all."""
    if kind.kind == "null":
        return np.zeros(len(cursor), np.bool_)
    if kind.least == 0:
        # It has no bytes, however many fields are in it.
        return cursor.live(active)
    if kind.kind == "union":
        return _passed_union(kind, cursor, active, path)
    if kind.kind in ("int", "long", "enum"):
        cursor.number(active, path)
    elif kind.kind in ("bytes", "string"):
        cursor.spans(active, path)
    elif kind.kind == "record":
        for each in kind.fields:
            passed(each.type, cursor, active, f"{path}.{each.name}")
            if (alive := cursor.live(active)) is not None and not alive.any():
                break
    elif kind.kind in ("array", "map"):
        _passed_items(kind, cursor, active, path)
    else:
        cursor.fixed(kind.size or _WIDTHS.get(kind.kind, 0), active, path)
    return cursor.live(active)


def _passed_items(kind: WriterType, cursor: Cursor, active: Bools | None, path: str) -> None:
    inner, of_map = kind.parts[0], kind.kind == "map"
    stride, walk = (None, inner.walk and entry_walk(inner.walk)) if of_map else (inner.stride, inner.walk)
    for items, _ in each_item(cursor, active, inner.least + of_map, path, stride, walk):
        if of_map:
            items.spans(None, f"{path}.key")
        passed(inner, items, None, f"{path}.{'value' if of_map else 'element'}")


def _passed_union(kind: WriterType, cursor: Cursor, active: Bools | None, path: str) -> Bools:
    branches = branch_of(kind, cursor, active, path)
    there = np.zeros(len(cursor), np.bool_)
    for n, part in enumerate(kind.parts):
        chosen = branches == n
        if part.kind != "null" and chosen.any():
            passed(part, cursor, chosen, path)
            there |= chosen
    alive = cursor.live(None)
    return there if alive is None else there & alive


def branch_of(kind: WriterType, cursor: Cursor, active: Bools | None, path: str) -> Ints:
    """Return each value's branch of a union; -1 if invalid."""
    found = cursor.number(active, path)
    wrong = (found < 0) | (found >= len(kind.parts))
    if wrong.any():
        cursor.fail(wrong, "not_avro", path, f"{path}: the index is beyond a union of {len(kind.parts)} types")
    alive = cursor.live(active)
    return found if alive is None else np.where(alive, found, -1)
