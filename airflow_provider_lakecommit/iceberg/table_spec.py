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
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.iceberg.type_text import primitive_of
from airflow_provider_lakecommit.landing import CREATE_KEYS, PRIMITIVES, TypeText, parse_type

_COLUMN_KEYS = frozenset({"name", "type", "required", "doc"})
_PLAIN: Mapping[str, tuple[Transform[Any, Any], str]] = {
    "identity": (IdentityTransform(), ""),
    "year": (YearTransform(), "_year"),
    "month": (MonthTransform(), "_month"),
    "day": (DayTransform(), "_day"),
    "hour": (HourTransform(), "_hour"),
}
_FORMAT_VERSION = 2
_PARTITIONS = "a column, identity(c), year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(width, c)"
_FORMS = {
    "partition_by": _PARTITIONS,
    "sort_order": f"{_PARTITIONS}; with asc or desc, and nulls first or nulls last, after it",
}
_SORTED = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)


def create_from_spec(create: Mapping[str, Any]) -> tuple[Schema, PartitionSpec, dict[str, str]]:
    """Parse a ``create`` section.

    :raises SpecError: with the column or the key, and the allowed values
    """
    unknown = sorted(set(create) - set(CREATE_KEYS))
    if unknown:
        raise SpecError("LC3335", f"create: unknown key {unknown[0]!r}; allowed are {', '.join(CREATE_KEYS)}")
    columns = create.get("schema")
    if not _is_list(columns) or not columns:
        raise SpecError("LC3336", "create.schema: a list of columns, each {name, type, required, doc}, is needed")
    schema = Schema(*_Builder().fields(columns, ""))
    properties = _with_version(_properties(create.get("properties")), schema)
    return schema, _partition_spec(create.get("partition_by"), schema), properties


def sort_order_from_spec(create: Mapping[str, Any], schema: Schema) -> SortOrder:
    """Parse the ``sort_order`` of a ``create`` section.

    :param schema: of the same section
    :raises SpecError: with the entry, and the allowed values
    """
    key = "sort_order"
    fields: list[SortField] = []
    for entry in _entries(create.get(key), key):
        matched = _SORTED.fullmatch(entry.strip())
        by, direction, nulls = matched.groups() if matched else (entry, None, None)
        source, transform, _ = _source(by, entry, key, schema)
        if any((f.source_id, f.transform) == (source.field_id, transform) for f in fields):
            raise SpecError("LC3337", f"create.{key}: {entry!r} is given twice")
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

    def fields(self, columns: Iterable[Any], path: str) -> list[NestedField]:
        out: list[NestedField] = []
        for n, column in enumerate(columns):
            field = self._field(column, path, n)
            if any(field.name == other.name for other in out):
                raise SpecError("LC3338", f"create.schema: column {path}{field.name} is given twice")
            out.append(field)
        return out

    def _field(self, column: Any, path: str, n: int) -> NestedField:
        name = column.get("name") if isinstance(column, Mapping) else None
        if not isinstance(name, str) or not name:
            raise SpecError(
                "LC3339", f"create.schema: entry {n + 1} of {path or 'the columns'} needs a `name`: {column!r}"
            )
        where = f"{path}{name}"
        if unknown := sorted(set(column) - _COLUMN_KEYS):
            raise SpecError(
                "LC3340",
                f"create.schema: column {where}: unknown key {unknown[0]!r}; allowed: name, type, required, doc",
            )
        doc = column.get("doc")
        if doc is not None and not isinstance(doc, str):
            raise SpecError("LC3341", f"create.schema: column {where}: doc {doc!r} is not a text")
        return NestedField(
            field_id=next(self._ids),
            name=name,
            field_type=self._type(column.get("type"), where),
            required=_flag(column, where, default=False),
            doc=doc,
        )

    def _type(self, given: Any, where: str) -> IcebergType:
        if isinstance(given, Mapping):
            return self._nested(given, where)
        if not isinstance(given, str):
            raise SpecError("LC3342", f"create.schema: column {where}: {given!r} is not a type; {PRIMITIVES}")
        try:
            return self._parsed(parse_type(given))
        except ValueError as e:
            raise SpecError("LC3343", f"create.schema: column {where}: {given!r} is not a type: {e}") from e

    def _parsed(self, parsed: TypeText) -> IcebergType:
        """From a parsed type text, in which everything nested is optional."""
        if parsed.kind == "struct":
            ids = [next(self._ids) for _ in parsed.parts]
            return StructType(
                *(
                    NestedField(i, name, self._parsed(part), required=False)
                    for i, (name, part) in zip(ids, parsed.parts, strict=True)
                )
            )
        if parsed.kind == "list":
            return ListType(next(self._ids), self._parsed(parsed.parts[0][1]), element_required=False)
        if parsed.kind == "map":
            key, value = (part for _, part in parsed.parts)
            return self._map(self._parsed(key), self._parsed(value), required=False)
        return primitive_of(parsed.primitive)

    def _nested(self, given: Mapping[str, Any], where: str) -> IcebergType:
        kind = next((k for k in ("struct", "list", "map") if k in given), None)
        allowed = {kind} if kind == "struct" else {kind, "required"}
        if kind is None or set(given) - allowed:
            raise SpecError(
                "LC3344",
                f"create.schema: column {where}: {dict(given)!r} is not a type; allowed are {{struct: [columns]}}, "
                "{list: type, required: bool} and {map: {key: type, value: type, required: bool}}",
            )
        inner = given[kind]
        if kind == "struct":
            if not _is_list(inner) or not inner:
                raise SpecError(
                    "LC3345", f"create.schema: column {where}: struct needs a list of columns, not {inner!r}"
                )
            return StructType(*self.fields(inner, f"{where}."))
        if kind == "list":
            element = self._type(inner, f"{where}.element")
            return ListType(next(self._ids), element, element_required=_flag(given, where, default=False))
        if not isinstance(inner, Mapping) or {"key", "value"} - set(inner) or set(inner) - {"key", "value", "required"}:
            raise SpecError(
                "LC3346", f"create.schema: column {where}: map needs key and value (and required), not {inner!r}"
            )
        key, value = self._type(inner["key"], f"{where}.key"), self._type(inner["value"], f"{where}.value")
        return self._map(key, value, required=_flag(inner, where, default=False))

    def _map(self, key: IcebergType, value: IcebergType, *, required: bool) -> MapType:
        return MapType(next(self._ids), key, next(self._ids), value, value_required=required)


