# SPDX-License-Identifier: Apache-2.0
"""The names of the schemas that records are written with, as the one column of a table, for routing.

Each value has one row, with the name or null, or is a reject as of
:mod:`~airflow_provider_lakecommit.formats.framed_values`. Payloads are not read. The name is a JSON Schema's ``title``,
an Avro record's full name, or a Protobuf message's.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pkgutil import resolve_name
from typing import ClassVar, Generic, TypeVar, cast

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.core import SCHEMA_NAMES
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Decoder, Reject, with_positions
from airflow_provider_lakecommit.formats.framed_values import FramedReader
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schemas import AVRO, JSON, RegisteredSchema, SchemaSource

COLUMN = "schema"
T = TypeVar("T")


class SchemaNames(BaseDecoder, ABC, Generic[T]):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of names."""

    _schema = pa.schema([pa.field(COLUMN, pa.string())])
    kind: ClassVar[str]
    """The registries' name of the schema type."""

    def __init__(self, registry: SchemaSource | None) -> None:
        self._reader = FramedReader(registry, self.kind, self._made)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        parts, rejects = self._reader.parts(values)
        names = np.full(len(values), None, object)
        for group, made in parts:
            for name, positions in self._named(values, group, made, rejects):
                names[positions] = name
        refused = {reject.index for reject in rejects}
        kept = [i for i in range(len(values)) if i not in refused]
        table = pa.table([pa.array(names[kept], pa.string())], schema=self._schema)
        return with_positions(Decoded(table=table), kept, sorted(rejects, key=lambda r: r.index))

    @abstractmethod
    def _made(self, schema: RegisteredSchema) -> T:
        """Return the source of names in a schema."""

    @abstractmethod
    def _named(
        self, values: Sequence[bytes], group: Framed, made: T, rejects: list[Reject]
    ) -> Iterator[tuple[str | None, Sequence[int]]]:
        """Yield names with the positions of their values.

        :param rejects: takes values without a valid name
        """


class OneSchemaNames(SchemaNames[str | None]):
    """Names of formats with one name per schema."""

    def _named(
        self, values: Sequence[bytes], group: Framed, made: str | None, rejects: list[Reject]
    ) -> Iterator[tuple[str | None, Sequence[int]]]:
        yield made, group.positions


class JsonSchemaNames(OneSchemaNames):
    """Names of JSON Schema."""

    kind = JSON

    def _made(self, schema: RegisteredSchema) -> str | None:
        try:
            found = json.loads(schema.text)
        except (ValueError, RecursionError):
            return None
        title = found.get("title") if isinstance(found, dict) else None
        return title if isinstance(title, str) else None


def schema_names_for(format: str, registry: SchemaSource | None) -> Decoder:
    """Return the reader of a format's schema names."""
    return cast(Decoder, resolve_name(SCHEMA_NAMES[format])(registry))


class RecordNames(OneSchemaNames):
    """Record names of Avro."""

    kind = AVRO

    def _made(self, schema: RegisteredSchema) -> str | None:
        return record_name(schema.text)


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
