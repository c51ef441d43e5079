# SPDX-License-Identifier: Apache-2.0
"""From written types of records to the columns of a table: which reader reads what.

Fields match columns by exact name, or by an alias. Conversions follow Avro's rules without loss, plus the table's
types; a value that a column cannot hold exactly fails its record. Rules of ``timestamps`` are for numbers and texts
without a logical type, and an error if they contradict one. A reader schema's names and defaults are applied first
(:mod:`~airflow_provider_lakecommit.formats.avro.reader_schema`).

A field that cannot become its column fails only records in which it is not null. A schema without any field of the
table is refused: it is probably of another topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set

import pyarrow as pa
from pyiceberg.schema import Schema
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

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.avro.block import OctetBlock
from airflow_provider_lakecommit.formats.avro.nested import (
    ReadColumns,
    Step,
    absent,
    branches,
    list_items,
    map_items,
    members,
    record,
    repeated,
    required,
    struct,
    unfit,
    unknown_field,
)
from airflow_provider_lakecommit.formats.avro.reader_schema import (
    WrongDefaultError,
    encoded,
    field_at,
    reader_schema,
    renamed,
)
from airflow_provider_lakecommit.formats.avro.scalars import Read, decimal_of, exact_number, scalar, text
from airflow_provider_lakecommit.formats.avro.writer import WriterField, WriterType
from airflow_provider_lakecommit.formats.column_rules import ColumnRules
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.reading import (
    MOST_DIGITS,
    UUID_READING,
    Convert,
    Reading,
    octet_reading,
    whole_numbers,
)
from airflow_provider_lakecommit.formats.time_values import TEMPORAL, number_times, time_reading, unread
from airflow_provider_lakecommit.iceberg import arrow_field

_WITH_ZONE = (TimestamptzType, TimestamptzNanoType)
_WITHOUT_ZONE = (TimestampType, TimestampNanoType)
_TIMESTAMPS = {
    f"{local}timestamp-{unit}": (f"epoch_{unit}", kinds)
    for local, kinds in (("", _WITH_ZONE), ("local-", _WITHOUT_ZONE))
    for unit in ("millis", "micros", "nanos")
}
_RULES: Mapping[str, tuple[str, tuple[type[IcebergType], ...]]] = {
    **_TIMESTAMPS,
    "date": ("epoch_days", (DateType,)),
    "time-millis": ("millis_of_day", (TimeType,)),
    "time-micros": ("micros_of_day", (TimeType,)),
}
"""The rule of each logical type, and the columns that it is for."""


_PLAIN: tuple[tuple[tuple[str, ...], tuple[type[IcebergType], ...], Convert | None], ...] = (
    (("boolean",), (BooleanType,), None),
    (("int", "long"), (LongType,), None),
    (("int", "long"), (IntegerType, DecimalType), whole_numbers),
    (("int", "long"), (FloatType, DoubleType), exact_number),
    (("float",), (FloatType,), None),
    (("float",), (DoubleType,), lambda values, target: values.cast(target)),
    (("double",), (DoubleType,), None),
    (("enum",), (StringType,), None),
)
"""Conversions without a logical type (``None``: unchanged); a narrower column takes the values that it holds."""

UnfitColumn = tuple[str, WriterType | None, str]
"""Path of a column that no record fills, its written type (``None``: missing, though required), and why."""


class Resolver:
    """Makes readers for one table."""

    def __init__(self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset()) -> None:
        self._rules = ColumnRules.of(schema, options)
        self._strict = options.unknown_fields == "dead_letter"
        self._fields = tuple(f for f in schema.fields if f.name not in skip)
        if not self._fields:
            self._rules.wrong.append("the table has no column to fill from the records: add one")
        self._requested, self._defaults = reader_schema(options.reader_schema), dict[str, Read]()
        self._unfit: list[UnfitColumn] = []
        if options.reader_schema:
            self._rules.wrong.extend(self._wrong_with_reader_schema(Schema(*self._fields)))
        if self._rules.wrong:
            raise TableError("LC4003", "; ".join(self._rules.wrong))
        self.target = pa.schema([arrow_field(f) for f in self._fields])

    def _wrong_with_reader_schema(self, schema: Schema) -> Iterator[str]:
        requested = {
            path: each for path in schema.column_names if (each := field_at(self._requested, path)) is not None
        }
        if not requested:
            yield "format.reader_schema: the table has none of its fields"
        for path, each in requested.items():
            try:
                if each.default is not None:
                    self._defaults[path] = self._default(schema.find_field(path), each, path)
            except WrongDefaultError as e:
                yield f"format.reader_schema: the default of {path}: {e}"

    def _default(self, column: NestedField, requested: WriterField, path: str) -> Read:
        """Return a column's value for records that lack it, read like one written with the reader's schema."""
        block = OctetBlock.of([encoded(requested.type, json.loads(requested.default or ""))], 0)
        value = self._type(requested.type, column, path)(block.cursor(), None)
        for refused in block.failed.values():
            raise WrongDefaultError(refused.reason)
        return repeated(value)

    def records(self, written: WriterType) -> tuple[ReadColumns, list[UnfitColumn]]:
        """Return the reader of a schema's records for the table, and the columns that it never fills."""
        if written.kind != "record":
            raise Refusal("wrong_schema", None, f"the schema is {written}, not a record: it has no fields for columns")
        written = renamed(written, self._requested)
        if not chosen_columns(written.fields, [f.name for f in self._fields]):
            has = ", ".join(f.name for f in written.fields[:10])
            why = f"the schema of record {written.name} has no field of the table (it has {has})"
            raise Refusal("wrong_schema", None, why)
        self._unfit = []
        return self._record(written, self._fields, ""), self._unfit

    def _record(self, written: WriterType, fields: Iterable[NestedField], at: str) -> ReadColumns:
        columns = {f.name: (position, f) for position, f in enumerate(fields)}
        chosen = chosen_columns(written.fields, columns)
        steps: list[Step] = []
        for each in written.fields:
            name = chosen.get(each.name)
            if name is None:
                steps.append(unknown_field(f"{at}{each.name}", each.type, strict=self._strict))
            else:
                position, column = columns[name]
                steps.append((position, self._column(each.type, column, f"{at}{name}")))
        found = set(chosen.values())
        missing = [(position, self._missing(f, f"{at}{n}")) for n, (position, f) in columns.items() if n not in found]
        return record(steps, missing)

    def _missing(self, column: NestedField, path: str) -> Read:
        if (default := self._defaults.get(path)) is None:
            return self._column(_NULL, column, path)
        return required(default, path) if column.required else default

    def _column(self, written: WriterType, column: NestedField, path: str) -> Read:
        read = self._type(written, column, path)
        if not column.required:
            return read
        if written.kind == "null":
            self._unfit.append((path, None, "missing"))
        return required(read, path)

    def _type(self, written: WriterType, column: NestedField, path: str) -> Read:
        kind, target = column.field_type, arrow_field(column).type
        if written.kind == "null":
            return absent(target)
        if written.kind == "union":
            return self._union(written, column, path)
        if written.kind == "record" and isinstance(kind, StructType):
            return struct(self._record(written, kind.fields, f"{path}."), target)
        if written.kind == "array" and isinstance(kind, ListType):
            inner = written.parts[0]
            return list_items(self._column(inner, kind.element_field, f"{path}.element"), inner, path, target)
        if written.kind == "map" and isinstance(kind, MapType):
            inner = written.parts[0]
            key = self._column(_STRING, kind.key_field, f"{path}.key")
            return map_items(key, self._column(inner, kind.value_field, f"{path}.value"), inner, path, target)
        try:
            return scalar(written, self._convert(written, column), path, target)
        except _UnfitError as e:
            return self._unread(path, written, column, str(e))

    def _unread(self, path: str, written: WriterType, column: NestedField, why: str) -> Read:
        self._unfit.append((path, written, why))
        return unfit(path, arrow_field(column).type, written, why)

    def _convert(self, written: WriterType, column: NestedField) -> Convert | None:
        """Return how a primitive value becomes one of the table; ``None``: unchanged."""
        kind = column.field_type
        if isinstance(kind, TEMPORAL):
            return self._temporal(written, column)
        unfit = _UnfitError(f"the table has {kind}, the records have {written}")
        if written.logical in _RULES or (written.logical == "decimal" and not isinstance(kind, DecimalType)):
            raise unfit
        if written.kind in ("bytes", "string", "fixed"):
            return self._octets(written, column, unfit)
        for kinds, columns, convert in _PLAIN:
            if written.kind in kinds and isinstance(kind, columns):
                return convert
        raise unfit

    def _octets(self, written: WriterType, column: NestedField, unfit: _UnfitError) -> Convert | None:
        kind = column.field_type
        if isinstance(kind, DecimalType):
            if written.logical != "decimal" or written.scale > MOST_DIGITS:
                raise unfit
            return decimal_of(written.scale)
        encoding = self._rules.encodings.get(column.field_id)
        if written.kind == "string" and encoding is not None:
            return _of_text(octet_reading(encoding))
        if isinstance(kind, StringType) and written.kind != "fixed":
            return text
        if isinstance(kind, BinaryType):
            return None
        if isinstance(kind, UUIDType) and written.kind == "string":
            return _of_text(UUID_READING)
        size = 16 if isinstance(kind, UUIDType) else len(kind) if isinstance(kind, FixedType) else -1
        if written.kind == "fixed" and written.size == size:
            return _fixed
        raise unfit

    def _temporal(self, written: WriterType, column: NestedField) -> Convert:
        kind, stated = column.field_type, self._rules.times.get(column.field_id)
        unfit = _UnfitError(f"the table has {kind}, the records have {written}")
        if written.logical is not None and written.logical in _RULES:
            rule, kinds = _RULES[written.logical]
            if stated is not None and stated != rule:
                raise _UnfitError(f"`timestamps` has {stated}, the records have {written.logical}")
            # Stated explicitly, a time without a zone may be one of UTC.
            if not isinstance(kind, kinds) and not (stated == rule and isinstance(kind, _WITHOUT_ZONE + _WITH_ZONE)):
                remedy = f"; set `timestamps` to {rule}" if isinstance(kind, _WITHOUT_ZONE + _WITH_ZONE) else ""
                raise _UnfitError(f"{unfit}{remedy}")
            return number_times(kind, rule)
        if written.logical is not None:
            raise unfit
        if written.kind in ("int", "long"):
            if (why := unread(written.meaning, stated)) is not None:
                raise _UnfitError(f"{unfit} {why}")
            return number_times(kind, stated or "")
        if written.kind == "string" and (stated is None or stated == "iso8601" or "%" in stated):
            return _of_text(time_reading(kind, stated or "iso8601"))
        raise unfit

    def _union(self, written: WriterType, column: NestedField, path: str) -> Read:
        target, kind = arrow_field(column).type, column.field_type
        several = [part for part in written.parts if part.kind != "null"]
        if len(several) > 1 and isinstance(kind, StructType):
            names = {name for part in several for name in (part.name, part.shared)}
            if names & {f.name for f in kind.fields}:
                return self._members(written, kind, target, path)
        readers = [None if part.kind == "null" else self._type(part, column, path) for part in written.parts]
        return branches(readers, written, path, target)

    def _members(self, written: WriterType, kind: StructType, target: pa.DataType, path: str) -> Read:
        columns = {f.name: (position, f) for position, f in enumerate(kind.fields)}
        steps: list[Step | None] = []
        own = {part.name for part in written.parts}
        for part in written.parts:
            # A short name that is the full name of another type belongs to that one.
            name = part.name if part.name in columns or part.shared in own else part.shared
            position, field = columns.get(name, (0, None))
            if part.kind == "null":
                steps.append(None)
            elif field is None:
                steps.append(unknown_field(f"{path}.{part.name}", part, strict=self._strict))
            elif name == part.name:
                steps.append((position, self._type(part, field, f"{path}.{name}")))
            else:
                why = f"several types of the union have the name {name}: name this field {part.name}"
                steps.append((position, self._unread(f"{path}.{name}", part, field, why)))
        filled = {step[0] for step in steps if isinstance(step, tuple)}
        missing = [(p, absent(arrow_field(f).type)) for p, f in columns.values() if p not in filled]
        must = [(p, f"{path}.{n}") for n, (p, f) in columns.items() if f.required]
        return members(steps, missing, must, written, path, target)


class _UnfitError(Exception):
    """Why a value does not fit a column."""


_STRING = WriterType(kind="string", name="string", least=1)
_NULL = WriterType(kind="null", name="null")


def chosen_columns(written: Iterable[WriterField], columns: Iterable[str]) -> dict[str, str]:
    """Return which field becomes which column: by its name, else the first with it as an alias."""
    names = {f.name for f in written}
    chosen = {name: name for name in columns if name in names}
    for each in written:
        free = (alias for alias in each.aliases if alias in columns and alias not in chosen.values())
        if each.name not in chosen and (alias := next(free, None)) is not None:
            chosen[each.name] = alias
    return chosen


def _of_text(reading: Reading) -> Convert:
    return lambda values, target: reading.convert(text(values, target), target)


def _fixed(values: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(target, pa.BaseExtensionType):
        return target.wrap_array(values.cast(target.storage_type))
    return values.cast(target)
