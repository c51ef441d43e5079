# SPDX-License-Identifier: Apache-2.0
"""Wanted columns by the Avro schemas that a window's records were written with.

Contract: the schemas are those that the sampled records name, or the one that the landing states; what is registered
and no record names changes no table. Fields are told apart as the decoder tells them: by name, else by an alias. What
of a schema does not fit is what the decoder's own resolution refuses, once everything is as wide as it can be. Several
schemas are :mod:`~airflow_provider_lakecommit.evolve.combined`.

Failure story: a schema that the registry does not have, or that is none of a record, is for the tasks to reject; a
registry that does not answer is an error, and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from airflow_provider_lakecommit.avro.infer import avro_columns
from airflow_provider_lakecommit.avro.nested import Unfit
from airflow_provider_lakecommit.avro.reader_schema import ReaderSchema
from airflow_provider_lakecommit.avro.resolve import Resolver
from airflow_provider_lakecommit.avro.writer import WriterField, WriterType, writer_type
from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.evolve.changes import LeftOut, Misfit
from airflow_provider_lakecommit.evolve.combined import combined
from airflow_provider_lakecommit.evolve.paths import Path, dotted, plain
from airflow_provider_lakecommit.evolve.records import framed_value, sampled
from airflow_provider_lakecommit.evolve.wanted import Wanted
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.registry.client import needed, registry_of
from airflow_provider_lakecommit.registry.framing import framed
from airflow_provider_lakecommit.registry.schemas import AVRO, SchemaKey, UnknownSchemaError, told

__all__ = ["WrittenSource"]


class WrittenSource:
    """The :class:`~airflow_provider_lakecommit.evolve.wanted.WantedSource` of Avro."""

    def __init__(self, options: FormatOptions, kafka: Mapping[str, Any]) -> None:
        self._options, self._kafka = options, kafka

    def wanted(self, schema: Schema, ranges: Coverage, seen: Coverage) -> Wanted:
        """By their schemas.

        :raises RegistryError: it does not answer
        """
        told_by, written = self._written(ranges, seen)
        return combined(schema, written, _wants, self._unfit, told_by)

    def _written(self, ranges: Coverage, seen: Coverage) -> tuple[str, list[WriterType]]:
        """The schemas of the records, and how to call them."""
        asked = ReaderSchema.of(self._options.reader_schema) if self._options.reader_schema else ReaderSchema()
        if self._options.schema:
            return "the schema that the landing states", [asked.named(writer_type(self._options.schema))]
        values = [v for _, v in sampled(self._kafka, ranges, seen, framed_value) if v is not None]
        keys = [group.key for group in framed(values).groups]
        by = f"{', '.join(map(told, keys)) or 'no schema'} of {len(values)} records of {ranges}"
        return by, [asked.named(one) for key in keys for one in self._schema(key)]

    def _schema(self, key: SchemaKey) -> Iterator[WriterType]:
        try:
            found = needed(registry_of(self._kafka), "", "avro").schema(key)
            if found.kind == AVRO:
                one = writer_type(found.text, [inner.text for _, inner in found.imported()])
                yield from [one] if one.kind == "record" else []
        except (UnknownSchemaError, Refusal):
            return

    def _unfit(self, schema: Schema, written: WriterType) -> Iterator[Misfit]:
        try:
            readers = Resolver(schema, self._options).records(written)
        except Refusal:
            return
        for one in _unfit_in(readers):
            kind = plain(schema.find_type(one.path))
            yield Misfit(column=one.path, in_table=kind, in_records=str(one.written), why=one.why)


def _wants(schema: Schema, written: WriterType) -> tuple[StructType, list[LeftOut]]:
    look = _Look()
    return StructType(*look.fields(schema.as_struct(), written, ())), look.left_out


@dataclass(slots=True)
class _Look:
    """What one schema wants of a table; types that only differ in width are wanted as they are written, others as the
    table has them.
    """

    left_out: list[LeftOut] = field(default_factory=list)

    def fields(self, own: StructType, written: WriterType, path: Path) -> list[NestedField]:
        names = {f.name: f.field_type for f in own.fields}
        taken = {f.name for f in written.fields} & names.keys()
        out: dict[str, IcebergType] = {}
        for one in written.fields:
            alias = next((a for a in one.aliases if a in names and a not in taken), None)
            name = one.name if one.name in names or alias is None else alias
            kind = self.own(names[name], one.type, (*path, name)) if name in names else self.new(one, (*path, name))
            if kind is not None:
                out.setdefault(name, kind)
        return [NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(out.items(), 1)]

    def own(self, kind: IcebergType, written: WriterType, path: Path) -> IcebergType:
        parts = [part for part in written.parts if part.kind != "null"]
        match kind, written.kind:
            case _, "union" if len(parts) == 1:
                return self.own(kind, parts[0], path)
            case StructType(), "union":
                members = tuple(WriterField(name=part.name, type=part) for part in parts)
                known = {f.name for f in kind.fields} & {m.name for m in members}
                whole = WriterType(kind="record", name=written.name, fields=members)
                return StructType(*self.fields(kind, whole, path)) if known else kind
            case StructType(), "record":
                return StructType(*self.fields(kind, written, path))
            case ListType(), "array":
                return ListType(1, self.own(kind.element_type, written.parts[0], (*path, "element")), False)
            case MapType(), "map":
                value = self.own(kind.value_type, written.parts[0], (*path, "value"))
                return MapType(1, kind.key_type, 2, value, False)
            case IntegerType(), "long" if written.logical is None:
                return LongType()
            case FloatType(), "double":
                return DoubleType()
            case DecimalType(), _ if written.logical == "decimal" and written.scale <= kind.scale:
                return DecimalType(written.precision, written.scale)
            case _:
                return kind

    def new(self, one: WriterField, path: Path) -> IcebergType | None:
        (column,) = avro_columns(WriterType(kind="record", name="", fields=(one,)))
        if column.type is None:
            self.left_out.append(LeftOut(column=dotted(path), why="; ".join(column.notes)))
            return None
        return create_from_spec({"schema": [column.to_dict()]})[0].fields[0].field_type


def _unfit_in(reader: Any) -> Iterator[Unfit]:
    """All that is read nowhere, in readers of readers."""
    if isinstance(reader, Unfit):
        yield reader
    elif isinstance(reader, tuple):
        for part in reader:
            yield from _unfit_in(part)
    elif is_dataclass(reader) and not isinstance(reader, WriterType):
        for part in fields(reader):
            yield from _unfit_in(getattr(reader, part.name))
