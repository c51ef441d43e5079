# SPDX-License-Identifier: Apache-2.0
"""The ``create`` section of a landing as an Iceberg schema, partition spec, sort order and properties.

Contract: types are Iceberg's type strings (``long``, ``decimal(12, 2)``, ``struct<a: long, b: string>``,
``list<string>``, ``map<string, long>``) or nested mappings (``{struct: [...]}``, ``{list: type, required: bool}``,
``{map: {key: type, value: type, required: bool}}``). Partition fields are a column, or ``identity``, ``year``,
``month``, ``day``, ``hour``, ``bucket(n, column)``, ``truncate(width, column)`` of one. Sort fields are the same,
followed by ``asc`` or ``desc`` and ``nulls first`` or ``nulls last``; by default, nulls are first in an ascending order
and last in a descending one.

A table with a column that needs a newer format version gets that version.

Failure story: every mistake is a :class:`SpecError` with the column and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import mistaken, parse_type, sizes_of, wrong_with_table

_PLAIN: Mapping[str, tuple[Transform[Any, Any], str]] = {
    "identity": (IdentityTransform(), ""),
    "year": (YearTransform(), "_year"),
    "month": (MonthTransform(), "_month"),
    "day": (DayTransform(), "_day"),
    "hour": (HourTransform(), "_hour"),
}
_SIMPLE: TypeAdapter[IcebergType] = TypeAdapter(IcebergType)
_FORMAT_VERSION = 2
_SORTED = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)


def create_from_spec(create: Mapping[str, Any]) -> tuple[Schema, PartitionSpec, dict[str, str]]:
    """Parse a ``create`` section.

    :raises SpecError: with the column or the key, and the allowed values
    """
    if wrong := wrong_with_table(create, {}):
        raise mistaken("the section of a table", wrong)
    schema = columns_from_spec(create["schema"])
    properties = _with_version(_properties(create.get("properties")), schema)
    return schema, _partition_spec(create.get("partition_by"), schema), properties


def columns_from_spec(columns: Sequence[Mapping[str, Any]]) -> Schema:
    """Return checked columns, also those of a record, whose names need not fit a table."""
    return Schema(*_Builder().fields(columns))


def sort_order_from_spec(create: Mapping[str, Any], schema: Schema) -> SortOrder:
    """Parse the ``sort_order`` of a ``create`` section.

    :param schema: of the same section
    :raises SpecError: with the entry, and the allowed values
    """
    fields: list[SortField] = []
    for entry in _entries(create.get("sort_order")):
        matched = _SORTED.fullmatch(entry.strip())
        by, direction, nulls = matched.groups() if matched else (entry, None, None)
        source, transform, _ = _source(by, schema)
        if any((f.source_id, f.transform) == (source.field_id, transform) for f in fields):
            raise SpecError("LC3337", f"create.sort_order: {entry!r} is given twice")
        fields.append(
            SortField(
                source_id=source.field_id,
                transform=transform,
                direction=SortDirection(direction.lower()) if direction else None,
                null_order=NullOrder(f"nulls-{nulls.lower()}") if nulls else None,
            )
        )
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


class _Builder:
    """Build nested fields and number them. Catalogs renumber the fields of a new table."""

    def __init__(self) -> None:
        self._ids = count(1)

    def fields(self, columns: Iterable[Mapping[str, Any]]) -> list[NestedField]:
        return [
            NestedField(
                field_id=next(self._ids),
                name=column["name"],
                field_type=self._type(column["type"]),
                required=column.get("required", False),
                doc=column.get("doc"),
            )
            for column in columns
        ]

    def _type(self, given: str | Mapping[str, Any]) -> IcebergType:
        kind = parse_type(given) if isinstance(given, str) else given
        if isinstance(kind, str):
            return _primitive(kind)
        if "struct" in kind:
            return StructType(*self.fields(kind["struct"]))
        if "list" in kind:
            element = self._type(kind["list"])
            return ListType(next(self._ids), element, element_required=kind.get("required", False))
        inner = kind["map"]
        key, value = self._type(inner["key"]), self._type(inner["value"])
        return MapType(next(self._ids), key, next(self._ids), value, value_required=inner.get("required", False))


def _primitive(word: str) -> IcebergType:
    if word.startswith("decimal"):
        return DecimalType(*sizes_of(word))
    return FixedType(*sizes_of(word)) if word.startswith("fixed") else _SIMPLE.validate_python(word)


def _partition_spec(given: Any, schema: Schema) -> PartitionSpec:
    fields: list[PartitionField] = []
    for n, entry in enumerate(_entries(given)):
        source, transform, suffix = _source(entry.strip(), schema)
        column = schema.find_column_name(source.field_id) or source.name
        name = column.replace(".", "_") + suffix
        if name != column and name in schema.column_names:
            raise SpecError(
                "LC3350",
                f"create.partition_by: {entry!r} makes a partition field {name}, which is the name of a column",
            )
        if any(name == other.name for other in fields):
            raise SpecError("LC3348", f"create.partition_by: {entry!r} is given twice")
        field_id = PARTITION_FIELD_ID_START + n
        fields.append(PartitionField(source_id=source.field_id, field_id=field_id, transform=transform, name=name))
    return PartitionSpec(*fields)


def _entries(given: str | Sequence[str] | None) -> Sequence[str]:
    return [given] if isinstance(given, str) else given or []


def _source(by: str, schema: Schema) -> tuple[NestedField, Transform[Any, Any], str]:
    """Column, transform, and what a partition field's name adds to the column's."""
    call = re.fullmatch(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.*?)\s*\)", by) or re.fullmatch(r"(identity)(\d*)\s+(\S+)", by)
    if call is None:
        return schema.find_field(by), IdentityTransform(), ""
    name, source = call[1].lower(), schema.find_field(call[3])
    if name in _PLAIN:
        return source, *_PLAIN[name]
    n = int(call[2])
    return (source, BucketTransform(n), "_bucket") if name == "bucket" else (source, TruncateTransform(n), "_trunc")


def _properties(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SpecError("LC3355", f"create.properties: {given!r} is not a mapping of table properties")
    out: dict[str, str] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool):
            raise SpecError("LC3356", f"create.properties: {key!r}: {value!r} is not a text, a number, true or false")
        out[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return out


def _with_version(properties: dict[str, str], schema: Schema) -> dict[str, str]:
    """The properties with the format version that the columns need, if it is not the usual one."""
    needs = {schema.find_column_name(i): schema.find_type(i).minimum_format_version() for i in sorted(schema.field_ids)}
    column = max(needs, key=lambda name: needs[name])
    stated = properties.get("format-version")
    if stated is not None and (not stated.isdigit() or int(stated) < needs[column]):
        raise SpecError(
            "LC3357",
            f"create.properties: format-version {stated}: column {column} is {schema.find_type(column or '')}, "
            f"which needs version {needs[column]}",
        )
    usual = stated is not None or needs[column] <= _FORMAT_VERSION
    return properties if usual else {**properties, "format-version": str(needs[column])}
