# SPDX-License-Identifier: Apache-2.0
"""A data file as announced on the control topic, and in the body of an event.

:class:`DataFile` has what a manifest entry has of a file (Iceberg's field ids 100 to 145), without types of an engine
or library, so that announcing and appending it may happen in different processes. ``partition`` has one value per
partition field of the event, in that order. Absent statistics are ``None``, which is not the same as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.partition import PartitionField, PartitionValue, branch, from_avro, to_avro

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
