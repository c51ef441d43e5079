# SPDX-License-Identifier: Apache-2.0
"""Readers of records, lists, maps and unions.

A record is read in its written order. Fields that the table lacks are skipped and noted, columns that the record lacks
are null. A required column without a value fails its record, unless its whole parent is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.formats.avro.block import Bools, Cursor, Ints, bitmap
from airflow_provider_lakecommit.formats.avro.items import each_item, entry_walk
from airflow_provider_lakecommit.formats.avro.scalars import Reader
from airflow_provider_lakecommit.formats.avro.writer import WriterType


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """A column, or a part of one, that must have a value."""

    path: str
    inner: Reader

    @property
    def target(self) -> pa.DataType:
        return self.inner.target

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        values = self.inner.read(cursor, active)
        _require(values, self.path, cursor, active)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A column that the records lack, or that is always null there: null, or the one value of ``default``."""

    target: pa.DataType
    default: pa.Array | None = None

    def read(self, cursor: Cursor, _active: Bools | None) -> pa.Array:
        if self.default is None:
            return pa.nulls(len(cursor), self.target)
        return self.default.take(pa.array(np.zeros(len(cursor), np.int64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """A value that its column cannot take: its record fails, unless it is null."""

    path: str
    target: pa.DataType
    written: WriterType
    why: str

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        there = passed(self.written, cursor, active, self.path)
        bad = np.ones(len(cursor), np.bool_) if there is None else there
        if bad.any():
            cursor.fail(bad, "wrong_value", self.path, f"column {self.path}: {self.why}")
        return pa.nulls(len(cursor), self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownField:
    """A field that the table lacks: skipped, and noted if it has a value; or its record fails."""

    path: str
    written: WriterType
    strict: bool

    def skip(self, cursor: Cursor, active: Bools | None) -> None:
        there = passed(self.written, cursor, active, self.path)
        found = np.ones(len(cursor), np.bool_) if there is None else there
        if not found.any():
            return
        if self.strict:
            cursor.fail(found, "unknown_field", self.path, f"the table lacks the field {self.path}")
        else:
            cursor.block.unknown.setdefault(self.path, []).append(cursor.records[found])


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A record. ``steps`` are its fields in written order; ``absent`` are missing columns, with their positions."""

    target: pa.DataType
    steps: tuple[tuple[int, Reader] | UnknownField, ...]
    absent: tuple[tuple[int, Reader], ...]

    def columns(self, cursor: Cursor, active: Bools | None) -> list[pa.Array]:
        made: dict[int, pa.Array] = {}
        for step in self.steps:
            if isinstance(step, UnknownField):
                step.skip(cursor, active)
            else:
                made[step[0]] = step[1].read(cursor, active)
        made |= {position: reader.read(cursor, active) for position, reader in self.absent}
        return [made[position] for position in range(len(made))]

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        columns = self.columns(cursor, active)
        return pa.StructArray.from_arrays(columns, fields=list(self.target), mask=_mask(cursor, active))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListItems:
    """An array as a list; ``written`` is the type of its items."""

    path: str
    target: pa.DataType
    inner: Reader
    written: WriterType

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        owners, found, of = [], [], self.written
        for items, positions in each_item(cursor, active, of.least, self.path, of.stride, of.walk):
            found.append(self.inner.read(items, None))
            owners.append(positions)
        offsets, values = _in_order(cursor, owners, found, self.inner.target)
        return pa.ListArray.from_arrays(offsets, values, type=self.target, mask=_mask(cursor, active))


@dataclass(frozen=True, slots=True, kw_only=True)
class MapItems:
    """A map; ``written`` is the type of its values. A repeated key fails the record."""

    path: str
    target: pa.DataType
    key: Reader
    value: Reader
    written: WriterType

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        owners, keys, values, of = [], [], [], self.written
        walk = None if of.walk is None else entry_walk(of.walk)
        for items, positions in each_item(cursor, active, of.least + 1, self.path, walk=walk):
            keys.append(self.key.read(items, None))
            values.append(self.value.read(items, None))
            owners.append(positions)
        offsets, all_keys = _in_order(cursor, owners, keys, self.key.target)
        _, all_values = _in_order(cursor, owners, values, self.value.target)
        self._check(cursor, np.sort(np.concatenate(owners)) if owners else np.zeros(0, np.int64), all_keys)
        keys_there = all_keys.fill_null("") if all_keys.null_count else all_keys
        return pa.MapArray.from_arrays(offsets, keys_there, all_values, type=self.target, mask=_mask(cursor, active))

    def _check(self, cursor: Cursor, owners: Ints, keys: pa.Array) -> None:
        codes = keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        positions = owners * (len(keys) + 1) + codes + 1
        numbers, counts = np.unique(positions, return_counts=True)
        twice = numbers[counts > 1] // (len(keys) + 1)
        if len(twice):
            bad = np.zeros(len(cursor), np.bool_)
            bad[twice] = True
            if (alive := cursor.live(None)) is not None:
                bad &= alive
            cursor.fail(bad, "wrong_value", self.path, f"column {self.path}: a key is given twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """A union whose types all become the column's; ``readers`` are in their order, ``None`` for null."""

    path: str
    target: pa.DataType
    written: WriterType
    readers: tuple[Reader | None, ...]

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        branches = branch_of(self.written, cursor, active, self.path)
        found, chosen = list[pa.Array](), list[Bools]()
        for n, reader in enumerate(self.readers):
            here = branches == n
            if reader is not None and here.any():
                found.append(reader.read(cursor, here))
                chosen.append(here)
        if not found:
            return pa.nulls(len(cursor), self.target)
        if len(found) == 1:
            return found[0]
        positions = np.full(len(cursor), -1)
        for n, here in enumerate(chosen):
            positions[here] = n * len(cursor) + np.flatnonzero(here)
        buffers = [bitmap(positions >= 0), pa.py_buffer(positions)]
        return pa.concat_arrays(found).take(pa.Array.from_buffers(pa.int64(), len(positions), buffers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """A union of several types as a struct with one field per type, exactly one of which has a value.

    A ``required`` one is missing from all records that have another.
    """

    path: str
    target: pa.DataType
    written: WriterType
    readers: tuple[tuple[int, Reader] | UnknownField | None, ...]
    absent: tuple[tuple[int, Reader], ...]
    required: tuple[tuple[int, str], ...] = ()

    def read(self, cursor: Cursor, active: Bools | None) -> pa.Array:
        branches = branch_of(self.written, cursor, active, self.path)
        made: dict[int, pa.Array] = {position: reader.read(cursor, active) for position, reader in self.absent}
        there = np.zeros(len(cursor), np.bool_)
        for n, reader in enumerate(self.readers):
            here = branches == n
            if isinstance(reader, UnknownField):
                reader.skip(cursor, here)
            elif reader is not None:
                made[reader[0]] = reader[1].read(cursor, here)
            if reader is not None:
                there |= here
        for position, path in self.required:
            _require(made[position], path, cursor, there)
        columns = [made[position] for position in range(len(made))]
        return pa.StructArray.from_arrays(columns, fields=list(self.target), mask=pa.array(~there))


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
