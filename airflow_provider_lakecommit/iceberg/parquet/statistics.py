# SPDX-License-Identifier: Apache-2.0
"""Statistics of a data file, as Iceberg's own writers make them.

Contract: :class:`Metrics` is created once per table; a :class:`Tally` gets every row group before it is written and,
with the footer, returns the statistics of the file. They follow the Iceberg specification and, where it leaves a
choice, the Java writers:

* Columns below a list or a map have only a size: no counts, no bounds. Columns of structs are like all others.
* ``nan_value_counts`` is set for every float and double, and no bound is NaN: NaNs are left out of the bounds, and a
  column of only NaNs has none. A lower bound of zero is -0.0, an upper one +0.0, as in Parquet.
* The metrics mode of a column decides what it has: ``write.metadata.metrics.column.<name>``, else the default, else
  ``truncate(16)`` for the first 100 columns (``…max-inferred-column-defaults``) and none for the others. A sort column
  gets at least ``truncate(16)``. An invalid mode is ignored, as by the Java writers.
* Bounds of strings are cut by code points, of binaries by bytes; a cut upper bound is raised in the last place that can
  be raised, surrogates left out, and is absent if there is none.

A footer has no bounds of values above 4 kB. Bounds of such columns are computed from the rows, so that a file is never
pruned by the bounds of its other row groups.
"""

from __future__ import annotations

import logging
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_MAX_INFERRED = "write.metadata.metrics.max-inferred-column-defaults"
_MAX_INFERRED_DEFAULT = 100
_LENGTH = 16
_NONE, _COUNTS = -1, 0
_MODES = {"none": _NONE, "counts": _COUNTS, "full": 1 << 31}
"""Metrics modes as the length of their bounds; ``truncate(n)`` is n."""
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_LONG_VALUE = 4096
"""Bytes of a value above which Parquet's footer has no bounds."""

