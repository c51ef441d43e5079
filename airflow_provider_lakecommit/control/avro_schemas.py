# SPDX-License-Identifier: Apache-2.0
"""The writer schemas of control events, character for character as iceberg-kafka-connect writes them.

The connector finds its classes by the record names and their fields by ``field-id``, and throws on an unknown id, so
nothing may be added here. Attribute order, doc strings, defaults, and writing a named type out only once follow its
Avro library: equal content has equal bytes, so compatibility can be proved. Form ``1.10`` lacks ``table_uuid``.

Names that Avro forbids are sanitised as the connector does, per UTF-16 unit, with the real name in
``iceberg-field-name``. Text is Java's modified UTF-8: NUL has two bytes, characters beyond the basic plane are two
surrogates of three bytes each.
"""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from typing import Any, Literal

from airflow_provider_lakecommit.control.data_file import PartitionField, avro_type
from airflow_provider_lakecommit.control.errors import ControlEventError

Form = Literal["1.12", "1.10"]

SCHEMA_LIMIT = 0xFFFF
_TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}
_UUID = {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16, "logicalType": "uuid"}


def schema_text(payload: str, *, form: Form = "1.12", partition_fields: tuple[PartitionField, ...] = ()) -> bytes:
    """Return the schema of an event with a payload record of that name, as in the event's bytes."""
    return _schema_text(payload, form, partition_fields)


@lru_cache(maxsize=256)
def _schema_text(payload: str, form: Form, partition_fields: tuple[PartitionField, ...]) -> bytes:
    fields = _data_written(form, partition_fields) if payload == "DataWritten" else _payload_fields(payload, form)
    event = {
        "type": "record",
        "name": "Event",
        "namespace": "org.apache.iceberg.connect.events",
        "fields": [
            _field(10500, "id", _UUID),
            _field(10501, "type", "int"),
            _field(10502, "timestamp", _TIMESTAMP),
            _field(10503, "group_id", "string"),
            _field(10504, "payload", _record(payload, fields)),
        ],
    }
    text = encode_text(json.dumps(event, ensure_ascii=False, separators=(",", ":")))
    if len(text) > SCHEMA_LIMIT:
        names = ", ".join(field.name[:40] for field in partition_fields[:5])
        raise ControlEventError(
            "LC2310",
            f"the schema of a control event has {len(text)} bytes, the format holds {SCHEMA_LIMIT}: "
            f"the partition spec has {len(partition_fields)} fields ({names}, …); shorten their names",
        )
    return text


def _payload_fields(payload: str, form: Form) -> list[dict[str, Any]]:
    if payload == "StartCommit":
        return [_field(10200, "commit_id", "uuid_fixed")]
    if payload == "DataComplete":
        assignments = _array(10102, _record("TopicPartitionOffset", _assignment_fields()))
        return [_field(10100, "commit_id", "uuid_fixed"), _optional(10101, "assignments", assignments)]
    if payload == "CommitToTable":
        return [
            _field(10400, "commit_id", "uuid_fixed"),
            _field(10401, "table_reference", _table_reference(form)),
            _optional(10402, "snapshot_id", "long"),
            _optional(10403, "valid_through_ts", _TIMESTAMP),
        ]
    return [_field(10000, "commit_id", "uuid_fixed"), _optional(10001, "valid_through_ts", _TIMESTAMP)]


def _data_written(form: Form, partition_fields: tuple[PartitionField, ...]) -> list[dict[str, Any]]:
    written: set[str] = set()
    data = {**_record("GenericDataFile", []), "namespace": "org.apache.iceberg"}
    data["fields"] = _file_fields(partition_fields, written)
    deletes = {**data, "name": "GenericDeleteFile", "fields": _file_fields(partition_fields, written)}
    return [
        _field(10300, "commit_id", "uuid_fixed"),
        _field(10301, "table_reference", _table_reference(form)),
        _optional(10302, "data_files", _array(10303, _in_order(data))),
        _optional(10304, "delete_files", _array(10305, _in_order(deletes))),
    ]


def _table_reference(form: Form) -> dict[str, Any]:
    fields = [
        _field(10600, "catalog", "string"),
        _field(10601, "namespace", _array(10602, "string")),
        _field(10603, "name", "string"),
    ]
    if form != "1.10":
        fields.append(_optional(10604, "table_uuid", "uuid_fixed"))
    return _record("TableReference", fields)


def _assignment_fields() -> list[dict[str, Any]]:
    return [
        _field(10700, "topic", "string"),
        _field(10701, "partition", "int"),
        _optional(10702, "offset", "long"),
        _optional(10703, "timestamp", _TIMESTAMP),
    ]


