# SPDX-License-Identifier: Apache-2.0
"""Paths of columns, as Iceberg names them: ``element`` leads into a list, ``key`` and ``value`` into a map."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

Path = tuple[str, ...]


def dotted(path: Path) -> str:
    """Return a path as one text; unprintable characters are escaped."""
    return ".".join(name if name.isprintable() and name else repr(name)[1:-1] or "''" for name in path)


def plain(kind: IcebergType) -> str:
    """Return a type without the ids of its fields."""
    return re.sub(r"\b[0-9]+: ", "", str(kind))


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 2]} …"


def parts_of(kind: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return tuple(kind.fields)
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def paths_in(fields: Iterable[NestedField], above: Path = ()) -> Iterator[tuple[Path, NestedField]]:
    for one in fields:
        path = (*above, one.name)
        yield path, one
        yield from paths_in(parts_of(one.field_type), path)


def optional_struct(kinds: Mapping[str, IcebergType]) -> StructType:
    """Return a struct of optional fields, whose ids mean nothing."""
    fields = enumerate(kinds.items(), 1)
    return StructType(*(NestedField(n, name, kind, required=False) for n, (name, kind) in fields))
