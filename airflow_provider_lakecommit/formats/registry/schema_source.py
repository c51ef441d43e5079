# SPDX-License-Identifier: Apache-2.0
"""Schemas of a registry, as decoders take them, known by the number or UUID in records.

What is registered under a key never changes. References come along, under the names by which schemas import them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
"""The registries' names of schema types."""
SchemaKey = int | UUID


def key_text(key: SchemaKey) -> str:
    return f"schema id {key}" if isinstance(key, int) else f"schema {key}"


class UnknownSchemaError(Exception):
    """The registry answers that it has no such schema: the record is to blame."""


class AbsentKindError(UnknownSchemaError):
    """The registry serves no keys of that kind: waiting is of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema; ``references`` are its imports by name."""

    key: SchemaKey
    kind: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def imported(self) -> Iterator[tuple[str, RegisteredSchema]]:
        """Yield all direct and indirect imports, each once, before its users."""
        yield from _imported(self, set())


def _imported(schema: RegisteredSchema, visited: set[str]) -> Iterator[tuple[str, RegisteredSchema]]:
    for name, inner in schema.references:
        if name not in visited:
            # Known before what is in it: files that many import are walked through once.
            visited.add(name)
            yield from _imported(inner, visited)
            yield name, inner


class SchemaSource(Protocol):
    """The source of schemas for decoders."""

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """Return the schema of that key.

        :raises UnknownSchemaError: there is none
        :raises RegistryError: it is unknown whether there is one
        """


MOST_AT_ONCE = 8
Learned = RegisteredSchema | UnknownSchemaError


def learned(source: SchemaSource, keys: Iterable[SchemaKey]) -> dict[SchemaKey, Learned]:
    """Return the schemas of these keys, or that there is none, by at most :data:`MOST_AT_ONCE` requests at a time."""
    requested = list(dict.fromkeys(keys))
    if len(requested) < 2:
        return {key: _one(source, key) for key in requested}
    found: dict[SchemaKey, Learned] = {}
    failed: list[Exception] = []

    def ask(key: SchemaKey) -> None:
        if failed:
            return
        try:
            found[key] = _one(source, key)
        except Exception as e:
            failed.append(e)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(requested)), thread_name_prefix="lakecommit-schemas") as pool:
        for key in requested:
            pool.submit(ask, key)
    if failed:
        raise failed[0]
    return found


def _one(source: SchemaSource, key: SchemaKey) -> Learned:
    try:
        return source.schema(key)
    except UnknownSchemaError as e:
        return e
