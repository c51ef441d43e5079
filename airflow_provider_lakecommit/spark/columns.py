# SPDX-License-Identifier: Apache-2.0
"""Columns as they are read from JSON: what the parser is asked for, and how that becomes the table's type.

Contract: a :class:`Column` is a tree that mirrors the Iceberg schema. ``wire`` is the Arrow type that the JSON parser
fills, every level nullable, because the parser calls a missing optional struct with a required child an error.
:meth:`Column.finish` turns the parsed array into the table's type or raises :class:`Refusal`: it checks required values
at every level, refuses numbers that are not finite or overflowed, and reads times. It never rounds, drops or fills in a
value, and looks at a block as a whole; finding the one bad record is the caller's.

Times. ``iso8601`` (the default): ``timestamptz`` needs a zone offset, ``timestamp`` must have none, at most
microseconds. ``epoch_*``: whole numbers. A strptime pattern is Python's; without ``%z`` it is read as UTC. Years 1 to
9999: anything else is the wrong unit.

Failure story: a schema that cannot be read from JSON (maps, uuid, time, fixed, binary, nanoseconds), and a rule for a
column that is no timestamp, are :class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.spark.arrow_types import arrow_field

__all__ = ["Column", "Refusal", "columns_of"]

_PLAIN = (BooleanType, IntegerType, LongType, StringType)
_FLOATING = (FloatType, DoubleType)
_TIMES = (TimestampType, TimestamptzType)
_PER_SECOND = {"epoch_seconds": 1, "epoch_millis": 1_000, "epoch_micros": 1_000_000}
_EARLIEST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_LATEST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999

Finish = Callable[["Column", pa.Array], pa.Array]


class Refusal(Exception):
    """A block holds a value that its column cannot take; the caller isolates the record."""

    def __init__(self, kind: str, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.column = column
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One node of the schema. ``as_is``: nothing below needs checking or converting, only its labels change."""

    path: str
    name: str
    required: bool
    wire: pa.DataType
    target: pa.Field
    children: tuple[Column, ...]
    convert: Finish

    def finish(self, array: pa.Array, parent: pa.Array | None = None) -> pa.Array:
        """``array`` in the table's type.

        :param parent: validity of the enclosing struct: a child that is missing because its parent is missing is no
            missing value
        :raises Refusal: a value that this column cannot take
        """
        if self.required and array.null_count and _holes(array, parent):
            raise Refusal("missing_required", self.path, f"required column {self.path} is missing or null")
        return self.convert(self, array)

    def leaves(self) -> Iterator[tuple[str, pa.Field]]:
        """Every leaf alone, as a wire field that leads to it: for finding out which column a record fails in."""
        if not self.children:
            yield self.path, pa.field(self.name, self.wire)
        for child in self.children:
            for path, field in child.leaves():
                wire = pa.list_(field.type) if pa.types.is_list(self.wire) else pa.struct([field])
                yield path, pa.field(self.name, wire)


def columns_of(schema: Schema, timestamps: Mapping[str, str], skip: Set[str] = frozenset()) -> tuple[Column, ...]:
    """The columns to read from JSON.

    :param skip: top-level columns that are filled from elsewhere
    :raises TableError: naming every column or rule that cannot be served
    """
    rules, wrong = _rules(schema, timestamps)
    columns = [_column(f, f.name, rules, wrong) for f in schema.fields if f.name not in skip]
    if not columns:
        wrong.append("the table has no column to fill from the records; add one")
    if wrong:
        raise TableError("; ".join(wrong))
    return tuple(columns)


def _rules(schema: Schema, timestamps: Mapping[str, str]) -> tuple[dict[int, str], list[str]]:
    rules: dict[int, str] = {}
    wrong: list[str] = []
    for path, rule in timestamps.items():
        try:
            field = schema.find_field(path)
        except ValueError:
            wrong.append(f"timestamps: the table has no column {path!r}")
            continue
        if not isinstance(field.field_type, _TIMES):
            wrong.append(f"timestamps: column {path} is {field.field_type}, rules are for timestamp and timestamptz")
        elif isinstance(field.field_type, TimestampType) and "%z" in rule:
            wrong.append(f"timestamps: column {path} has no zone, the zone of %z would be lost; make it timestamptz")
        rules[field.field_id] = rule
    return rules, wrong


