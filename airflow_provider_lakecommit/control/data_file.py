# SPDX-License-Identifier: Apache-2.0
"""A data file as announced on the control topic, and in the body of an event, with its partition tuple.

:class:`DataFile` has what a manifest entry has of a file (Iceberg's field ids 100 to 145), without types of an engine
or library, so that announcing and appending it may happen in different processes. ``partition`` has one value per
partition field of the event, in that order. Absent statistics are ``None``, which is not the same as empty.

Partition values are those of a manifest: dates are days, times and timestamps are numbers of their unit since midnight
or the epoch, decimals are exact :class:`~decimal.Decimal`, uuids :class:`~uuid.UUID`, binary and fixed are bytes. A
type is its Iceberg name (``long``, ``decimal(9, 2)``, ``fixed[16]``, …). All primitive partition types are supported;
others raise a :class:`ControlEventError` with the field's name. A value that its type cannot hold is refused when it is
written: Avro would write it, and readers would see another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control.errors import ControlEventError

_COUNTS = (
    (108, 117, "column_sizes"),
    (109, 119, "value_counts"),
    (110, 121, "null_value_counts"),
    (137, 138, "nan_value_counts"),
)
_BOUNDS = ((125, 126, "lower_bounds"), (128, 129, "upper_bounds"))
_MAPS = tuple((f"f{field}", f"f{key}", f"f{key + 1}", name) for field, key, name in _COUNTS + _BOUNDS)
_LISTS = (("f132", "split_offsets"), ("f135", "equality_ids"))
_SCALARS = (
    ("f131", "bytes", "key_metadata"),
    ("f140", "int", "sort_order_id"),
    ("f142", "long", "first_row_id"),
    ("f143", "string", "referenced_data_file"),
    ("f144", "long", "content_offset"),
    ("f145", "long", "content_size_in_bytes"),
)
_UNKNOWN_SPEC = -1
PartitionValue = bool | int | float | str | bytes | UUID | Decimal | None
_PARAMETERS = re.compile(r"(?P<kind>decimal|fixed)[(\[](?P<first>\d+)(?:, ?(?P<second>\d+))?[)\]]")
_PLAIN: dict[str, str | dict[str, Any]] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    "timestamp_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    "timestamptz_ns": {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": True},
    "uuid": {"type": "fixed", "name": "uuid_fixed", "namespace": "", "size": 16, "logicalType": "uuid"},
}
_PRECISIONS = range(1, 39)
_BITS = {"int": 32, "date": 32}
_PYTHON: dict[str, type] = {"boolean": bool, "float": float, "double": float, "string": str, "bytes": bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file with its statistics; bounds in Iceberg's binary form. ``content``: 0 data, 1 position deletes, 2
    equality deletes.
    """

    file_path: str
    file_format: str = "PARQUET"
    content: int = 0
    spec_id: int = 0
    partition: tuple[PartitionValue, ...] = ()
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    key_metadata: bytes | None = None
    split_offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None


