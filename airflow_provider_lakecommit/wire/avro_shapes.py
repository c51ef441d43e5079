# SPDX-License-Identifier: Apache-2.0
"""What the body of a control event looks like, learned from the writer schema in front of it.

Contract: :func:`shape_of` turns the schema bytes of any writer (1.9 and later, any partition spec) into a
:class:`Shape`: a schema that fastavro can run, in which every record field is called ``f<field-id>`` and logical types
are gone, and the partition fields it carries. So a body is read and written by field id, and neither field order, nor
names that only Java's Avro allows, nor fields added by a newer version matter. References are resolved as Java's parser
does: in the enclosing namespace first, then in the empty one. Shapes are cached by the bytes of the schema, because
taking one apart costs fifty times as much as reading a body.

Failure: whatever the bytes are, the only error is :class:`ControlEventError`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fastavro import parse_schema

from airflow_provider_lakecommit.wire.avro_schemas import decode_text
from airflow_provider_lakecommit.wire.errors import ControlEventError
from airflow_provider_lakecommit.wire.partition import PartitionField, iceberg_type

__all__ = ["Shape", "shape_of"]

EVENT = "org.apache.iceberg.connect.events.Event"
PAYLOAD_ID = 10504
PARTITION_ID = 102
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A runnable schema, the class name of the event's payload, and the partition fields of its files."""

    schema: Any
    payload: str
    partition_fields: tuple[PartitionField, ...]


@lru_cache(maxsize=256)
def shape_of(schema_text: bytes) -> Shape:
    """The shape behind *schema_text*."""
    try:
        written = json.loads(decode_text(schema_text))
        walk = _Walk()
        runnable = parse_schema(walk.visit(written, ""))
    except ControlEventError:
        raise
    except Exception as error:  # whatever a parser may say about bytes from anybody
        raise ControlEventError(f"a control event has an unreadable Avro schema: {error!r}") from error
    root = written.get("name") if isinstance(written, dict) else None
    if walk.root != EVENT or walk.payload is None:
        raise ControlEventError(f"a record is not a control event: its Avro schema is of {walk.root or root!r}")
    return Shape(schema=runnable, payload=walk.payload, partition_fields=walk.partition_fields)


@dataclass(slots=True)
class _Walk:
    """One pass over a schema; collects definitions by full name, and the two records that are looked for."""

    definitions: dict[str, Any] = field(default_factory=dict)
    root: str | None = None
    payload: str | None = None
    partition_fields: tuple[PartitionField, ...] = ()

    def visit(self, written: Any, namespace: str) -> Any:
        if isinstance(written, str):
            return written if written in _PRIMITIVES else _flat(self._resolve(written, namespace))
        if isinstance(written, list):
            return [self.visit(member, namespace) for member in written]
        kind = written["type"]
        if kind == "record":
            return self._record(written, namespace)
        if kind == "fixed":
            return {"type": "fixed", "name": _flat(self._define(written, namespace)), "size": written["size"]}
        if kind == "array":
            return {"type": "array", "items": self.visit(written["items"], namespace)}
        if kind == "map":
            return {"type": "map", "values": self.visit(written["values"], namespace)}
        return self.visit(kind, namespace)

    def _record(self, written: dict[str, Any], namespace: str) -> dict[str, Any]:
        name = self._define(written, namespace)
        if self.root is None:
            self.root = name
        inner = name.rpartition(".")[0]
        fields = [self._field(member, position, inner) for position, member in enumerate(written["fields"])]
        return {"type": "record", "name": _flat(name), "fields": fields}

    def _field(self, written: dict[str, Any], position: int, namespace: str) -> dict[str, Any]:
        field_id = written.get("field-id")
        shape = self.visit(written["type"], namespace)
        if field_id == PAYLOAD_ID:
            self.payload = self._record_name(written["type"], namespace)
        elif field_id == PARTITION_ID:
            self.partition_fields = self._partition_fields(self._record_name(written["type"], namespace))
        return {"name": f"p{position}" if field_id is None else f"f{field_id}", "type": shape}

    def _define(self, written: dict[str, Any], namespace: str) -> str:
        name: str = written["name"]
        if "." not in name:
            space = written.get("namespace", namespace)
            name = f"{space}.{name}" if space else name
        if name in self.definitions:
            raise ControlEventError(f"a control event has an Avro schema that defines {name!r} twice")
        self.definitions[name] = written
        return name

    def _resolve(self, name: str, namespace: str) -> str:
        qualified = f"{namespace}.{name}" if namespace and "." not in name else name
        for candidate in (qualified, name):
            if candidate in self.definitions:
                return candidate
        raise ControlEventError(f"a control event has an Avro schema that uses {name!r} without defining it")

    def _record_name(self, written: Any, namespace: str) -> str:
        if isinstance(written, str):
            return self._resolve(written, namespace)
        space = written.get("namespace", namespace)
        return written["name"] if "." in written["name"] or not space else f"{space}.{written['name']}"

    def _partition_fields(self, record: str) -> tuple[PartitionField, ...]:
        namespace = record.rpartition(".")[0]
        return tuple(self._partition_field(written, namespace) for written in self.definitions[record]["fields"])

    def _partition_field(self, written: dict[str, Any], namespace: str) -> PartitionField:
        name = written.get("iceberg-field-name", written["name"])
        avro = written["type"]
        if isinstance(avro, list):
            avro = next(member for member in avro if member != "null")
        if isinstance(avro, str) and avro not in _PRIMITIVES:
            avro = self.definitions[self._resolve(avro, namespace)]
        found = iceberg_type(avro)
        if found is None:
            raise ControlEventError(f"partition field {name!r} of a control event has an unknown Avro type: {avro!r}")
        return PartitionField(name=name, field_id=written["field-id"], type=found)


def _flat(name: str) -> str:
    return name.replace(".", "__")
