# SPDX-License-Identifier: Apache-2.0
"""Readers of records, lists, maps and unions.

A record is read in its written order. Fields that the table lacks are skipped and noted, columns that the record lacks
are null. A required column without a value fails its record, unless its whole parent is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.formats.avro.block import Bools, Cursor, Ints, bitmap
from airflow_provider_lakecommit.formats.avro.items import each_item, entry_walk
from airflow_provider_lakecommit.formats.avro.scalars import Read
from airflow_provider_lakecommit.formats.avro.writer import WriterType

ReadColumns = Callable[[Cursor, Bools | None], list[pa.Array]]
"""Reads one record per cursor, and moves past it."""
Skip = Callable[[Cursor, Bools | None], None]
"""Moves past the values of a field that the table lacks."""
Step = tuple[int, Read] | Skip
"""The reader of a written field: of the column at a position, or of none."""


def required(read: Read, path: str) -> Read:
    """Return the reader of a column, or of a part of one, that must have a value."""

    def checked(cursor: Cursor, active: Bools | None) -> pa.Array:
        values = read(cursor, active)
        _require(values, path, cursor, active)
        return values

    return checked


def absent(target: pa.DataType) -> Read:
    """Return the reader of a column that the records lack, or that is always null there."""
    return lambda cursor, _active: pa.nulls(len(cursor), target)


def repeated(value: pa.Array) -> Read:
    """Return the reader of a column with the one value of an array in all records."""
    return lambda cursor, _active: value.take(pa.array(np.zeros(len(cursor), np.int64)))


def unfit(path: str, target: pa.DataType, written: WriterType, why: str) -> Read:
    """Return the reader of a value that its column cannot take: its record fails, unless it is null."""

    def refuse(cursor: Cursor, active: Bools | None) -> pa.Array:
        there = passed(written, cursor, active, path)
        bad = np.ones(len(cursor), np.bool_) if there is None else there
        if bad.any():
            cursor.fail(bad, "wrong_value", path, f"column {path}: {why}")
        return pa.nulls(len(cursor), target)

    return refuse


def unknown_field(path: str, written: WriterType, *, strict: bool) -> Skip:
    """Return what skips a field that the table lacks, and notes it if it has a value; with ``strict`` its record
    fails.
    """

    def skip(cursor: Cursor, active: Bools | None) -> None:
        there = passed(written, cursor, active, path)
        found = np.ones(len(cursor), np.bool_) if there is None else there
        if not found.any():
            return
        if strict:
            cursor.fail(found, "unknown_field", path, f"the table lacks the field {path}")
        else:
            cursor.block.unknown.setdefault(path, []).append(cursor.records[found])

    return skip


def record(steps: Sequence[Step], missing: Sequence[tuple[int, Read]]) -> ReadColumns:
    """Return the reader of a record.

    :param steps: its fields in written order
    :param missing: the columns that it lacks, with their positions
    """

    def read(cursor: Cursor, active: Bools | None) -> list[pa.Array]:
        made: dict[int, pa.Array] = {}
        for step in steps:
            if isinstance(step, tuple):
                made[step[0]] = step[1](cursor, active)
            else:
                step(cursor, active)
        made |= {position: each(cursor, active) for position, each in missing}
        return [made[position] for position in range(len(made))]

    return read


def struct(columns: ReadColumns, target: pa.DataType) -> Read:
    """Return the reader of a record as a struct."""

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        return pa.StructArray.from_arrays(columns(cursor, active), fields=list(target), mask=_mask(cursor, active))

    return read


def list_items(item: Read, written: WriterType, path: str, target: pa.DataType) -> Read:
    """Return the reader of an array as a list; ``written`` is the type of its items."""

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        owners, found = [], []
        for items, positions in each_item(cursor, active, written.least, path, written.stride, written.walk):
            found.append(item(items, None))
            owners.append(positions)
        offsets, values = _in_order(cursor, owners, found, target.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(cursor, active))

    return read


def map_items(key: Read, value: Read, written: WriterType, path: str, target: pa.DataType) -> Read:
    """Return the reader of a map; ``written`` is the type of its values. A repeated key fails the record."""
    walk = None if written.walk is None else entry_walk(written.walk)

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        owners, keys, values = [], [], []
        for items, positions in each_item(cursor, active, written.least + 1, path, walk=walk):
            keys.append(key(items, None))
            values.append(value(items, None))
            owners.append(positions)
        offsets, all_keys = _in_order(cursor, owners, keys, target.key_type)
        _, all_values = _in_order(cursor, owners, values, target.item_type)
        _check_keys(cursor, np.sort(np.concatenate(owners)) if owners else np.zeros(0, np.int64), all_keys, path)
        keys_there = all_keys.fill_null("") if all_keys.null_count else all_keys
        return pa.MapArray.from_arrays(offsets, keys_there, all_values, type=target, mask=_mask(cursor, active))

    return read


def _check_keys(cursor: Cursor, owners: Ints, keys: pa.Array, path: str) -> None:
    codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    positions = owners * (len(keys) + 1) + codes + 1
    numbers, counts = np.unique(positions, return_counts=True)
    twice = numbers[counts > 1] // (len(keys) + 1)
    if len(twice):
        bad = np.zeros(len(cursor), np.bool_)
        bad[twice] = True
        if (alive := cursor.live(None)) is not None:
            bad &= alive
        cursor.fail(bad, "wrong_value", path, f"column {path}: a key is given twice")


def branches(readers: Sequence[Read | None], written: WriterType, path: str, target: pa.DataType) -> Read:
    """Return the reader of a union whose types all become the column's.

    :param readers: in the order of the types, ``None`` for null
    """

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        chosen = branch_of(written, cursor, active, path)
        found = [
            (here, reader(cursor, here))
            for n, reader in enumerate(readers)
            if reader is not None and (here := chosen == n).any()
        ]
        if not found:
            return pa.nulls(len(cursor), target)
        if len(found) == 1:
            return found[0][1]
        positions = np.full(len(cursor), -1)
        for n, (here, _) in enumerate(found):
            positions[here] = n * len(cursor) + np.flatnonzero(here)
        buffers = [bitmap(positions >= 0), pa.py_buffer(positions)]
        arrays = pa.concat_arrays([array for _, array in found])
        return arrays.take(pa.Array.from_buffers(pa.int64(), len(positions), buffers))

    return read


def members(
    steps: Sequence[Step | None],
    missing: Sequence[tuple[int, Read]],
    must: Sequence[tuple[int, str]],
    written: WriterType,
    path: str,
    target: pa.DataType,
) -> Read:
    """Return the reader of a union of several types as a struct with one field per type, exactly one of which has a
    value.

    :param steps: in the order of the types, ``None`` for null
    :param must: required fields, which are missing from all records that have another
    """

    def read(cursor: Cursor, active: Bools | None) -> pa.Array:
        chosen = branch_of(written, cursor, active, path)
        made: dict[int, pa.Array] = {position: each(cursor, active) for position, each in missing}
        there = np.zeros(len(cursor), np.bool_)
        for n, step in enumerate(steps):
            here = chosen == n
            if step is None:
                continue
            if isinstance(step, tuple):
                made[step[0]] = step[1](cursor, here)
            else:
                step(cursor, here)
            there |= here
        for position, of_field in must:
            _require(made[position], of_field, cursor, there)
        columns = [made[position] for position in range(len(made))]
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=pa.array(~there))

    return read


def _require(values: pa.Array, path: str, cursor: Cursor, active: Bools | None) -> None:
    if not values.null_count:
        return
    missing = values.is_null().to_numpy(zero_copy_only=False)
    if (alive := cursor.live(active)) is not None:
        missing &= alive
    if missing.any():
        cursor.fail(missing, "missing_required", path, f"required column {path} is missing or null")


def _mask(cursor: Cursor, active: Bools | None) -> pa.Array | None:
    alive = cursor.live(active)
    return None if alive is None else pa.array(~alive)


def _in_order(
    cursor: Cursor, owners: Sequence[Ints], found: Sequence[pa.Array], kind: pa.DataType
) -> tuple[pa.Array, pa.Array]:
    """Return the offsets of each cursor's items, and all items in that order."""
    if not found:
        return pa.array(np.zeros(len(cursor) + 1, np.int32)), pa.nulls(0, kind)
    whose = np.concatenate(owners)
    counts = np.bincount(whose, minlength=len(cursor))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    values = pa.concat_arrays(found) if len(found) > 1 else found[0]
    if (whose[1:] < whose[:-1]).any():
        values = values.take(pa.array(np.argsort(whose, kind="stable")))
    return pa.array(offsets), values


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
