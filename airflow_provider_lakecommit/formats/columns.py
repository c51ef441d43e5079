# SPDX-License-Identifier: Apache-2.0
"""Columns as they are read from JSON: the parser's types, and their conversion to the table's.

A :class:`Column` is a tree that mirrors the Iceberg schema. ``wire`` is the type that the parser fills, nullable at
every level, because the parser rejects a missing optional struct with a required child. :meth:`Column.finish` converts
a block or refuses it: it checks required values, refuses non-finite numbers and repeated map keys, and never rounds,
drops or fills in a value. The caller isolates the bad record. Maps are parsed as lists of pairs
(:mod:`~airflow_provider_lakecommit.formats.map_text`).

Columns that cannot be read, bytes without an encoding and rules that do not fit are reported together as one
:class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
)

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.column_rules import OCTETS, ColumnRules
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.reading import UUID_READING, Convert, Reading, octet_reading, unscaled_reading
from airflow_provider_lakecommit.formats.time_values import TEMPORAL, time_reading
from airflow_provider_lakecommit.iceberg import arrow_field
from airflow_provider_lakecommit.landing import ENCODINGS

_PLAIN = (BooleanType, IntegerType, LongType, StringType, UnknownType)
_FLOATING = (FloatType, DoubleType)
_DIGITS_OF_128_BITS = 38

Finish = Callable[["Column", pa.Array], pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One node of the schema; ``parsed_at`` is the parser's name of it in messages."""

    path: str
    parsed_at: str
    name: str
    required: bool
    wire: pa.DataType
    target: pa.Field
    children: tuple[Column, ...]
    convert: Finish

    @property
    def is_map(self) -> bool:
        return bool(pa.types.is_map(self.target.type))

    def finish(self, array: pa.Array, parent: pa.Array | None = None) -> pa.Array:
        """Convert ``array`` to the table's type.

        :param parent: validity of the enclosing struct: a missing child of a missing parent is no missing value
        :raises Refusal: a value that this column cannot take
        """
        if self.required and array.null_count and _holes(array, parent):
            raise Refusal("missing_required", self.path, f"required column {self.path} is missing or null")
        return self.convert(self, array)

    def leaves(self) -> Iterator[tuple[str, pa.Field]]:
        """Yield each leaf as a wire field with its path, to find the column that a record fails in."""
        if not self.children:
            yield self.path, pa.field(self.name, self.wire)
        for child in self.children:
            for path, leaf in child.leaves():
                inner = leaf.type if pa.types.is_list(self.target.type) else pa.struct([leaf])
                yield path, pa.field(self.name, pa.list_(inner) if pa.types.is_list(self.wire) else inner)

    def nodes(self) -> Iterator[Column]:
        yield self
        for child in self.children:
            yield from child.nodes()


def columns_of(schema: Schema, options: FormatOptions, skip: Set[str] = frozenset()) -> tuple[Column, ...]:
    rules = ColumnRules.of(schema, options)
    columns = [_column(f, f.name, f"/{f.name}", rules) for f in schema.fields if f.name not in skip]
    if not columns:
        rules.wrong.append("the table has no column to fill from the records: add one")
    if rules.wrong:
        raise TableError("LC4004", "; ".join(rules.wrong))
    return tuple(columns)


def _column(field_: NestedField, path: str, parsed_at: str, rules: ColumnRules) -> Column:
    kind = field_.field_type
    target = arrow_field(field_)
    children: tuple[Column, ...] = ()
    convert: Finish
    if isinstance(kind, StructType):
        children = tuple(_column(f, f"{path}.{f.name}", f"{parsed_at}/{f.name}", rules) for f in kind.fields)
        wire, convert = pa.struct([pa.field(c.name, c.wire) for c in children]), _struct
    elif isinstance(kind, ListType):
        children = (_column(kind.element_field, f"{path}.element", f"{parsed_at}/[]", rules),)
        wire, convert = pa.list_(children[0].wire), _list
    elif isinstance(kind, MapType):
        if (problem := _key_problem(kind.key_type)) is not None:
            rules.wrong.append(f"column {path}.key has type {kind.key_type}: {problem}")
        parts = (kind.key_field, kind.value_field)
        children = tuple(_column(f, f"{path}.{f.name}", f"{parsed_at}/[]/{f.name}", rules) for f in parts)
        wire, convert = pa.list_(pa.struct([pa.field(c.name, c.wire) for c in children])), _map
    else:
        reading = _reading(field_, target, path, rules)
        wire, convert = reading.wire, _by(reading.convert)
    return Column(
        path=path,
        parsed_at=parsed_at,
        name=field_.name,
        required=field_.required,
        wire=wire,
        target=target,
        children=children,
        convert=convert,
    )