def _file_fields(partition_fields: tuple[PartitionField, ...], written: set[str]) -> list[dict[str, Any]]:
    """Fields of a file record; types named in *written* are referred to, others written out and added to it."""

    def mapping(key: int, value: int, value_type: str) -> dict[str, Any]:
        record = _record(f"k{key}_v{value}", [_field(key, "key", "int"), _field(value, "value", value_type)])
        return {"type": "array", "items": _once({**record, "namespace": ""}, written), "logicalType": "map"}

    partition = _once(_record("PartitionData", _partition(partition_fields, written)), written)
    content = "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"
    tuple_doc = "Partition data tuple, schema based on the partition spec"
    first_row = "The first row ID assigned to the first row in the data file"
    referenced = "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
    return [
        _optional(134, "content", "int", content),
        _field(100, "file_path", "string", "Location URI with FS scheme"),
        _field(101, "file_format", "string", "File format name: avro, orc, or parquet"),
        _optional(141, "spec_id", "int", "Partition spec ID"),
        _field(102, "partition", partition, tuple_doc),
        _field(103, "record_count", "long", "Number of records in the file"),
        _field(104, "file_size_in_bytes", "long", "Total file size in bytes"),
        _optional(108, "column_sizes", mapping(117, 118, "long"), "Map of column id to total size on disk"),
        _optional(
            109, "value_counts", mapping(119, 120, "long"), "Map of column id to total count, including null and NaN"
        ),
        _optional(110, "null_value_counts", mapping(121, 122, "long"), "Map of column id to null value count"),
        _optional(
            137, "nan_value_counts", mapping(138, 139, "long"), "Map of column id to number of NaN values in the column"
        ),
        _optional(125, "lower_bounds", mapping(126, 127, "bytes"), "Map of column id to lower bound"),
        _optional(128, "upper_bounds", mapping(129, 130, "bytes"), "Map of column id to upper bound"),
        _optional(131, "key_metadata", "bytes", "Encryption key metadata blob"),
        _optional(132, "split_offsets", _array(133, "long"), "Splittable offsets"),
        _optional(135, "equality_ids", _array(136, "int"), "Equality comparison field IDs"),
        _optional(140, "sort_order_id", "int", "Sort order ID"),
        _optional(142, "first_row_id", "long", first_row),
        _optional(143, "referenced_data_file", "string", referenced),
        _optional(144, "content_offset", "long", "The offset in the file where the content starts"),
        _optional(145, "content_size_in_bytes", "long", "The length of referenced content stored in the file"),
    ]


def _partition(partition_fields: tuple[PartitionField, ...], written: set[str]) -> list[dict[str, Any]]:
    written.add("uuid_fixed")
    fields: dict[str, dict[str, Any]] = {}
    for field in partition_fields:
        name = _safe_name(field.name)
        if name in fields:
            raise ControlEventError(
                "LC2311",
                f"two partition fields have the name {name!r} on the control topic; rename {field.name!r} in the spec",
            )
        fields[name] = _optional(field.field_id, name, _once(avro_type(field), written), true_name=field.name)
    return list(fields.values())


def _once(definition: Any, written: set[str]) -> Any:
    if not isinstance(definition, dict) or "name" not in definition:
        return definition
    if definition["name"] in written:
        return definition["name"]
    written.add(definition["name"])
    return _in_order(definition)


def _in_order(definition: dict[str, Any]) -> dict[str, Any]:
    first = ("type", "name", "namespace")
    return {key: definition[key] for key in (*first, *definition) if key in definition}


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _array(element_id: int, items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "element-id": element_id}


def _field(field_id: int, name: str, avro: Any, doc: str | None = None) -> dict[str, Any]:
    field: dict[str, Any] = {"name": name, "type": avro}
    if doc is not None:
        field["doc"] = doc
    return {**field, "field-id": field_id}


def _optional(
    field_id: int, name: str, avro: Any, doc: str | None = None, *, true_name: str | None = None
) -> dict[str, Any]:
    field = _field(field_id, name, ["null", avro], doc)
    del field["field-id"]
    field["default"] = None
    if true_name is not None and true_name != name:
        field["iceberg-field-name"] = true_name
    return {**field, "field-id": field_id}


def _safe_name(name: str) -> str:
    if not name:
        raise ControlEventError("LC2312", "a partition field has an empty name")
    return "".join(_safe_letter(letter, first=position == 0) for position, letter in enumerate(_utf16_units(name)))


def _safe_letter(letter: str, *, first: bool) -> str:
    category = unicodedata.category(letter)
    if category in {"Lu", "Ll", "Lt", "Lm", "Lo"} or letter == "_" or (category == "Nd" and not first):
        return letter
    return f"_{letter}" if category == "Nd" else f"_x{ord(letter):X}"


def encode_text(text: str) -> bytes:
    """Return text as Java's modified UTF-8."""
    letters = text if text.isascii() else "".join(_utf16_units(text))
    return letters.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode_text(data: bytes) -> str:
    """Return text of Java's modified UTF-8; other bytes raise :class:`UnicodeError`."""
    letters = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return letters.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _utf16_units(text: str) -> list[str]:
    units = text.encode("utf-16-be", "surrogatepass")
    return [chr(int.from_bytes(units[i : i + 2], "big")) for i in range(0, len(units), 2)]
