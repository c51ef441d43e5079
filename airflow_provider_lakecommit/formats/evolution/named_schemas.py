# SPDX-License-Identifier: Apache-2.0
"""Infer columns from the schemas that a window's records name in a registry, for all formats of such records.

The schemas are those of the sampled records, or the landing's own; registered schemas that no record names change
nothing. Columns of several schemas are joined first, so that the result does not depend on their order; misfits are
then judged against the widest table.

A schema that the registry lacks is for the tasks to reject. One whose records never become rows is a misfit. If the
registry does not answer, the plan is made again.

A joined type holds the values of all schemas, in whatever order they come: whole numbers and ones with a fraction are a
``double``, which refuses what it would round. Fields that no type holds are left out by path; the rest of a struct
stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from confluent_kafka import Message
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
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
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from airflow_provider_lakecommit.core import WITH_REGISTRY, Coverage, FormatOptions
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.evolution.changes import (
    MAX_DIGITS,
    OF_SCHEMAS,
    UNLIMITED,
    Finding,
    evolution,
    holds,
    left_out,
)
from airflow_provider_lakecommit.formats.evolution.inferred import MOST_NAMED, InferredTypes, RecordSample
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, plain
from airflow_provider_lakecommit.formats.evolution.sampled_columns import framed_value, sampled
from airflow_provider_lakecommit.formats.evolution.schema import evolved_schema
from airflow_provider_lakecommit.formats.registry.client import needed, registry_of
from airflow_provider_lakecommit.formats.registry.framing import Framed, framed
from airflow_provider_lakecommit.formats.registry.schema_source import (
    RegisteredSchema,
    UnknownSchemaError,
    key_text,
    learned,
)
from airflow_provider_lakecommit.landing import Landing

T = TypeVar("T")


class NamedSchemasSource(ABC, Generic[T]):
    """The source of wanted columns for a format whose records name schemas, each parsed to a ``T``."""

    def __init__(self, landing: Landing, kafka: Mapping[str, Any]) -> None:
        self._landing, self._kafka = landing, kafka
        self._options = landing.format_options

    def sample(self, ranges: Coverage, observed: Coverage) -> RecordSample:
        """Sample records; with a stated schema only to find the table that each is for."""
        if self._options.schema:
            if self._landing.routing is None:
                return RecordSample(ranges=ranges)
            return sampled(self._kafka, ranges, observed, Message.value)
        return sampled(self._kafka, ranges, observed, framed_value)

    def inferred(self, schema: Schema, sample: RecordSample) -> InferredTypes:
        if self._options.schema:
            origin, stated = self._stated()
            return self._combined(schema, origin, stated)
        own, before = ([v for _, v in some if v is not None] for some in (sample.own, sample.before))
        named = [key_text(group.key) for group in framed(own + before)[0]]
        more = f" and {len(named) - MOST_NAMED} more schemas" if len(named) > MOST_NAMED else ""
        names = ", ".join(named[:MOST_NAMED]) + more or "no schema"
        written, unreadable = self._schemas(own)
        of_before, _ = self._schemas(before)
        found = self._combined(schema, f"{names} of {sample.description}", written, of_before)
        return replace(found, misfits=(*unreadable, *found.misfits))

    def _combined(self, schema: Schema, origin: str, written: Sequence[T], before: Sequence[T] = ()) -> InferredTypes:
        """Return the columns that several schemas need in a table.

        :param before: schemas of earlier records, of which misfits are not reported
        """
        without, joined = list[Finding](), JoinedColumns()
        for one in dict.fromkeys((*written, *before)):
            columns, left = self._wants(schema, one, [f.name for f in joined.columns.fields])
            joined.add(columns)
            without += left
        found = evolution(schema, joined.columns, widen=True, limits=UNLIMITED)
        without += [*joined.left_out.values(), *found.left_out]
        now = evolved_schema(schema, found.changes, last_id=max(schema.field_ids, default=0), schema_id=0)
        misfits = list[Finding]()
        for one in written:
            misfits += evolution(now, self._wants(now, one)[0], widen=True, limits=UNLIMITED).misfits
            misfits += self._unfit(now, one)
        return InferredTypes(
            columns=now.as_struct(),
            origin=origin,
            left_out=tuple(dict.fromkeys(without)),
            misfits=tuple(dict.fromkeys(misfits)),
            limits=OF_SCHEMAS,
        )

    def _rules(self, schema: Schema) -> FormatOptions:
        return self._options.of_columns({field.name for field in schema.fields})

    def _schemas(self, values: Sequence[bytes]) -> tuple[list[T], list[Finding]]:
        """Return the schemas of records, and those whose records never become rows."""
        groups, _ = framed(values)
        registry = needed(registry_of(self._kafka), self._landing.name, self._landing.decoding.name)
        found = learned(registry, (group.key for group in groups))
        written, unreadable = dict[T, None](), list[Finding]()
        for group in groups:
            schema = found[group.key]
            if isinstance(schema, UnknownSchemaError):
                continue
            try:
                if schema.kind != WITH_REGISTRY[self._landing.decoding.name]:
                    raise Refusal("wrong_schema", None, f"it is of type {schema.kind}")
                for one in self._named(schema, group, values):
                    written[one] = None
            except Refusal as refusal:
                unreadable.append(Finding(text=f"{key_text(group.key)}: {refusal.reason}"))
        return list(written), unreadable

    @abstractmethod
    def _stated(self) -> tuple[str, list[T]]:
        """Return the name of the landing's own schema, and the schema."""

    @abstractmethod
    def _named(self, found: RegisteredSchema, group: Framed, values: Sequence[bytes]) -> Iterable[T]:
        """Yield the types of a schema's records."""

    @abstractmethod
    def _wants(self, schema: Schema, written: T, new: Collection[str] = ()) -> tuple[StructType, list[Finding]]:
        """Return the columns that one of them wants, and what of it cannot be one.

        :param new: names of columns that the table lacks and others want
        """

    @abstractmethod
    def _unfit(self, schema: Schema, written: T) -> Iterable[Finding]:
        """Yield the parts of one schema that do not fit."""