def _flag(values: Mapping[str, Any], where: str, *, default: bool) -> bool:
    given = values.get("required", default)
    if not isinstance(given, bool):
        raise SpecError("LC3347", f"create.schema: column {where}: required {given!r} is not true or false")
    return given


def _partition_spec(given: Any, schema: Schema) -> PartitionSpec:
    fields: list[PartitionField] = []
    for n, entry in enumerate(_entries(given, "partition_by")):
        field = _partition_field(entry, schema, PARTITION_FIELD_ID_START + n)
        if any(field.name == other.name for other in fields):
            raise SpecError("LC3348", f"create.partition_by: {entry!r} is given twice")
        fields.append(field)
    return PartitionSpec(*fields)


def _entries(given: Any, key: str) -> Sequence[str]:
    entries = [] if given is None else [given] if isinstance(given, str) else given
    if not _is_list(entries) or not all(isinstance(e, str) for e in entries):
        raise SpecError("LC3349", f"create.{key}: {given!r} is not a list of {_FORMS[key]}")
    out: Sequence[str] = entries
    return out


def _partition_field(entry: str, schema: Schema, field_id: int) -> PartitionField:
    source, transform, suffix = _source(entry.strip(), entry, "partition_by", schema)
    column = schema.find_column_name(source.field_id) or source.name
    name = column.replace(".", "_") + suffix
    if name != column and name in schema.column_names:
        raise SpecError(
            "LC3350", f"create.partition_by: {entry!r} makes a partition field {name}, which is the name of a column"
        )
    return PartitionField(source_id=source.field_id, field_id=field_id, transform=transform, name=name)


def _source(by: str, entry: str, key: str, schema: Schema) -> tuple[NestedField, Transform[Any, Any], str]:
    """Column, transform, and what the field's name adds to the column's."""
    found = _transform(by)
    if found is None:
        raise SpecError("LC3351", f"create.{key}: {entry!r} is not one of: {_FORMS[key]}")
    column, transform, suffix = found
    try:
        source = schema.find_field(column)
    except ValueError:
        names = ", ".join(schema.column_names)
        raise SpecError(
            "LC3352", f"create.{key}: {entry!r}: there is no column {column!r}; columns are {names}"
        ) from None
    if not transform.can_transform(source.field_type):
        raise SpecError(
            "LC3353", f"create.{key}: {entry!r}: column {column} is {source.field_type}, which does not fit"
        )
    if source.field_id not in _one_per_row(schema.fields):
        raise SpecError(
            "LC3354", f"create.{key}: {entry!r}: column {column} is inside a list or map, so a row has many values"
        )
    return source, transform, suffix


def _one_per_row(fields: Iterable[NestedField]) -> set[int]:
    """Ids of the columns, and of those within structs."""
    out: set[int] = set()
    for field in fields:
        inner = field.field_type.fields if isinstance(field.field_type, StructType) else ()
        out |= {field.field_id} | _one_per_row(inner)
    return out


def _transform(by: str) -> tuple[str, Transform[Any, Any], str] | None:
    """Column, transform, and what a partition field's name adds to the column's; ``None`` if it is none of those."""
    call = re.fullmatch(r"(\w+)\s*\(\s*(.*?)\s*\)", by) or re.fullmatch(r"(identity)\s+(\S+)", by)
    if call is None:
        return (by, IdentityTransform(), "") if re.fullmatch(r"[^\s(),]+", by) else None
    name, inner = call[1].lower(), call[2]
    if name in _PLAIN and "," not in inner:
        return inner, *_PLAIN[name]
    sized = re.fullmatch(r"(\d+)\s*,\s*(.+)", inner)
    if sized is None or int(sized[1]) < 1 or name not in ("bucket", "truncate"):
        return None
    n, column = int(sized[1]), sized[2]
    return (column, BucketTransform(n), "_bucket") if name == "bucket" else (column, TruncateTransform(n), "_trunc")


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


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
