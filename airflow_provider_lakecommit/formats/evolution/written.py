# SPDX-License-Identifier: Apache-2.0
"""Infer columns from the Avro schemas of a window's records.

Fields match as in the decoder: by name, else by an alias. Misfits are what the decoder's own resolution refuses once
everything is as wide as possible. For unwrapped envelopes the schemas of their rows count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    StructType,
)

from airflow_provider_lakecommit.formats.avro.infer import avro_columns
from airflow_provider_lakecommit.formats.avro.reader_schema import reader_schema, renamed
from airflow_provider_lakecommit.formats.avro.resolve import Resolver, chosen_columns
from airflow_provider_lakecommit.formats.avro.writer import WriterField, WriterType, writer_type
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.evolution.changes import MAX_DIGITS, Finding, left_out, misfit, without_value
from airflow_provider_lakecommit.formats.evolution.named_schemas import NamedSchemasSource
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, optional_struct, plain
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema
from airflow_provider_lakecommit.iceberg import columns_from_spec
from airflow_provider_lakecommit.landing import IMAGES, Landing

WHOLE_DIGITS = {"int": 10, "long": 19}


class WrittenSource(NamedSchemasSource[WriterType]):
    """The source of wanted columns for Avro."""

    def __init__(self, landing: Landing, kafka: Mapping[str, Any]) -> None:
        super().__init__(landing, kafka)
        self._requested = reader_schema(self._options.reader_schema)

    def _stated(self) -> tuple[str, list[WriterType]]:
        return "the landing's schema", list(self._rows(writer_type(self._options.schema)))

    def _named(self, found: RegisteredSchema, group: Framed, values: Sequence[bytes]) -> Iterator[WriterType]:
        yield from self._rows(writer_type(found.text, [inner.text for _, inner in found.imported()]))

    def _rows(self, written: WriterType) -> Iterator[WriterType]:
        if written.kind != "record":
            raise Refusal("wrong_schema", None, f"it is {written}, not a record")
        named = renamed(written, self._requested)
        yield from (named,) if self._landing.transform.unwrap is None else _rows_in(named)

    def _wants(
        self, schema: Schema, written: WriterType, new: Collection[str] = ()
    ) -> tuple[StructType, list[Finding]]:
        scan = _Scan()
        return scan.struct(schema.as_struct(), written, (), new), scan.left_out

    def _unfit(self, schema: Schema, written: WriterType) -> Iterator[Finding]:
        # One that envelopes are read by is none of their rows.
        rules = self._rules(schema)
        options = rules if self._landing.transform.unwrap is None else replace(rules, reader_schema="")
        try:
            _, unfit = Resolver(schema, options).records(written)
        except Refusal:
            return
        for path, kind, why in unfit:
            own = schema.find_type(path)
            yield without_value(path, own, why) if kind is None else misfit(path, plain(own), str(kind), why)


@dataclass(slots=True)
class _Scan:
    """What one schema wants of a table: types that differ only in width as written, others as the table has them."""

    left_out: list[Finding] = field(default_factory=list)

    def struct(self, own: StructType, written: WriterType, path: Path, new: Collection[str] = ()) -> StructType:
        names = {f.name: f.field_type for f in own.fields}
        chosen = chosen_columns(written.fields, (*names, *new))
        out: dict[str, IcebergType] = {}
        for one in written.fields:
            name = chosen.get(one.name, one.name)
            kind = self.own(names[name], one.type, (*path, name)) if name in names else self.new(one, (*path, name))
            if kind is not None:
                out[name] = kind
        return optional_struct(out)

    def own(self, kind: IcebergType, written: WriterType, path: Path) -> IcebergType:
        match kind, written.kind:
            case _, "union":
                return self._union(kind, written, path)
            case StructType(), "record":
                return self.struct(kind, written, path)
            case ListType(), "array":
                return ListType(1, self.own(kind.element_type, written.parts[0], (*path, "element")), False)
            case MapType(), "map":
                value = self.own(kind.value_type, written.parts[0], (*path, "value"))
                return MapType(1, kind.key_type, 2, value, False)
            case IntegerType(), "long" if written.logical is None:
                return LongType()
            case FloatType(), "double" | "int" | "long" if written.logical is None:
                return DoubleType()
            case DecimalType(), "int" | "long" if written.logical is None:
                digits = max(WHOLE_DIGITS[written.kind] + kind.scale, kind.precision)
                return DecimalType(digits, kind.scale) if digits <= MAX_DIGITS else kind
            case DecimalType(), _ if written.logical == "decimal":
                # Digits behind the point that the column lacks are no matter of width, and may all be zeros.
                scale = min(written.scale, kind.scale)
                return DecimalType(max(written.precision - written.scale, kind.precision - kind.scale) + scale, scale)
            case _:
                return kind

    def _union(self, kind: IcebergType, written: WriterType, path: Path) -> IcebergType:
        """Return the struct of a union's types, if it is one; otherwise what all of them want of the column."""
        parts = [part for part in written.parts if part.kind != "null"]
        members = tuple(WriterField(name=part.name, type=part) for part in parts)
        if (
            len(parts) > 1
            and isinstance(kind, StructType)
            and {f.name for f in kind.fields} & {m.name for m in members}
        ):
            whole = WriterType(kind="record", name=written.name, fields=members)
            return self.struct(kind, whole, path)
        for part in parts:
            found = self.own(kind, part, path)
            if isinstance(kind, StructType) and isinstance(found, StructType):
                found = StructType(*{f.name: f for f in (*kind.fields, *found.fields)}.values())
            kind = found
        return kind

    def new(self, one: WriterField, path: Path) -> IcebergType | None:
        (column,) = avro_columns(WriterType(kind="record", name="", fields=(one,)))
        if column.type is None:
            self.left_out.append(left_out(dotted(path), "; ".join(column.notes)))
            return None
        return columns_from_spec([column.to_dict()]).fields[0].field_type


def _rows_in(envelope: WriterType) -> Iterator[WriterType]:
    """Yield the types of both images of an Avro envelope."""
    fields = {f.name: f.type for f in envelope.fields}
    for name in dict.fromkeys(IMAGES.values()):
        if (kind := fields.get(name)) is not None:
            parts = [p for p in kind.parts if p.kind != "null"] if kind.kind == "union" else [kind]
            yield from (parts[0],) if len(parts) == 1 and parts[0].kind == "record" else ()
