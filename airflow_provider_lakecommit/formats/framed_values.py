# SPDX-License-Identifier: Apache-2.0
"""The values of a block by the schemas that they name, each schema fetched once, several of a block at a time.

Contract: of each value, exactly one is true: it is in a part, or it is a reject that says what is wrong: it is not
framed (``not_framed``), the registry has no such schema (``unknown_schema``), or the schema is of another format
(``wrong_schema``). That there is no such schema is asked anew for each slice, and once in it.

Failure story: a registry that is away is no fault of the records: its error goes through, and the slice is done again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats.decoder import NothingHeld, Refusal, Reject
from airflow_provider_lakecommit.formats.registry.framing import framed
from airflow_provider_lakecommit.formats.registry.schemas import (
    Learned,
    RegisteredSchema,
    SchemaKey,
    SchemaSource,
    UnknownSchemaError,
    learned,
    told,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedPart(Generic[T]):
    """Values of one schema: their places in the block, and where the payload of each begins. ``made`` is what was made
    of the schema.
    """

    key: SchemaKey
    made: T
    places: Sequence[int]
    start: int


class FramedReader(Generic[T]):
    """Splits blocks by schema.

    :param kind: of schema that is wanted, as registries call it
    :param make: from a schema; raises :class:`~airflow_provider_lakecommit.formats.decoder.Refusal` if no record of it
        can be read
    """

    def __init__(self, registry: SchemaSource | None, kind: str, make: Callable[[RegisteredSchema], T]) -> None:
        self._registry, self._kind, self._make = registry, kind, make
        self._known: dict[SchemaKey, T | Refusal] = {}

    def parts(self, values: Sequence[bytes]) -> tuple[list[FramedPart[T]], list[Reject]]:
        """Return the parts of a block, and the rejects in the order of their values.

        :raises RegistryError: a schema cannot be learned now
        """
        found = framed(values)
        self._learn([group.key for group in found.groups if group.key not in self._known])
        parts: list[FramedPart[T]] = []
        rejects = [
            Reject.of(i, Refusal("not_framed", None, f"{wrong}; the landing reads values framed for a schema registry"))
            for i, wrong in found.unframed.items()
        ]
        for group in found.groups:
            made = self._known[group.key]
            if isinstance(made, Refusal):
                rejects += [Reject.of(i, made) for i in group.places]
            else:
                parts.append(FramedPart(key=group.key, made=made, places=group.places, start=group.start))
        return parts, sorted(rejects, key=lambda reject: reject.index)

    def _learn(self, keys: Sequence[SchemaKey]) -> None:
        if keys and self._registry is None:
            raise RuntimeError("a decoder for checking a table has no registry to decode with")
        if self._registry is not None:
            self._known |= {key: self._usable(key, one) for key, one in learned(self._registry, keys).items()}

    def _usable(self, key: SchemaKey, schema: Learned) -> T | Refusal:
        if isinstance(schema, UnknownSchemaError):
            return Refusal("unknown_schema", None, str(schema))
        if schema.kind != self._kind:
            wanted = self._kind.capitalize() if self._kind != "JSON" else "JSON Schema"
            return Refusal("wrong_schema", None, f"{told(key)} is of type {schema.kind}; the landing reads {wanted}")
        try:
            return self._make(schema)
        except Refusal as refusal:
            return refusal


class FramedDecoder(NothingHeld, ABC, Generic[T]):
    """What the decoders of formats with a registry share (:class:`~airflow_provider_lakecommit.formats.decoder.Decoder`
    is what each of them is).

    :param skip: columns that are not read from the values
    :param registry: where schemas are; a format whose schema a landing may state is read without one then
    :raises TableError: a rule does not fit the table, or the stated schema does not
    """

    kind: ClassVar[str]
    """The registries' name of its schema type."""

    def __init__(
        self,
        schema: Schema,
        options: FormatOptions,
        skip: Set[str] = frozenset(),
        registry: SchemaSource | None = None,
    ) -> None:
        self._reader = FramedReader(registry, self.kind, self._made)
        self._target = self._prepared(schema, options, skip)

    @property
    def schema(self) -> pa.Schema:
        return self._target

    @abstractmethod
    def _prepared(self, schema: Schema, options: FormatOptions, skip: Set[str]) -> pa.Schema:
        """Make what reads records into the table; gives the schema of its rows.

        :raises TableError: as the class
        """

    @abstractmethod
    def _made(self, schema: RegisteredSchema) -> T:
        """Return the reader of a schema's records.

        :raises Refusal: none of them can be read
        """
