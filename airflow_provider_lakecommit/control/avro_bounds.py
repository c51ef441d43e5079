# SPDX-License-Identifier: Apache-2.0
"""Limits for Avro schemas of unknown origin, and a walk over a body that builds nothing.

:class:`Measure` is the fewest bytes of a value of a type, and the most values that are built for it without its items.
A schema is only run if each array item takes bytes and builds few values per byte: then a body costs at most a small
multiple of its length, even with false counts. :class:`Body` walks a body within the same limits. Truncated bytes,
negative counts or lengths, numbers above 64 bits, and too many values raise :class:`ControlEventError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.control.errors import ControlEventError

EVENT_LIMIT = 8 << 20
"""Bytes of the largest event that is read. Brokers take 1 MB as they come."""
FIELD_LIMIT = 600
"""Fields of a schema, over all of its records; the connector's have 80, and one for each field of a partition spec."""
FIXED_LIMIT = 1 << 16
VALUES_LIMIT = 4_000_000
"""Values of one event; one of 1 MB with full column statistics has half a million."""
_VALUES_PER_BYTE = 4
_COST_LIMIT = 5_000
_DEPTH_LIMIT = 32
_SMALLEST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_STEPS = {"null": 0, "boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class Measure:
    """Fewest bytes of a value, most values that are built for it, and their nesting."""

    smallest: int
    values: int
    depth: int = 1

    @classmethod
    def primitive(cls, name: str) -> Measure:
        return cls(_SMALLEST[name], 1)

    @classmethod
    def fixed(cls, size: Any) -> Measure:
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= FIXED_LIMIT:
            raise ControlEventError("LC2301", f"a control event has an Avro schema with a fixed of {size!r:.40} bytes")
        return cls(size, 1)

    @classmethod
    def union(cls, members: list[Measure]) -> Measure:
        if not members:
            raise ControlEventError("LC2302", "a control event has an unreadable Avro schema: an empty union")
        return cls._of(1 + min(m.smallest for m in members), max(m.values for m in members), members)

    @classmethod
    def record(cls, fields: list[Measure]) -> Measure:
        return cls._of(sum(f.smallest for f in fields), 1 + sum(f.values for f in fields), fields)

    @classmethod
    def repeated(cls, item: Measure) -> Measure:
        """:raises ControlEventError: a body of a few bytes could state any number of items"""
        if item.values > _VALUES_PER_BYTE * item.smallest:
            raise ControlEventError(
                "LC2303",
                f"a control event has an Avro schema whose {item.smallest}-byte items decode to {item.values} values",
            )
        return cls._of(1, 1, [item])

    @classmethod
    def _of(cls, smallest: int, values: int, parts: list[Measure]) -> Measure:
        found = cls(smallest, values, 1 + max((p.depth for p in parts), default=0))
        if found.values > _COST_LIMIT:
            raise ControlEventError(
                "LC2304", "a control event has an Avro schema that turns a few bytes into thousands of values"
            )
        if found.depth > _DEPTH_LIMIT:
            raise ControlEventError("LC2305", "a control event has an Avro schema that is nested too deep")
        return found


class Body:
    """A place in the body of an event; ``named`` are the types that a schema refers to."""

    def __init__(self, data: bytes, at: int, named: Mapping[str, Any]) -> None:
        self.data = data
        self.at = at
        self._named = named
        self._left = VALUES_LIMIT

    def long(self) -> int:
        """A zig-zag number."""
        number = shift = 0
        while shift < 70:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number >> 64:
                    break
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise ControlEventError(
            "LC2306", f"a control event is corrupt: a number of more than 64 bits ends at byte {self.at}"
        )

    def take(self, size: int) -> bytes:
        begin, end = self.at, self.at + size
        if size < 0 or end > len(self.data):
            raise ControlEventError(
                "LC2307",
                f"a control event is cut off or corrupt: {size} bytes are expected at byte {begin} of {len(self.data)}",
            )
        self.at = end
        return self.data[begin:end]

    def skip(self, schema: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise ControlEventError("LC2308", f"a control event holds more than {VALUES_LIMIT} values")
        if isinstance(schema, str):
            self._primitive(schema)
        elif isinstance(schema, list):
            self.skip(self.branch(schema))
        elif schema["type"] == "record":
            for field in schema["fields"]:
                self.skip(field["type"])
        elif schema["type"] == "fixed":
            self.take(schema["size"])
        else:
            self._items(schema)

    def branch(self, union: list[Any]) -> Any:
        shift = self.long()
        if not 0 <= shift < len(union):
            raise ControlEventError(
                "LC2309", f"a control event is corrupt: a union of {len(union)} types has no number {shift}"
            )
        return union[shift]

    def resolved(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema

    def _primitive(self, name: str) -> None:
        if name in _STEPS:
            self.take(_STEPS[name])
        elif name in ("int", "long"):
            self.long()
        elif name in ("bytes", "string"):
            self.take(self.long())
        else:
            self._left += 1
            self.skip(self._named[name])

    def _items(self, schema: dict[str, Any]) -> None:
        keyed = schema["type"] == "map"
        item = schema["values"] if keyed else schema["items"]
        while number := self.long():
            if number < 0:
                self.long()
            for _ in range(abs(number)):
                if keyed:
                    self._primitive("string")
                self.skip(item)
