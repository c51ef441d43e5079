# SPDX-License-Identifier: Apache-2.0
"""Resolve the named types of schemas.

Names follow Avro's specification and, where that is open, its Java library: a name missing in its namespace is searched
without one, a null namespace counts as not stated, and a name may precede its definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_INNER = {"array": "items", "map": "values"}


class SchemaError(ValueError):
    """A text is not a schema."""


def full_name(stated: Mapping[str, Any], space: str) -> str:
    """Return the full name of a type.

    :param space: the namespace around it
    """
    name, own = stated.get("name"), stated.get("namespace")
    if not isinstance(name, str) or not name:
        raise SchemaError(f"type {stated.get('type')} has no name")
    if "." in name:
        return name.removeprefix(".")
    space = space if own is None else str(own)
    return f"{space}.{name}" if space else name


@dataclass(slots=True)
class Names:
    """The definitions of named types, by full name, each with the namespace around it."""

    defined: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)

    def define(self, stated: Any, space: str = "") -> None:
        """Register the definitions of a schema. Of several with one name the first one counts."""
        if isinstance(stated, list):
            for each in stated:
                self.define(each, space)
        elif isinstance(stated, Mapping):
            kind = stated.get("type")
            if not isinstance(kind, str):
                return
            if kind in _INNER:
                self.define(stated.get(_INNER[kind]), space)
            elif kind in _NAMED:
                self._define(stated, space)

    def _define(self, stated: Mapping[str, Any], space: str) -> None:
        full = full_name(stated, space)
        self.defined.setdefault(full, (stated, space))
        for each in stated.get("fields", ()) if stated["type"] in ("record", "error") else ():
            if isinstance(each, Mapping):
                self.define(each.get("type"), full.rpartition(".")[0])

    def found(self, name: Any, space: str) -> tuple[Mapping[str, Any], str]:
        """Return the definition of a name.

        :raises SchemaError: there is none
        """
        near = f"{space}.{name}" if space and "." not in str(name) else name
        for full in (near, name):
            if isinstance(full, str) and full in self.defined:
                return self.defined[full]
        raise SchemaError(f"unknown type {str(name)[:100]!r}")
