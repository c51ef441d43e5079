# SPDX-License-Identifier: Apache-2.0
"""The names of the schemas that records are written with, as the one column of a table, for routing.

Each value has one row, with the name or null, or is a reject as of
:mod:`~airflow_provider_lakecommit.formats.framed_values`. Payloads are not read. The name is a JSON Schema's ``title``,
an Avro record's full name, or a Protobuf message's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pkgutil import resolve_name
from typing import Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.core import SCHEMA_NAMES
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Decoder, Refusal, Reject, with_positions
from airflow_provider_lakecommit.formats.framed_values import FramedReader
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schema_source import AVRO, JSON, RegisteredSchema, SchemaSource

COLUMN = "schema"
T = TypeVar("T")


class SchemaNames(BaseDecoder, Generic[T]):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of names.

    :param kind: the registries' name of the schema type
    :param make: returns the source of names in a schema
    :param named: yields the names of values with that schema, or why they have none, with their positions
    """

    _schema = pa.schema([pa.field(COLUMN, pa.string())])

    def __init__(
        self,
        registry: SchemaSource | None,
        kind: str,
        make: Callable[[RegisteredSchema], T],
        named: Callable[[Sequence[bytes], Framed, T], Iterator[tuple[str | Refusal | None, Sequence[int]]]],
    ) -> None:
        self._reader, self._named = FramedReader(registry, kind, make), named

    def decode(self, values: Sequence[bytes]) -> Decoded:
        parts, rejects = self._reader.parts(values)
        names = np.full(len(values), None, object)
        for group, made in parts:
            for name, positions in self._named(values, group, made):
                if isinstance(name, Refusal):
                    rejects += [Reject.of(i, name) for i in positions]
                else:
                    names[positions] = name
        refused = {reject.index for reject in rejects}
        kept = [i for i in range(len(values)) if i not in refused]
        table = pa.table([pa.array(names[kept], pa.string())], schema=self._schema)
        return with_positions(Decoded(table=table), kept, rejects)


def schema_names_for(format: str, registry: SchemaSource | None) -> Decoder:
    """Return the reader of a format's schema names."""
    return cast(Decoder, resolve_name(SCHEMA_NAMES[format])(registry))


def record_names(registry: SchemaSource | None) -> Decoder:
    """Return the reader of Avro's record names."""
    return SchemaNames(registry, AVRO, lambda schema: record_name(schema.text), _one_name)


def json_schema_names(registry: SchemaSource | None) -> Decoder:
    """Return the reader of the titles of JSON Schemas."""
    return SchemaNames(registry, JSON, _title, _one_name)


def _one_name(
    _values: Sequence[bytes], group: Framed, name: str | None
) -> Iterator[tuple[str | Refusal | None, Sequence[int]]]:
    yield name, group.positions


def _title(schema: RegisteredSchema) -> str | None:
    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError):
        return None
    title = found.get("title") if isinstance(found, dict) else None
    return title if isinstance(title, str) else None


def record_name(text: str) -> str | None:
    """Return the full name of a schema's top type, if it has one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    while isinstance(found, dict) and isinstance(found.get("type"), dict):
        found = found["type"]
    if isinstance(found, str):
        return found
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return None
    space = found.get("namespace")
    return f"{space}.{name}" if isinstance(space, str) and space and "." not in name else name