class FileCodec:
    """Converts data files of one partition type to and from bodies by field id.

    Optional parts are written as (branch, value), which saves fastavro from trying the branches, most of its work.
    """

    __slots__ = ("_partition", "_readers")

    def __init__(self, partition_fields: Sequence[PartitionField]) -> None:
        self._partition = tuple((f"f{field.field_id}", branch(field), to_avro(field)) for field in partition_fields)
        self._readers: tuple[tuple[str, Callable[[Any], PartitionValue]], ...] = tuple(
            (f"f{field.field_id}", from_avro(field)) for field in partition_fields
        )

    def write(self, file: DataFile) -> dict[str, Any]:
        """Return the body of a file; :class:`ControlEventError` if its partition tuple does not fit."""
        if len(file.partition) != len(self._partition):
            raise ControlEventError(
                "LC2340",
                f"{file.file_path} has {len(file.partition)} partition values, "
                f"its event has {len(self._partition)} partition fields",
            )
        body: dict[str, Any] = {
            "f134": ("int", file.content),
            "f100": file.file_path,
            "f101": file.file_format,
            "f141": ("int", file.spec_id),
            "f102": {
                key: None if value is None else (name, convert(value))
                for (key, name, convert), value in zip(self._partition, file.partition, strict=True)
            },
            "f103": file.record_count,
            "f104": file.file_size_in_bytes,
        }
        for field, key, value, name in _MAPS:
            entries = getattr(file, name)
            if entries is not None:
                body[field] = ("array", [{key: column, value: number} for column, number in entries.items()])
        for field, name in _LISTS:
            numbers = getattr(file, name)
            if numbers is not None:
                body[field] = ("array", numbers)
        for field, kind, name in _SCALARS:
            scalar = getattr(file, name)
            if scalar is not None:
                body[field] = (kind, scalar)
        return body

    def read(self, body: Mapping[str, Any]) -> DataFile:
        """Return the file of a body; omitted fields are absent, a missing required one raises :class:`KeyError`."""
        values = body["f102"]
        spec_id = body.get("f141")
        optional: dict[str, Any] = {name: body.get(field) for field, _, name in _SCALARS}
        for field, name in _LISTS:
            numbers = body.get(field)
            optional[name] = None if numbers is None else tuple(numbers)
        for field, key, value, name in _MAPS:
            entries = body.get(field)
            optional[name] = None if entries is None else {entry[key]: entry[value] for entry in entries}
        return DataFile(
            file_path=body["f100"],
            file_format=body["f101"],
            content=body.get("f134") or 0,
            spec_id=_UNKNOWN_SPEC if spec_id is None else spec_id,
            partition=tuple(None if values[key] is None else read(values[key]) for key, read in self._readers),
            record_count=body["f103"],
            file_size_in_bytes=body["f104"],
            **optional,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionField:
    """One column of the partition tuple: its name in the spec, its field id (1000 and up), its type."""

    name: str
    field_id: int
    type: str


def avro_type(field: PartitionField) -> Any:
    plain = _PLAIN.get(field.type)
    if plain is not None:
        return plain
    kind, first, second = _parameters(field)
    if kind == "fixed":
        return {"type": "fixed", "name": f"fixed_{first}", "namespace": "", "size": first}
    name = f"decimal_{first}_{second}"
    size = _decimal_bytes(first)
    logical = {"logicalType": "decimal", "precision": first, "scale": second}
    return {"type": "fixed", "name": name, "namespace": "", "size": size, **logical}


def branch(field: PartitionField) -> str:
    """Return the name of the field's Avro type within a union."""
    written = avro_type(field)
    if isinstance(written, str):
        return written
    return str(written.get("name", written["type"]))


def iceberg_type(written: Any) -> str | None:
    """Return the Iceberg type of an Avro type in a record's schema, or ``None``."""
    if isinstance(written, dict) and written.get("type") == "fixed":
        return _fixed_type(written)
    if isinstance(written, dict) and "logicalType" not in written:
        written = written.get("type")
    shown = _without_extras(written)
    return next((name for name, plain in _PLAIN.items() if plain == shown), None)


def to_avro(field: PartitionField) -> Callable[[PartitionValue], Any]:
    """Return a function from a value of the field to Avro's, which refuses values that do not fit."""
    written = avro_type(field)
    base = written if isinstance(written, str) else written["type"]
    if base == "fixed":
        return _fixed_writer(field, written)
    if base in _PYTHON:
        return _checked(field, _PYTHON[base])
    return _integer(field, _BITS.get(field.type, 64))


def from_avro(field: PartitionField) -> Callable[[Any], PartitionValue]:
    """Return a function from Avro's value of the field to ours."""
    if field.type == "uuid":
        return lambda raw: UUID(bytes=raw)
    if field.type.startswith("decimal"):
        scale = _parameters(field)[2]
        return lambda raw: _decimal(int.from_bytes(raw, "big", signed=True), scale)
    if field.type in _BITS:
        # On the wire every number may have 64 bits, whatever its type says.
        fits = _integer(field, _BITS[field.type])
        return lambda raw: None if raw is None else fits(raw)
    return lambda raw: raw


def _parameters(field: PartitionField) -> tuple[str, int, int]:
    match = _PARAMETERS.fullmatch(field.type)
    if match is None or (match["kind"] == "decimal") is (match["second"] is None):
        raise ControlEventError(
            "LC2358", f"partition field {field.name!r} has type {field.type!r}, which cannot be a partition type"
        )
    return match["kind"], int(match["first"]), int(match["second"] or 0)


def _fixed_type(written: dict[str, Any]) -> str | None:
    logical = written.get("logicalType")
    if logical == "uuid":
        return "uuid"
    if logical == "decimal":
        precision, scale = written["precision"], written.get("scale", 0)
        known = precision in _PRECISIONS and scale in range(precision + 1)
        return f"decimal({int(precision)}, {int(scale)})" if known else None
    return f"fixed[{written['size']}]" if logical is None else None


def _without_extras(written: Any) -> Any:
    if not isinstance(written, dict):
        return written
    return {key: written[key] for key in ("type", "logicalType", "adjust-to-utc") if key in written}


def _fixed_writer(field: PartitionField, written: dict[str, Any]) -> Callable[[PartitionValue], bytes]:
    size: int = written["size"]
    if field.type == "uuid":
        check_uuid = _checked(field, UUID)
        return lambda value: bytes(check_uuid(value).bytes)
    if written.get("logicalType") == "decimal":
        return lambda value: _unscaled(field, value, written["precision"], written["scale"]).to_bytes(
            size, "big", signed=True
        )

    def fixed(value: PartitionValue) -> bytes:
        if not isinstance(value, bytes) or len(value) != size:
            raise _misfit(field, value)
        return value

    return fixed


def _checked(field: PartitionField, python: type) -> Callable[[PartitionValue], Any]:
    def check(value: PartitionValue) -> Any:
        if not isinstance(value, python):
            raise _misfit(field, value)
        return value

    return check


def _integer(field: PartitionField, bits: int) -> Callable[[PartitionValue], int]:
    limit = 1 << (bits - 1)

    def check(value: PartitionValue) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            raise _misfit(field, value)
        return value

    return check


def _unscaled(field: PartitionField, value: PartitionValue, precision: int, scale: int) -> int:
    if not isinstance(value, Decimal) or not value.is_finite():
        raise _misfit(field, value)
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + scale
    power: int = 10 ** abs(shift)
    number, lost = divmod(int("".join(map(str, digits))) * (power if shift > 0 else 1), power if shift < 0 else 1)
    if lost or number >= 10**precision:
        raise _misfit(field, value)
    return -number if sign else number


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((1 if unscaled < 0 else 0, digits, -scale))


def _decimal_bytes(precision: int) -> int:
    largest: int = 10**precision - 1
    return (largest.bit_length() + 8) // 8


def _misfit(field: PartitionField, value: object) -> ControlEventError:
    return ControlEventError("LC2359", f"partition field {field.name!r} of type {field.type} cannot hold {value!r}")
