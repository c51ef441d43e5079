# SPDX-License-Identifier: Apache-2.0
"""The structure of a control event's body, from the writer schema in front of it.

:func:`shape_of` turns the schema of any writer (1.9 and later, any partition spec) into a :class:`Shape`: a schema for
fastavro whose record fields are named ``f<field-id>``, without logical types, and the partition fields. So bodies are
read and written by field id, and field order, names that only Java's Avro allows, and new fields do not matter.
References are resolved as Java's parser does: in the enclosing namespace, then in the empty one. Shapes are cached by
the schema's bytes, because parsing one costs fifty times as much as reading a body.

A schema is code for its reader, and comes from any writer. So it is checked here before fastavro sees it: known fields
have their known type, no type contains itself, no array item is without bytes. All errors are
:class:`ControlEventError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fastavro import parse_schema

from airflow_provider_lakecommit.control.avro_bounds import FIELD_LIMIT, Measure
from airflow_provider_lakecommit.control.avro_schemas import SCHEMA_LIMIT, decode_text
from airflow_provider_lakecommit.control.data_file import PartitionField, iceberg_type
from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.packed_text import bounded_json

_NUMBER, _UUID, _RECORD, _RECORDS = "number", "fixed 16", "record", "array of record"
_BY_TYPE: dict[str, tuple[int, ...]] = {
    _UUID: (10000, 10100, 10200, 10300, 10400, 10500, 10604),
    _NUMBER: (
        *(10501, 10502, 10001, 10402, 10403, 10701, 10702, 10703),
        *(134, 141, 103, 104, 140, 142, 144, 145),
        *(117, 118, 119, 120, 121, 122, 138, 139, 126, 129),
    ),
    "string": (10503, 10600, 10603, 10700, 100, 101, 143),
    "bytes": (127, 130, 131),
    _RECORD: (10504, 10301, 10401, 102),
    _RECORDS: (10101, 10302, 10304, 108, 109, 110, 137, 125, 128),
    "array of string": (10601,),
    "array of number": (132, 135),
}
KNOWN: Mapping[int, str] = {field_id: kind for kind, ids in _BY_TYPE.items() for field_id in ids}

_OPTIONAL = frozenset(
    {
        *(10001, 10101, 10302, 10304, 10402, 10403, 10604, 10702, 10703),
        *(108, 109, 110, 125, 128, 131, 132, 134, 135, 137, 140, 141, 142, 143, 144, 145),
    }
)


def fits(field_id: Any, shape: Any, names: Mapping[str, Any]) -> bool:
    """Return True if a field with a known id has the expected type. A number may be an int or a long, and an optional
    field may be written as always present. ``names`` are the types that are referred to.
    """
    if isinstance(shape, list) and field_id in _OPTIONAL:
        others = [member for member in shape if member != "null"]
        return len(others) == 1 and len(shape) == 2 and _kind(others[0], names) == KNOWN[field_id]
    return _kind(shape, names) == KNOWN[field_id]


def _kind(shape: Any, names: Mapping[str, Any]) -> str:
    if isinstance(shape, list):
        return "union"
    if isinstance(shape, str):
        return _NUMBER if shape in ("int", "long") else _kind(names[shape], names) if shape in names else shape
    if shape["type"] == "array":
        return f"array of {_kind(shape['items'], names)}"
    return f"fixed {shape['size']}" if shape["type"] == "fixed" else str(shape["type"])


EVENT = "org.apache.iceberg.connect.events.Event"
PAYLOAD_ID = 10504
PARTITION_ID = 102
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_KEY = Measure.primitive("string")


@dataclass(slots=True)
class Shape:
    """The structure of a schema, by one pass over it: ``schema`` is what fastavro runs, ``payload`` the class name of
    the event's payload, ``partition_fields`` are those of its files. ``tree`` and ``names`` are the schema for
    :class:`~.avro_bounds.Body`; ``plain`` if all fields are known. A type without a measure in ``measures`` is not
    complete yet.
    """

    schema: Any = None
    payload: str | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    tree: Any = None
    names: dict[str, Any] = field(default_factory=dict)
    plain: bool = True
    root: str | None = None
    definitions: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, Measure] = field(default_factory=dict)
    fields: int = 0

    def visit(self, written: Any, namespace: str, *, partition: bool = False) -> tuple[Any, Measure]:
        if isinstance(written, str):
            return (written, Measure.primitive(written)) if written in _PRIMITIVES else self._named(written, namespace)
        if isinstance(written, list):
            members = [self.visit(member, namespace) for member in written]
            return [m for m, _ in members], Measure.union([m for _, m in members])
        kind = written["type"]
        if kind == "record":
            return self._record(written, namespace, partition=partition)
        if kind == "fixed":
            return self._fixed(written, namespace)
        if kind == "array":
            items, measure = self.visit(written["items"], namespace)
            return {"type": "array", "items": items}, Measure.repeated(measure)
        if kind == "map":
            values, measure = self.visit(written["values"], namespace)
            return {"type": "map", "values": values}, Measure.repeated(Measure.record([measure, _KEY]))
        return self.visit(kind, namespace)

    def _named(self, written: str, namespace: str) -> tuple[str, Measure]:
        name = self._resolve(written, namespace)
        if name not in self.measures:
            raise ControlEventError(
                "LC2315", f"a control event has an Avro schema in which {name!r:.200} contains itself"
            )
        return _flat(name), self.measures[name]

    def _fixed(self, written: dict[str, Any], namespace: str) -> tuple[Any, Measure]:
        name = self._define(written, namespace)
        self.measures[name] = Measure.fixed(written["size"])
        found = self.names[_flat(name)] = {"type": "fixed", "name": _flat(name), "size": written["size"]}
        return found, self.measures[name]

    def _record(self, written: dict[str, Any], namespace: str, *, partition: bool) -> tuple[Any, Measure]:
        name = self._define(written, namespace)
        if self.root is None:
            self.root = name
        inner = name.rpartition(".")[0]
        self.fields += len(written["fields"])
        if self.fields > FIELD_LIMIT:
            raise ControlEventError("LC2316", f"a control event has an Avro schema of {self.fields} fields, or more")
        found = [self._field(m, position, inner, known=not partition) for position, m in enumerate(written["fields"])]
        fields = [shape for shape, _ in found]
        if len({shape["name"] for shape in fields}) < len(fields):
            raise ControlEventError(
                "LC2317", f"a control event has an Avro schema in which {name!r:.200} has a field twice"
            )
        self.measures[name] = Measure.record([measure for _, measure in found])
        self.names[_flat(name)] = {"type": "record", "name": _flat(name), "fields": fields}
        return self.names[_flat(name)], self.measures[name]

    def _field(
        self, written: dict[str, Any], position: int, namespace: str, *, known: bool
    ) -> tuple[dict[str, Any], Measure]:
        field_id = written.get("field-id")
        shape, measure = self.visit(written["type"], namespace, partition=field_id == PARTITION_ID)
        if field_id == PAYLOAD_ID:
            self.payload = self._record_name(written["type"], namespace)
        elif field_id == PARTITION_ID:
            self.partition_fields = self._partition_fields(self._record_name(written["type"], namespace))
        if known and field_id in KNOWN and not fits(field_id, shape, self.names):
            raise ControlEventError(
                "LC2318", f"a control event has an Avro schema in which field {field_id} is of another type"
            )
        self.plain = self.plain and (not known or field_id in KNOWN)
        if field_id is not None and (not isinstance(field_id, int) or isinstance(field_id, bool) or field_id < 0):
            raise ControlEventError("LC2319", f"a control event has an Avro schema with the field id {field_id!r:.40}")
        return {"name": f"p{position}" if field_id is None else f"f{field_id}", "type": shape}, measure

    def _define(self, written: dict[str, Any], namespace: str) -> str:
        name: str = written["name"]
        if "." not in name:
            space = written.get("namespace", namespace)
            name = f"{space}.{name}" if space else name
        if name in self.definitions or name in _PRIMITIVES:
            raise ControlEventError("LC2320", f"a control event has an Avro schema that defines {name!r:.200} twice")
        self.definitions[name] = written
        return name

    def _resolve(self, name: str, namespace: str) -> str:
        qualified = f"{namespace}.{name}" if namespace and "." not in name else name
        for candidate in (qualified, name):
            if candidate in self.definitions:
                return candidate
        raise ControlEventError(
            "LC2321", f"a control event has an Avro schema that uses {name!r:.200} without defining it"
        )

    def _record_name(self, written: Any, namespace: str) -> str:
        if isinstance(written, str):
            return self._resolve(written, namespace)
        space = written.get("namespace", namespace)
        return written["name"] if "." in written["name"] or not space else f"{space}.{written['name']}"

    def _partition_fields(self, record: str) -> tuple[PartitionField, ...]:
        namespace = record.rpartition(".")[0]
        return tuple(self._partition_field(written, namespace) for written in self.definitions[record]["fields"])

    def _partition_field(self, written: dict[str, Any], namespace: str) -> PartitionField:
        name = str(written.get("iceberg-field-name", written["name"]))
        name.encode()  # half a character can be neither shown nor stored
        avro = written["type"]
        if isinstance(avro, list):
            avro = next(member for member in avro if member != "null")
        if isinstance(avro, str) and avro not in _PRIMITIVES:
            avro = self.definitions[self._resolve(avro, namespace)]
        found = iceberg_type(avro)
        if found is None:
            raise ControlEventError(
                "LC2322", f"partition field {name!r:.200} of a control event has an unknown Avro type: {avro!r:.200}"
            )
        return PartitionField(name=name, field_id=written["field-id"], type=found)


@lru_cache(maxsize=256)
def shape_of(schema_text: bytes) -> Shape:
    shape = Shape()
    try:
        written = bounded_json(decode_text(schema_text), limit=SCHEMA_LIMIT)
        shape.tree, _ = shape.visit(written, "")
        shape.schema = parse_schema(shape.tree)
    except ControlEventError:
        raise
    except Exception as error:  # whatever a parser may say about bytes from anybody
        raise ControlEventError("LC2313", f"a control event has an unreadable Avro schema: {error!r}") from error
    root = written.get("name") if isinstance(written, dict) else None
    if shape.root != EVENT or shape.payload is None or shape.tree is not shape.names.get(_flat(EVENT)):
        raise ControlEventError(
            "LC2314", f"a record is not a control event: its Avro schema is of {shape.root or root!r:.200}"
        )
    return shape


def _flat(name: str) -> str:
    return name.replace(".", "__")