_WHOLE = {IntegerType: 10, LongType: 19}
"""Integer types, with their digits."""
_FRACTIONS = (FloatType, DoubleType)
_OCTETS = (BinaryType, FixedType)


@dataclass(slots=True)
class JoinedColumns:
    """The columns of all structs that were added."""

    columns: StructType = field(default_factory=StructType)
    left_out: dict[Path, Finding] = field(default_factory=dict)

    def add(self, columns: StructType) -> None:
        self.columns = StructType(*self._fields(self.columns.fields, columns.fields, ()))

    def _fields(self, one: Iterable[NestedField], other: Iterable[NestedField], path: Path) -> list[NestedField]:
        out = {f.name: f for f in one}
        for f in other:
            at = (*path, f.name)
            if at in self.left_out:
                continue
            kind = self._type(out[f.name].field_type, f.field_type, at) if f.name in out else f.field_type
            if kind is None:
                del out[f.name]
            else:
                out[f.name] = NestedField(f.field_id, f.name, kind, required=False)
        return list(out.values())

    def _type(self, one: IcebergType, other: IcebergType, path: Path) -> IcebergType | None:
        if isinstance(one, StructType) and isinstance(other, StructType):
            fields = self._fields(one.fields, other.fields, path)
            return StructType(*fields) if fields else None
        if isinstance(one, ListType) and isinstance(other, ListType):
            inner = self._type(one.element_type, other.element_type, (*path, "element"))
            return None if inner is None else ListType(1, inner, element_required=False)
        if isinstance(one, MapType) and isinstance(other, MapType) and plain(one.key_type) == plain(other.key_type):
            inner = self._type(one.value_type, other.value_type, (*path, "value"))
            return None if inner is None else MapType(1, one.key_type, 2, inner, value_required=False)
        if (found := _common(one, other)) is None:
            why = f"its schemas disagree: {plain(one)} and {plain(other)}"
            self.left_out[path] = left_out(dotted(path), why)
        return found


def _common(one: IcebergType, other: IcebergType) -> IcebergType | None:
    if holds(one, other):
        return one
    if holds(other, one):
        return other
    if not isinstance(one, PrimitiveType) or not isinstance(other, PrimitiveType):
        return None
    both = (one, other)
    if all(isinstance(kind, (*_WHOLE, *_FRACTIONS)) for kind in both):
        return DoubleType()
    if all(isinstance(kind, (*_WHOLE, DecimalType)) for kind in both):
        whole, scale = (max(digits) for digits in zip(*map(_digits, both), strict=True))
        return DecimalType(whole + scale, scale) if whole + scale <= MAX_DIGITS else None
    if all(isinstance(kind, UUIDType | StringType) for kind in both):
        return StringType()
    if all(isinstance(kind, (*_OCTETS, StringType)) for kind in both):
        return BinaryType()
    return None


def _digits(kind: PrimitiveType) -> tuple[int, int]:
    return (kind.precision - kind.scale, kind.scale) if isinstance(kind, DecimalType) else (_WHOLE[type(kind)], 0)
