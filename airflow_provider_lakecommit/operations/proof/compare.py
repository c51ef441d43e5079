# SPDX-License-Identifier: Apache-2.0
"""Compare the rows of a table with the rows that its source gives now, record by record and column by column.

Contract: pure. Both sides name their record in the same columns. A record may have several rows, in any order. Two
values are equal if they are the same value, null included; floating-point numbers are compared by their bits, so that
0.0 is not -0.0, and any NaN equals any other. A column that the table lacks has nulls.

Rows that the source gives and the table lacks are lost, further rows of a record that the source has are doubled, and
rows of a record that gives none are foreign. A row that replaces another one is altered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, Any]
MOST_EXAMPLES = 10
MOST_VALUE = 200
"""Characters of a value in an example."""


@dataclass(frozen=True, slots=True)
class Example:
    """One difference; ``column`` and the values are those of an altered row."""

    kind: str
    topic: str
    partition: int
    offset: int
    column: str = ""
    source: str = ""
    table: str = ""

    def __str__(self) -> str:
        values = f", column {self.column}: the source has {self.source}, the table {self.table}" if self.column else ""
        return f"{self.kind}: {self.topic}[{self.partition}] offset {self.offset}{values}"


@dataclass(slots=True)
class Differences:
    """Numbers of rows by kind, and the first examples."""

    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)

    def add(self, other: Differences) -> None:
        self.rows += other.rows
        self.counts += other.counts
        self.examples += other.examples[: max(0, MOST_EXAMPLES - len(self.examples))]

    def note(self, rows: int, example: Example) -> None:
        self.counts[example.kind] += rows
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(example)


def compare(
    source: pa.Table, table: pa.Table, marks: Sequence[str], *, ignored: Sequence[str] = (), only_common: bool = False
) -> Differences:
    """Return how the rows of a table differ from those of the source.

    :param marks: columns with topic, partition and offset of a row's record
    :param ignored: columns that are not compared
    :param only_common: compare only records that both have
    """
    out = Differences(rows=table.num_rows)
    ours, theirs, records = _numbered(source, table, marks)
    many = np.stack([np.bincount(ours, minlength=records), np.bincount(theirs, minlength=records)])
    columns = [name for name in source.column_names if name not in ignored]
    table = _with_columns(table, source.schema)
    order = np.argsort(ours, kind="stable"), np.argsort(theirs, kind="stable")
    paired = many[0] == many[1]
    one, other = (rows[paired[of[rows]]] for rows, of in zip(order, (ours, theirs), strict=True))
    left, right = source.take(pa.array(one)), table.take(pa.array(other))
    equal = np.ones(len(one), bool)
    for name in columns:
        equal &= same(_array(left.column(name)), _array(right.column(name)))
    suspects = np.zeros(records, bool)
    suspects[ours[one[~equal]]] = True
    if not only_common:
        suspects |= ~paired
    if not suspects.any():
        return out
    rows: dict[int, tuple[list[int], list[int]]] = {}
    for side, of in enumerate((ours, theirs)):
        for row in np.flatnonzero(suspects[of]).tolist():
            rows.setdefault(int(of[row]), ([], []))[side].append(row)
    for record in sorted(rows):
        for rows_of_kind, example in _differing(source, table, marks, columns, rows[record]):
            out.note(rows_of_kind, example)
    return out


def same(one: pa.Array, other: pa.Array) -> Numbers:
    """Return which values of two arrays of one type are the same."""
    both_null = one.is_null().to_numpy(zero_copy_only=False) & other.is_null().to_numpy(zero_copy_only=False)
    valid = one.is_valid().to_numpy(zero_copy_only=False) & other.is_valid().to_numpy(zero_copy_only=False)
    one, other = (x.storage if isinstance(x, pa.ExtensionArray) else x for x in (one, other))
    kind = one.type
    if pa.types.is_floating(kind):
        bits = {16: np.int16, 32: np.int32, 64: np.int64}[kind.bit_width]
        a, b = (x.fill_null(0).to_numpy(zero_copy_only=False) for x in (one, other))
        equal = (a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))
    elif pa.types.is_struct(kind):
        equal = np.ones(len(one), bool)
        for a, b in zip(one.flatten(), other.flatten(), strict=True):
            equal &= same(a, b)
    elif pa.types.is_nested(kind):
        plain = _without_times(kind)
        a, b = (np.array(list(map(repr, x.cast(plain).to_pylist())), object) for x in (one, other))
        equal = a == b
    elif pa.types.is_null(kind):
        equal = np.ones(len(one), bool)
    else:
        equal = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    found: Numbers = both_null | (valid & equal)
    return found


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Return a type with the numbers of dates and times: Python has none beyond the years 1 to 9999."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_without_times(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = (f.with_type(_without_times(f.type)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    return kind


def _numbered(source: pa.Table, table: pa.Table, marks: Sequence[str]) -> tuple[Numbers, Numbers, int]:
    """Return a number for the record of each row, equal in both tables, in the order of partitions and offsets."""
    topic, partition, offset = (
        pa.concat_arrays([_array(t.column(name)).cast(kind) for t in (source, table)])
        for name, kind in zip(marks, (pa.string(), pa.int64(), pa.int64()), strict=True)
    )
    names = topic.dictionary_encode()
    parts = [names.indices.to_numpy().astype(np.int64), partition.to_numpy(), offset.to_numpy()]
    numbers = np.zeros(len(offset), np.int64)
    for part in parts:
        values, at = np.unique(part, return_inverse=True)
        numbers = np.unique(numbers * max(1, len(values)) + at, return_inverse=True)[1]
    return numbers[: source.num_rows], numbers[source.num_rows :], int(numbers.max(initial=-1)) + 1


def _differing(
    source: pa.Table, table: pa.Table, marks: Sequence[str], columns: Sequence[str], rows: tuple[list[int], list[int]]
) -> Iterator[tuple[int, Example]]:
    parts = [t.select(columns).take(pa.array(r, pa.int64())) for t, r in zip((source, table), rows, strict=True)]
    try:
        some = [part.to_pylist() for part in parts]
    except (ValueError, OverflowError):
        plain = [pa.schema([f.with_type(_without_times(f.type)) for f in part.schema]) for part in parts]
        some = [part.cast(schema).to_pylist() for part, schema in zip(parts, plain, strict=True)]
    topic, partition, offset = (
        (source if rows[0] else table).column(name)[(rows[0] or rows[1])[0]].as_py() for name in marks
    )

    def example(kind: str, *values: str) -> Example:
        return Example(kind, topic, partition, offset, *values)

    texts = [Counter(repr(row) for row in side) for side in some]
    lacking, further = (
        [row for row in some[n] if _taken(rest, repr(row))]
        for n, rest in enumerate((texts[0] - texts[1], texts[1] - texts[0]))
    )
    for ours, theirs in zip(lacking, further, strict=False):
        name = next(n for n in columns if repr(ours[n]) != repr(theirs[n]))
        yield 1, example("altered", name, _text(ours[name]), _text(theirs[name]))
    pairs = min(len(lacking), len(further))
    if rest := len(lacking) - pairs:
        yield rest, example("lost")
    if rest := len(further) - pairs:
        yield rest, example("doubled" if rows[0] else "foreign")


def _taken(rest: Counter[str], text: str) -> bool:
    """Take one occurrence of a text, if any is left."""
    if rest[text] <= 0:
        return False
    rest[text] -= 1
    return True


def _text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, with nulls for those that the table lacks."""
    found = [
        table.column(f.name).cast(f.type) if f.name in table.column_names else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    return pa.table(found, names=schema.names)


def _array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
