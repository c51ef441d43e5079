# SPDX-License-Identifier: Apache-2.0
"""The values of a block by the schemas that they name, each schema fetched once.

Each value is in a part, or a reject: not framed (``not_framed``), no such schema (``unknown_schema``), or a schema of
another format (``wrong_schema``). A missing schema is requested again for each slice. An unreachable registry is an
error, not a reject, and the slice is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from airflow_provider_lakecommit.formats.decoder import Refusal, Reject
from airflow_provider_lakecommit.formats.registry.framing import Framed, framed
from airflow_provider_lakecommit.formats.registry.schema_source import (
    Learned,
    RegisteredSchema,
    SchemaKey,
    SchemaSource,
    UnknownSchemaError,
    key_text,
    learned,
)

T = TypeVar("T")


class FramedReader(Generic[T]):
    """Splits blocks by schema.

    :param kind: the registry's name of the wanted schema type
    :param make: parses a schema; raises :class:`~airflow_provider_lakecommit.formats.decoder.Refusal` if it is unusable
    """

    def __init__(self, registry: SchemaSource | None, kind: str, make: Callable[[RegisteredSchema], T]) -> None:
        self._registry, self._kind, self._make = registry, kind, make
        self._known: dict[SchemaKey, T | Refusal] = {}

    def parts(self, values: Sequence[bytes]) -> tuple[list[tuple[Framed, T]], list[Reject]]:
        """Return the parts of a block with their parsed schemas, and the rejects in order."""
        groups, unframed = framed(values)
        if unknown := [group.key for group in groups if group.key not in self._known]:
            if self._registry is None:
                raise RuntimeError("a decoder for checking a table has no registry to decode with")
            found = learned(self._registry, unknown)
            self._known |= {key: self._usable(key, schema) for key, schema in found.items()}
        parts: list[tuple[Framed, T]] = []
        rejects = [
            Reject.of(i, Refusal("not_framed", None, f"{wrong}; the landing reads values framed for a schema registry"))
            for i, wrong in unframed.items()
        ]
        for group in groups:
            made = self._known[group.key]
            if isinstance(made, Refusal):
                rejects += [Reject.of(i, made) for i in group.positions]
            else:
                parts.append((group, made))
        return parts, sorted(rejects, key=lambda reject: reject.index)

    def _usable(self, key: SchemaKey, schema: Learned) -> T | Refusal:
        if isinstance(schema, UnknownSchemaError):
            return Refusal("unknown_schema", None, str(schema))
        if schema.kind != self._kind:
            expected = self._kind.capitalize() if self._kind != "JSON" else "JSON Schema"
            return Refusal(
                "wrong_schema", None, f"{key_text(key)} is of type {schema.kind}; the landing reads {expected}"
            )
        try:
            return self._make(schema)
        except Refusal as refusal:
            return refusal