def _column(field: NestedField, path: str, rules: Mapping[int, str], wrong: list[str]) -> Column:
    kind = field.field_type
    children: tuple[Column, ...] = ()
    target = arrow_field(field)
    wire = target.type
    convert: Finish = _as_is
    if isinstance(kind, StructType):
        children = tuple(_column(f, f"{path}.{f.name}", rules, wrong) for f in kind.fields)
        wire = pa.struct([pa.field(c.name, c.wire) for c in children])
        convert = _struct
    elif isinstance(kind, ListType):
        children = (_column(kind.element_field, f"{path}.element", rules, wrong),)
        wire = pa.list_(children[0].wire)
        convert = _list
    elif isinstance(kind, _TIMES):
        rule = rules.get(field.field_id, "iso8601")
        wire = pa.int64() if rule in _PER_SECOND else pa.string()
        convert = _epoch(_PER_SECOND[rule]) if rule in _PER_SECOND else _iso if rule == "iso8601" else _pattern(rule)
    elif isinstance(kind, DateType):
        wire, convert = pa.string(), _iso
    elif isinstance(kind, _FLOATING):
        convert = _finite
    elif isinstance(kind, DecimalType):
        convert = _fits
    elif not isinstance(kind, _PLAIN):
        wrong.append(
            f"column {path} has type {kind}: not yet landed from JSON; leave it out of the table or change its type"
        )
    return Column(
        path=path,
        name=field.name,
        required=field.required,
        wire=wire,
        target=target,
        children=children,
        convert=convert,
    )


def _holes(array: pa.Array, parent: pa.Array | None) -> bool:
    """Whether a value is missing where its parent is there."""
    missing = array.is_null()
    return bool(pc.any(missing if parent is None else pc.and_(missing, parent)).as_py())


def _as_is(_column: Column, array: pa.Array) -> pa.Array:
    return array


def _struct(column: Column, array: pa.Array) -> pa.Array:
    there = array.is_valid() if array.null_count else None
    mask = array.is_null() if array.null_count else None
    # By name: a parser that also returns fields the table lacks puts them behind ours.
    parts = [c.finish(array.field(array.type.get_field_index(c.name)), there) for c in column.children]
    return pa.StructArray.from_arrays(parts, fields=list(column.target.type), mask=mask)


def _list(column: Column, array: pa.Array) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    elements = column.children[0].finish(array.values)
    return pa.ListArray.from_arrays(array.offsets, elements, type=column.target.type, mask=mask)


def _finite(column: Column, array: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(array), min_count=0).as_py():
        return array
    raise Refusal("wrong_value", column.path, f"column {column.path}: not a finite number, or too large for its type")


def _fits(column: Column, array: pa.Array) -> pa.Array:
    """The parser counts the digits before it widens to the scale: 10000000 passes for a decimal(9, 2)."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as e:
        raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e
    return array


def _iso(column: Column, array: pa.Array) -> pa.Array:
    try:
        times = array.cast(column.target.type)
    except pa.ArrowInvalid as e:
        raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e
    return _plausible(column, times)


def _epoch(per_second: int) -> Finish:
    factor = pa.scalar(1_000_000 // per_second, pa.int64())

    def convert(column: Column, array: pa.Array) -> pa.Array:
        try:
            micros = pc.multiply_checked(array, factor)
        except pa.ArrowInvalid as e:
            raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e
        return _plausible(column, micros.cast(column.target.type))

    return convert


def _pattern(pattern: str) -> Finish:
    """By Python's strptime, once per different text: exact where Arrow's own lets 30 February pass as 2 March."""

    def read(text: str | None) -> datetime | None:
        if text is None:
            return None
        at = datetime.strptime(text, pattern)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at

    def convert(column: Column, array: pa.Array) -> pa.Array:
        texts = array.dictionary_encode()
        try:
            times = pa.array([read(t) for t in texts.dictionary.to_pylist()], pa.timestamp("us", "UTC"))
        except (ValueError, OverflowError) as e:
            raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e
        return _plausible(column, times.take(texts.indices).cast(pa.int64()).cast(column.target.type))

    return convert


def _plausible(column: Column, times: pa.Array) -> pa.Array:
    ends = pc.min_max(times.cast(pa.int64() if pa.types.is_timestamp(times.type) else pa.int32()))
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None:
        return times
    scale = 1 if pa.types.is_timestamp(times.type) else 86_400_000_000
    if least * scale < _EARLIEST or most * scale > _LATEST:
        raise Refusal(
            "wrong_value", column.path, f"column {column.path}: not in the years 1 to 9999; is the unit right?"
        )
    return times