_FLOATING = (FloatType, DoubleType)
_TEXTUAL = (StringType, BinaryType)
_FORMATS: dict[type[IcebergType], str] = {
    BooleanType: "<?",
    IntegerType: "<i",
    DateType: "<i",
    FloatType: "<f",
    DoubleType: "<d",
    **dict.fromkeys((LongType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType), "<q"),
}
_RAW = (*_TEXTUAL, FixedType, UUIDType)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of the file. ``path`` lead to it through structs; empty below a list or a map."""

    field_id: int
    kind: IcebergType
    name: str
    path: tuple[int, ...]
    length: int

    @property
    def counted(self) -> bool:
        return bool(self.path) and self.length != _NONE

    @property
    def bounded(self) -> bool:
        return self.counted and self.length > _COUNTS and (type(self.kind) in _FORMATS or self._has_bytes)

    @property
    def _has_bytes(self) -> bool:
        return isinstance(self.kind, (*_RAW, DecimalType))

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """The column, null where a struct around it is."""
        first, *inner = self.path
        column = table.column(first)
        return pc.struct_field(column, inner) if inner else column


class Metrics:
    """What is counted and bounded for each column of a table.

    :param sorted_by: ids of the columns that the files are sorted by, where their order is that of the values
    """

    def __init__(self, schema: Schema, properties: Mapping[str, str], sorted_by: Iterable[int] = ()) -> None:
        length = _lengths(schema, properties, frozenset(sorted_by))
        self.leaves = tuple(
            _Leaf(field_id, kind, name, path, length(field_id, name)) for field_id, kind, name, path in _leaves(schema)
        )
        self.floating = tuple(leaf for leaf in self.leaves if leaf.counted and isinstance(leaf.kind, _FLOATING))
        self.textual = tuple(leaf for leaf in self.leaves if leaf.bounded and isinstance(leaf.kind, _TEXTUAL))


class Tally:
    """Statistics of one file while it is written."""

    __slots__ = ("_long", "_metrics", "_nans")

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._nans: Counter[int] = Counter()
        self._long: dict[int, tuple[Any, Any]] = {}

    def add(self, rows: pa.Table) -> None:
        """Add the statistics of a row group that its footer does not have."""
        for leaf in self._metrics.floating:
            self._nans[leaf.field_id] += pc.sum(pc.is_nan(leaf.values(rows))).as_py() or 0
        for leaf in self._metrics.textual:
            values = leaf.values(rows)
            if values.nbytes > _LONG_VALUE and (pc.max(pc.binary_length(values)).as_py() or 0) > _LONG_VALUE:
                ends = pc.min_max(values.cast(pa.binary()))
                low, high = ends["min"].as_py(), ends["max"].as_py()
                known = self._long.get(leaf.field_id, (low, high))
                self._long[leaf.field_id] = (min(low, known[0]), max(high, known[1]))

    def result(self, footer: pq.FileMetaData) -> dict[str, Any]:
        """The statistics of a :class:`pyiceberg.manifest.DataFile`, by the names of its parts."""
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        sizes: dict[int, int] = {}
        values: dict[int, int] = {}
        nulls: dict[int, int] = {}
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        for i, leaf in enumerate(self._metrics.leaves):
            if leaf.length == _NONE:
                continue
            chunks = [group.column(i) for group in groups]
            sizes[leaf.field_id] = sum(c.total_compressed_size for c in chunks)
            if not leaf.counted:
                continue
            values[leaf.field_id] = sum(c.num_values for c in chunks)
            found = [c.statistics for c in chunks]
            nulls[leaf.field_id] = sum(s.null_count for s in found)
            if leaf.bounded and (ends := self._ends(leaf, found)) is not None:
                lower[leaf.field_id] = _bytes(leaf.kind, _lower(leaf, ends[0]))
                if (high := _upper(leaf, ends[1])) is not None:
                    upper[leaf.field_id] = _bytes(leaf.kind, high)
        return {
            "record_count": footer.num_rows,
            "column_sizes": sizes,
            "value_counts": values,
            "null_value_counts": nulls,
            "nan_value_counts": {leaf.field_id: self._nans[leaf.field_id] for leaf in self._metrics.floating},
            "lower_bounds": lower,
            "upper_bounds": upper,
            "split_offsets": [_start(group.column(0)) for group in groups],
        }

    def _ends(self, leaf: _Leaf, found: Iterable[Any]) -> tuple[Any, Any] | None:
        """The smallest and the greatest value, or nothing when there is none or it is not known."""
        ends = [self._long[leaf.field_id]] if leaf.field_id in self._long else []
        for statistics in found:
            if statistics.has_min_max:
                ends.append((_comparable(leaf.kind, statistics.min_raw), _comparable(leaf.kind, statistics.max_raw)))
            elif statistics.num_values and not isinstance(leaf.kind, _FLOATING) and leaf.field_id not in self._long:
                return None
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None


def _leaves(schema: Schema) -> Iterator[tuple[int, IcebergType, str, tuple[int, ...]]]:
    """Id, type, name and place of every primitive column, in the order of a Parquet file."""

    def below(field: NestedField, path: tuple[int, ...]) -> Iterator[tuple[int, IcebergType, str, tuple[int, ...]]]:
        kind = field.field_type
        if isinstance(kind, StructType):
            for i, child in enumerate(kind.fields):
                yield from below(child, (*path, i) if path else ())
        elif isinstance(kind, ListType):
            yield from below(kind.element_field, ())
        elif isinstance(kind, MapType):
            yield from below(kind.key_field, ())
            yield from below(kind.value_field, ())
        else:
            yield field.field_id, kind, schema.find_column_name(field.field_id) or "", path

    for i, field in enumerate(schema.fields):
        yield from below(field, (i,))


def _comparable(kind: IcebergType, raw: Any) -> Any:
    """A bound of the footer in a form whose order is the order of the values."""
    return int.from_bytes(raw, "big", signed=True) if isinstance(kind, DecimalType) and isinstance(raw, bytes) else raw


def _bytes(kind: IcebergType, value: Any) -> bytes:
    """Iceberg's binary form of a single value."""
    if isinstance(kind, DecimalType):
        bits = (value if value >= 0 else ~value).bit_length()
        return int(value).to_bytes(bits // 8 + 1, "big", signed=True)
    return value if isinstance(kind, _RAW) else struct.pack(_FORMATS[type(kind)], value)


def _lower(leaf: _Leaf, value: Any) -> Any:
    if isinstance(leaf.kind, StringType):
        return value[: 4 * leaf.length].decode(errors="ignore")[: leaf.length].encode()
    return value[: leaf.length] if isinstance(leaf.kind, BinaryType) else value


def _upper(leaf: _Leaf, value: Any) -> Any:
    if isinstance(leaf.kind, StringType):
        return _upper_text(value, leaf.length)
    return _upper_bytes(value, leaf.length) if isinstance(leaf.kind, BinaryType) else value


def _upper_text(value: bytes, length: int) -> bytes | None:
    text = value[: 4 * (length + 1)].decode(errors="ignore")
    if len(text) <= length:
        return value
    for i in range(length - 1, -1, -1):
        raised = ord(text[i]) + 1
        if 0xD800 <= raised <= 0xDFFF:
            raised = 0xE000
        if raised <= 0x10FFFF:
            return (text[:i] + chr(raised)).encode()
    return None


def _upper_bytes(value: bytes, length: int) -> bytes | None:
    if len(value) <= length:
        return value
    cut = value[:length].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def _start(column: pq.ColumnChunkMetaData) -> int:
    """Where a row group begins: its first column's dictionary, or its first page."""
    first = column.data_page_offset
    return int(min(first, column.dictionary_page_offset) if column.has_dictionary_page else first)


def _lengths(schema: Schema, properties: Mapping[str, str], sorted_by: frozenset[int]) -> Callable[[int, str], int]:
    """The metrics mode of a column, by its id and name."""
    declared = properties.get(TableProperties.DEFAULT_WRITE_METRICS_MODE)
    first = None if declared is not None else _first_columns(schema, _most_inferred(properties))
    default = _LENGTH if declared is None else _mode(declared, _LENGTH)

    def length(field_id: int, name: str) -> int:
        inferred = default if first is None or field_id in first else _NONE
        if field_id in sorted_by and inferred in (_NONE, _COUNTS):
            inferred = _LENGTH
        own = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{name}")
        return inferred if own is None else _mode(own, inferred)

    return length


def _most_inferred(properties: Mapping[str, str]) -> int:
    try:
        most = int(properties.get(_MAX_INFERRED, _MAX_INFERRED_DEFAULT))
    except ValueError:
        most = -1
    return most if most >= 0 else _MAX_INFERRED_DEFAULT


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
    if mode in _MODES:
        return _MODES[mode]
    cut = _TRUNCATE.fullmatch(mode)
    if cut is None or int(cut[1]) < 1:
        _log.warning("Ignored unreadable metrics mode %r", text)
        return fallback
    return int(cut[1])
