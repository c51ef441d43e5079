# SPDX-License-Identifier: Apache-2.0
"""Wanted columns by the Protobuf messages that a window's records are.

Contract: the messages are those that the sampled records name by the id of their schema and their path in it, or the
one that the landing states. A new column has the type that `infer-schema` gives it. For a column that the table has it
is the table's, or the wider one of whole numbers and of numbers with a fraction; what does not fit is what the decoder
says of it.

Failure story: a schema that the registry does not have, or in which there is no such message, is for the tasks to
reject; a registry that does not answer is an error, and the plan is made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from google.protobuf.descriptor import Descriptor
from pyiceberg.schema import Schema
from pyiceberg.types import (
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

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.evolve.changes import LeftOut, Misfit
from airflow_provider_lakecommit.evolve.combined import combined
from airflow_provider_lakecommit.evolve.paths import plain
from airflow_provider_lakecommit.evolve.records import framed_value, sampled
from airflow_provider_lakecommit.evolve.wanted import Wanted
from airflow_provider_lakecommit.formats.rules import ColumnRules
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.protobuf.descriptors import DescriptorError, file_of, message_at, message_named
from airflow_provider_lakecommit.protobuf.fields import MessageColumns
from airflow_provider_lakecommit.protobuf.infer import message_columns
from airflow_provider_lakecommit.protobuf.message_framing import paths_of
from airflow_provider_lakecommit.registry.client import needed, registry_of
from airflow_provider_lakecommit.registry.framing import Framed, framed
from airflow_provider_lakecommit.registry.schemas import PROTOBUF, UnknownSchemaError, told

__all__ = ["MessagesSource"]

_COLUMN = re.compile(r"column (?P<path>\S+) (?P<what>.*)", re.DOTALL)


class MessagesSource:
    """The :class:`~airflow_provider_lakecommit.evolve.wanted.WantedSource` of Protobuf."""

    def __init__(self, options: FormatOptions, kafka: Mapping[str, Any]) -> None:
        self._options, self._kafka = options, kafka

    def wanted(self, schema: Schema, ranges: Coverage, seen: Coverage) -> Wanted:
        """By their descriptors.

        :raises RegistryError: it does not answer
        """
        told_by, written = self._written(ranges, seen)
        return combined(schema, written, _wants, self._unfit, told_by)

    def _written(self, ranges: Coverage, seen: Coverage) -> tuple[str, list[Descriptor]]:
        if self._options.schema:
            stated = message_named(file_of(self._options.schema), self._options.message)
            return f"the message {stated.full_name} that the landing states", [stated]
        values = [v for _, v in sampled(self._kafka, ranges, seen, framed_value) if v is not None]
        groups = framed(values).groups
        by = f"{', '.join(told(g.key) for g in groups) or 'no schema'} of {len(values)} records of {ranges}"
        return by, [message for group in groups for message in self._messages(group, values)]

    def _messages(self, group: Framed, values: list[bytes]) -> Iterator[Descriptor]:
        with suppress(UnknownSchemaError, DescriptorError):
            found = needed(registry_of(self._kafka), "", "protobuf").schema(group.key)
            if found.kind != PROTOBUF:
                return
            file = file_of(found.text, tuple((name, inner.text) for name, inner in found.imported()))
            paths, _ = paths_of([values[place] for place in group.places], group.start)
            for path in dict.fromkeys(path for path, _ in paths):
                with suppress(DescriptorError):
                    message = message_at(file, path)
                    if not self._options.message or message.full_name == self._options.message:
                        yield message

    def _unfit(self, schema: Schema, message: Descriptor) -> Iterator[Misfit]:
        _, _, wrong = MessageColumns.of(message, schema.fields, ColumnRules.of(schema, self._options))
        for text in wrong:
            if (found := _COLUMN.match(text)) is not None:
                kind = plain(schema.find_type(found["path"].rstrip(":")))
                yield Misfit(
                    column=found["path"].rstrip(":"), in_table=kind, in_records="another field", why=found["what"]
                )


def _wants(schema: Schema, message: Descriptor) -> tuple[StructType, list[LeftOut]]:
    columns = message_columns(message)
    typed = [c.to_dict() for c in columns if c.type is not None]
    inferred = create_from_spec({"schema": typed})[0].as_struct() if typed else StructType()
    left_out = [LeftOut(column=c.name, why="; ".join(c.notes)) for c in columns if c.type is None]
    return _struct(schema.as_struct(), inferred), left_out


def _struct(own: StructType, inferred: StructType) -> StructType:
    names = {f.name: f.field_type for f in own.fields}
    kinds = ((f, _kind(names[f.name], f.field_type) if f.name in names else f.field_type) for f in inferred.fields)
    return StructType(*(NestedField(f.field_id, f.name, kind, required=False) for f, kind in kinds))


def _kind(own: IcebergType, inferred: IcebergType) -> IcebergType:
    match own, inferred:
        case StructType(), StructType():
            return _struct(own, inferred)
        case ListType(), ListType():
            return ListType(1, _kind(own.element_type, inferred.element_type), False)
        case MapType(), MapType():
            return MapType(1, own.key_type, 2, _kind(own.value_type, inferred.value_type), False)
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return inferred
        case _:
            return own
