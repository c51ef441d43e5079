# SPDX-License-Identifier: Apache-2.0
"""Infer columns from the Protobuf messages of a window's records.

A new column has the type that `infer-schema` gives it. An existing one keeps its type, or gets the wider one of whole
or fractional numbers. Misfits are the decoder's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from google.protobuf.descriptor import Descriptor
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

from airflow_provider_lakecommit.formats.column_rules import ColumnRules
from airflow_provider_lakecommit.formats.evolution.changes import Finding, lacking, left_out, misfit
from airflow_provider_lakecommit.formats.evolution.named_schemas import NamedSchemasSource
from airflow_provider_lakecommit.formats.evolution.paths import optional_struct, plain
from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_at, message_named, registered_file
from airflow_provider_lakecommit.formats.protobuf.fields import MessageColumns
from airflow_provider_lakecommit.formats.protobuf.infer import message_columns
from airflow_provider_lakecommit.formats.protobuf.message_framing import paths_of
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema
from airflow_provider_lakecommit.iceberg import columns_from_spec

_COLUMN = re.compile(r"column (?P<path>\S+) (?P<what>.*)", re.DOTALL)


class MessagesSource(NamedSchemasSource[Descriptor]):
    """The :class:`~airflow_provider_lakecommit.formats.evolution.inferred.TypeSource` of Protobuf."""

    def _stated(self) -> tuple[str, list[Descriptor]]:
        stated = message_named(file_of(self._options.schema), self._options.message)
        return f"the message {stated.full_name} of the landing", [stated]

    def _named(self, found: RegisteredSchema, group: Framed, values: Sequence[bytes]) -> Iterator[Descriptor]:
        file = registered_file(found)
        paths, _ = paths_of([values[position] for position in group.positions], group.start)
        for path in dict.fromkeys(path for path, _ in paths):
            # A path that leads nowhere is that of a record.
            with suppress(DescriptorError):
                message = message_at(file, path, self._options.message)
                if not self._options.message or message.full_name == self._options.message:
                    yield message

    def _wants(
        self, schema: Schema, written: Descriptor, new: Collection[str] = ()
    ) -> tuple[StructType, list[Finding]]:
        columns = message_columns(written)
        typed = [c.to_dict() for c in columns if c.type is not None]
        inferred = columns_from_spec(typed).as_struct()
        without = [left_out(c.name, "; ".join(c.notes)) for c in columns if c.type is None]
        return _struct(schema.as_struct(), inferred), without

    def _unfit(self, schema: Schema, written: Descriptor) -> Iterator[Finding]:
        yield from lacking(schema.as_struct(), self._wants(schema, written)[0])
        _, _, wrong = MessageColumns.of(written, schema.fields, ColumnRules.of(schema, self._rules(schema)))
        for text in wrong:
            if (found := _COLUMN.match(text)) is not None:
                path = found["path"].rstrip(":")
                yield misfit(path, plain(schema.find_type(path)), "another field", found["what"])


def _struct(own: StructType, inferred: StructType) -> StructType:
    names = {f.name: f.field_type for f in own.fields}
    fields = {f.name: f.field_type for f in inferred.fields}
    return optional_struct({n: _kind(names[n], kind) if n in names else kind for n, kind in fields.items()})


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
        case IntegerType(), DecimalType():
            # Of `uint64`: the widest that an int can become takes all but numbers from 2^63 on.
            return LongType()
        case _:
            return own
