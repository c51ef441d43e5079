# SPDX-License-Identifier: Apache-2.0
"""A schema of a registry, as decoders take it.

Contract: pure. A schema is known by the number that records carry, or by the UUID that newer ones do; what is
registered under either never changes, so it may be kept for as long as a process lives. Its references come with it,
theirs too, each under the name by which the schema calls it. Which version of a subject is the newest changes, and is
asked for anew each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""The registries' names of schema types."""
SchemaKey = int | UUID


def told(key: SchemaKey) -> str:
    return f"schema id {key}" if isinstance(key, int) else f"schema {key}"


class UnknownSchemaError(Exception):
    """The registry answers, and has no such schema: it is the record that names it."""


class AbsentKindError(UnknownSchemaError):
    """The registry answers, and has none by keys of that kind: waiting for it is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema. ``text`` is its definition as it was registered; ``references`` are what it imports, by name."""

    key: SchemaKey
    kind: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def imported(self) -> Iterator[tuple[str, RegisteredSchema]]:
        """All that it imports, directly and through others, each once, before what imports it."""
        yield from _imported(self, set())


def _imported(schema: RegisteredSchema, seen: set[str]) -> Iterator[tuple[str, RegisteredSchema]]:
    for name, inner in schema.references:
        if name not in seen:
            # Known before what is in it: files that many import are walked through once.
            seen.add(name)
            yield from _imported(inner, seen)
            yield name, inner


class SchemaSource(Protocol):
    """The source of schemas for decoders."""

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """Return the schema of that key.

        :raises UnknownSchemaError: there is none
        :raises RegistryError: whether there is one cannot be learned now
        """