def _reading(field_: NestedField, target: pa.Field, path: str, rules: ColumnRules) -> Reading:
    """Return how a scalar is read; an impossible one is added to ``rules.wrong``."""
    kind = field_.field_type
    if isinstance(kind, TEMPORAL):
        return time_reading(kind, rules.times.get(field_.field_id, "iso8601"))
    if isinstance(kind, OCTETS):
        encoding = rules.encodings.get(field_.field_id)
        if encoding is not None:
            return octet_reading(encoding)
        rules.wrong.append(
            f"column {path} is {kind}, and {rules.format} has no bytes: state their encoding as "
            f"format.encodings: {{{path}: {' | '.join(ENCODINGS)}}}"
        )
    elif isinstance(kind, UUIDType):
        return UUID_READING
    elif isinstance(kind, _FLOATING):
        return Reading(target.type, _finite)
    elif isinstance(kind, DecimalType):
        return unscaled_reading() if field_.field_id in rules.encodings else _decimal_reading(target.type)
    elif not isinstance(kind, _PLAIN):
        rules.wrong.append(
            f"column {path} has type {kind}: {rules.format} has no standard form of it; leave "
            "it out of the table or change its type"
        )
    return Reading(target.type)


def _key_problem(kind: IcebergType) -> str | None:
    if not isinstance(kind, PrimitiveType):
        return "a key of a JSON object is a text: make it a primitive type"
    if isinstance(kind, _FLOATING):
        return "floating-point numbers are not exact keys: make it a decimal or a string"
    return "a map needs keys" if isinstance(kind, UnknownType) else None


def _holes(array: pa.Array, parent: pa.Array | None) -> bool:
    """Return True if a value is missing although its parent is present."""
    missing = array.is_null()
    return bool(pc.any(missing if parent is None else pc.and_(missing, parent)).as_py())


def missing_rows(
    columns: Iterable[Column], rows: pa.StructArray, parent: pa.Array | None = None
) -> Iterator[tuple[Column, pa.Array]]:
    """Yield required columns that some rows lack, with these rows; not within lists and maps."""
    for column in columns:
        array = rows.field(rows.type.get_field_index(column.name))
        if column.required and array.null_count and _holes(array, parent):
            missing = array.is_null()
            yield column, missing if parent is None else pc.and_(missing, parent)
        if pa.types.is_struct(array.type):
            there = array.is_valid()
            yield from missing_rows(column.children, array, there if parent is None else pc.and_(there, parent))


def _by(convert: Convert) -> Finish:
    def finish(column: Column, array: pa.Array) -> pa.Array:
        try:
            return convert(array, column.target.type)
        except (ValueError, OverflowError) as e:
            raise Refusal("wrong_value", column.path, f"column {column.path}: {e}") from e

    return finish


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


def _map(column: Column, array: pa.Array) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    pairs = array.values
    keys, items = (c.finish(pairs.field(pairs.type.get_field_index(c.name))) for c in column.children)
    _check_keys(column, array, keys)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=column.target.type, mask=mask)


def _check_keys(column: Column, array: pa.Array, keys: pa.Array) -> None:
    """Check that no map repeats a key. Keys are compared as values: two texts can be one decimal, or one moment."""
    plain = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    codes = plain.dictionary_encode()
    positions = pc.list_parent_indices(array).to_numpy() * len(codes.dictionary) + codes.indices.to_numpy()
    if len(pc.unique(pa.array(positions))) == len(positions):
        return
    numbers, counts = np.unique(positions, return_counts=True)
    key = codes.dictionary[int(numbers[counts > 1][0]) % len(codes.dictionary)].as_py()
    raise Refusal("wrong_value", column.path, f"column {column.path}: key {key!r} is given twice")


def _finite(array: pa.Array, _target: pa.DataType) -> pa.Array:
    if pc.all(pc.is_finite(array), min_count=0).as_py():
        return array
    raise ValueError("not a finite number, or too large for its type")


def _decimal_reading(target: pa.DataType) -> Reading:
    """Return how a decimal is parsed: with 256 bits if digits and scale together may exceed 128.

    The parser counts digits before it widens to the scale, so 10000000 passes for a decimal(9, 2); beyond 128 bits it
    takes the rest of an overflow for the number.
    """
    if target.precision + target.scale <= _DIGITS_OF_128_BITS:
        return Reading(target, _fits)
    wide = pa.decimal256(target.precision, target.scale)
    return Reading(wide, lambda array, target: _fits(array, target).cast(target))


def _fits(array: pa.Array, _target: pa.DataType) -> pa.Array:
    array.validate(full=True)
    return array
