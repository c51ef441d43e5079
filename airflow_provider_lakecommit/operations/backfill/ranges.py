# SPDX-License-Identifier: Apache-2.0
"""Find the rows of some offset ranges in a table, by the columns that identify a row's record.

Contract: a :class:`RowRanges` answers for a block of rows (:meth:`RowRanges.of_rows`) and for a whole file by its
statistics (:meth:`RowRanges.of_file`): all of its rows, none, or that it must be read. It must be read if statistics
are missing, or were cut so that they do not name one topic. A row with a null in one of the columns has no record, and
is never in a range. Columns are known by their field ids, so renaming them changes nothing.

Failure story: ranges whose rows name their records in two sets of columns are a
:class:`~airflow_provider_lakecommit.exceptions.TableError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import IntegerType, LongType, PrimitiveType, StringType

from airflow_provider_lakecommit.core import NOTHING, Coverage, OffsetRange, RangeSet, Share
from airflow_provider_lakecommit.exceptions import TableError

Numbers = np.ndarray[Any, Any]


class FileShare(Enum):
    """The part of a file's rows that are of the ranges, by its statistics."""

    NONE = auto()
    ALL = auto()
    UNKNOWN = auto()


class RowRanges:
    """Ranges of offsets, each of one reading, as rows have them.

    :param columns: field ids of topic, partition, generation and offset
    :param ranges: with the generations of the readings
    """

    def __init__(self, columns: tuple[int, ...], ranges: Iterable[tuple[int, Coverage]]) -> None:
        self.columns = columns
        self._ranges: dict[str, dict[tuple[int, int], RangeSet]] = {}
        for generation, coverage in ranges:
            for p, offsets in coverage.parts.items():
                parts = self._ranges.setdefault(p.topic, {})
                key = p.partition, generation
                parts[key] = parts.get(key, NOTHING) | offsets
        self._edges = {
            topic: {key: _edges(offsets) for key, offsets in parts.items()} for topic, parts in self._ranges.items()
        }

    @classmethod
    def of_shares(cls, table: str, shares: Iterable[Share]) -> RowRanges:
        """Return the ranges of some parts of readings."""
        found = [(s.entry.columns, s.entry.generation, s.part) for s in shares if s.entry.columns]
        columns = {c for c, _, _ in found}
        if len(columns) > 1:
            parts = "; ".join(f"{part} in columns {', '.join(map(str, c))}" for c, _, part in found)
            raise TableError(
                "LC7228",
                f"{table}: the columns that identify the record of a row were dropped and added again, so the ranges "
                f"use different ones: {parts}. Replace the ranges of one set of columns at a time",
            )
        return cls(next(iter(columns), (0, 0, 0, 0)), [(generation, part) for _, generation, part in found])

    def of_rows(self, topic: pa.Array, partition: pa.Array, generation: pa.Array, offset: pa.Array) -> Numbers:
        """Return which of these rows are of the ranges, as booleans."""
        found = np.zeros(len(offset), bool)
        topic = topic.cast(pa.string()) if pa.types.is_dictionary(topic.type) else topic
        numbers, generations, offsets = (
            column.fill_null(-1).to_numpy(zero_copy_only=False) for column in (partition, generation, offset)
        )
        for name, parts in self._edges.items():
            named = pc.fill_null(pc.equal(topic, name), False).to_numpy(zero_copy_only=False)
            for (number, reading), (starts, ends) in parts.items():
                own = named & (numbers == number) & (generations == reading)
                if own.any():
                    at = np.searchsorted(starts, offsets, side="right") - 1
                    found |= own & (at >= 0) & (offsets < ends[at])
        return found

    def of_file(self, file: DataFile) -> FileShare:
        """Return the part by the statistics of a file."""
        topic, partition, generation, offset = self.columns
        if _nulls(file, offset) == file.record_count:
            return FileShare.NONE
        topics = _bounds(file, topic, StringType())
        numbers, readings = _bounds(file, partition, IntegerType()), _bounds(file, generation, LongType())
        offsets = _bounds(file, offset, LongType())
        if numbers is None or readings is None or offsets is None:
            return FileShare.UNKNOWN
        span = OffsetRange(max(0, offsets[0]), max(0, offsets[1] + 1))
        some = [(name, ranges) for name, ranges in self._among(topics, numbers, readings) if ranges.overlaps(span)]
        if not some:
            return FileShare.NONE
        one = numbers[0] == numbers[1] and readings[0] == readings[1] and topics == (some[0][0], some[0][0])
        no_nulls = all(_nulls(file, column) == 0 for column in self.columns)
        return FileShare.ALL if one and no_nulls and some[0][1].covers(span) else FileShare.UNKNOWN

    def _among(
        self, topics: tuple[str, str] | None, numbers: tuple[int, int], readings: tuple[int, int]
    ) -> Iterator[tuple[str, RangeSet]]:
        """Return the ranges that a file may have rows of."""
        for name, parts in self._ranges.items():
            if topics is None or topics[0].encode() <= name.encode() <= topics[1].encode():
                yield from (
                    (name, r)
                    for (number, reading), r in parts.items()
                    if numbers[0] <= number <= numbers[1] and readings[0] <= reading <= readings[1]
                )


def _edges(ranges: RangeSet) -> tuple[Numbers, Numbers]:
    return np.array([r.start for r in ranges], np.int64), np.array([r.end for r in ranges], np.int64)


def _nulls(file: DataFile, column: int) -> int | None:
    """Return how many rows of a file have a null, if the file states it."""
    counts: Mapping[int, int] = file.null_value_counts or {}
    return counts.get(column)


def _bounds(file: DataFile, column: int, kind: PrimitiveType) -> Any:
    """Return the smallest and the greatest value, or their cut form; ``None`` if one of them is missing."""
    lower, upper = (file.lower_bounds or {}).get(column), (file.upper_bounds or {}).get(column)
    if lower is None or upper is None:
        return None
    return from_bytes(kind, lower), from_bytes(kind, upper)
