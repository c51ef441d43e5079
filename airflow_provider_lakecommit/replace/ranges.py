# SPDX-License-Identifier: Apache-2.0
"""Which rows of a table are of some ranges of offsets: by its columns that say which record a row is of.

Contract: a :class:`RowRanges` answers for a block of rows (:meth:`RowRanges.of_rows`) and for a whole file by its
statistics (:meth:`RowRanges.of_file`): all of its rows, none, or that it has to be read. Statistics that are missing,
or were cut so that they do not name one topic, say that it has to be read. A row whose columns are null is of no
record, and never of a range.

Failure story: a table without such columns, or with columns of other types, is a :class:`TableError` with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, PrimitiveType, StringType

from airflow_provider_lakecommit.core.offsets import NOTHING, Coverage, OffsetRange, RangeSet
from airflow_provider_lakecommit.core.routing import Role
from airflow_provider_lakecommit.exceptions import TableError

__all__ = ["FileShare", "RecordColumns", "RowRanges"]

_NAMES = {
    Role.ROWS: ("kafka_topic", "kafka_partition", "kafka_offset"),
    Role.DEAD_LETTERS: ("topic", "partition", "offset"),
}
_TYPES: tuple[PrimitiveType, ...] = (StringType(), IntegerType(), LongType())
Numbers = np.ndarray[Any, Any]


class FileShare(Enum):
    """How many of a file's rows are of the ranges, as its statistics say."""

    NONE = auto()
    ALL = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Ids of the columns that say which record a row is of."""

    topic: int
    partition: int
    offset: int

    @classmethod
    def of(cls, table: str, schema: Schema, role: Role) -> RecordColumns:
        """:raises TableError: the table has none"""
        ids = []
        for name, kind in zip(_NAMES[role], _TYPES, strict=True):
            found = next((f for f in schema.fields if f.name == name), None)
            if found is None or found.field_type != kind:
                has = "it has none" if found is None else f"its own is {found.field_type}"
                raise TableError(
                    f"{table}: which rows are of which records is said by columns {', '.join(_NAMES[role])}, and "
                    f"{name} must be {kind}: {has}. Ranges are replaced only in tables that were landed with "
                    "`metadata_columns: true`; roll another one back, or land again into a new table that has them"
                )
            ids.append(found.field_id)
        return cls(topic=ids[0], partition=ids[1], offset=ids[2])

    @property
    def ids(self) -> tuple[int, int, int]:
        return self.topic, self.partition, self.offset


class RowRanges:
    """Ranges of offsets by the name of their topic, as rows have it."""

    def __init__(self, columns: RecordColumns, coverage: Coverage) -> None:
        self.columns = columns
        self._ranges: dict[str, dict[int, RangeSet]] = {}
        for p, ranges in coverage.parts.items():
            # Of a topic that was made anew under its name, both.
            parts = self._ranges.setdefault(p.topic, {})
            parts[p.partition] = parts.get(p.partition, NOTHING) | ranges
        self._edges = {
            topic: {number: _edges(ranges) for number, ranges in parts.items()} for topic, parts in self._ranges.items()
        }

    def of_rows(self, topic: pa.Array, partition: pa.Array, offset: pa.Array) -> Numbers:
        """Which of these rows are of the ranges, as truths."""
        found = np.zeros(len(offset), bool)
        topic = topic.cast(pa.string()) if pa.types.is_dictionary(topic.type) else topic
        numbers = partition.fill_null(-1).to_numpy(zero_copy_only=False)
        offsets = offset.fill_null(-1).to_numpy(zero_copy_only=False)
        for name, parts in self._edges.items():
            named = pc.fill_null(pc.equal(topic, name), False).to_numpy(zero_copy_only=False)
            for number in np.unique(numbers[named]).tolist():
                if (edges := parts.get(number)) is not None:
                    starts, ends = edges
                    at = np.searchsorted(starts, offsets, side="right") - 1
                    found |= named & (numbers == number) & (at >= 0) & (offsets < ends[at])
        return found

    def of_file(self, file: DataFile) -> FileShare:
        """What the statistics of a file say."""
        columns = self.columns
        if _nulls(file, columns.offset) == file.record_count:
            return FileShare.NONE
        topics = _bounds(file, columns.topic, StringType())
        numbers, offsets = _bounds(file, columns.partition, IntegerType()), _bounds(file, columns.offset, LongType())
        if numbers is None or offsets is None:
            return FileShare.UNKNOWN
        span = OffsetRange(max(0, offsets[0]), max(0, offsets[1] + 1))
        some = [(name, ranges) for name, ranges in self._among(topics, numbers) if ranges.overlaps(span)]
        if not some:
            return FileShare.NONE
        one_partition = numbers[0] == numbers[1] and topics == (some[0][0], some[0][0])
        no_nulls = all(_nulls(file, column) == 0 for column in columns.ids)
        return FileShare.ALL if one_partition and no_nulls and some[0][1].covers(span) else FileShare.UNKNOWN

    def _among(self, topics: tuple[str, str] | None, numbers: tuple[int, int]) -> Iterator[tuple[str, RangeSet]]:
        """The ranges of the partitions that a file may have rows of."""
        for name, parts in self._ranges.items():
            if topics is None or topics[0].encode() <= name.encode() <= topics[1].encode():
                yield from ((name, r) for number, r in parts.items() if numbers[0] <= number <= numbers[1])


def _edges(ranges: RangeSet) -> tuple[Numbers, Numbers]:
    return np.array([r.start for r in ranges], np.int64), np.array([r.end for r in ranges], np.int64)


def _nulls(file: DataFile, column: int) -> int | None:
    """How many rows of a file have none, if it says so."""
    counts: Mapping[int, int] = file.null_value_counts or {}
    return counts.get(column)


def _bounds(file: DataFile, column: int, kind: PrimitiveType) -> Any:
    """The smallest and the greatest value, or what they were cut to; ``None`` where one of them is not said."""
    lower, upper = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
    if lower is None or upper is None:
        return None
    return from_bytes(kind, lower), from_bytes(kind, upper)
