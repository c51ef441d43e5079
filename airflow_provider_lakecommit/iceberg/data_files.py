# SPDX-License-Identifier: Apache-2.0
"""Data files between pyiceberg and the control topic.

Contract: a file that went :func:`to_wire` and came back through :func:`to_pyiceberg` gives, once appended, the manifest
entry that it would have given without the journey: path, partition tuple, counts, sizes, bounds and split offsets are
equal. The partition tuple is matched by field id, not by position or name, so that renaming a partition field does no
harm. Values of uuid are bytes on pyiceberg's side, as its own writer has them.

Failure: a file of another partition spec, or whose partition types cannot be read as those of the table, is a
:class:`TableError`: appended, engines would prune it by values that mean something else. A delete file is refused too:
appends carry data only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from airflow_provider_lakecommit.control import DataFile, PartitionField, PartitionValue
from airflow_provider_lakecommit.exceptions import TableError

# A partition value written as the first may be read as the second: Iceberg's promotions, and the two names of a day.
_READABLE = frozenset({("int", "long"), ("float", "double"), ("int", "date"), ("date", "int")})
_INT_MAX = (1 << 31) - 1
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_STATISTICS = (*_COUNTS, "lower_bounds", "upper_bounds")
"""Fields of a data file with one value per column id."""


def partition_fields(spec: PartitionSpec, schema: Schema) -> tuple[PartitionField, ...]:
    """The partition fields of *spec* over *schema*, as events carry them."""
    return tuple(
        PartitionField(name=field.name, field_id=field.field_id, type=str(field.field_type))
        for field in spec.partition_type(schema).fields
    )


def to_wire(files: Iterable[ManifestFile], *, spec: PartitionSpec, schema: Schema) -> tuple[DataFile, ...]:
    """*files*, written under *spec* over *schema*, as an event with :func:`partition_fields` of both carries them."""
    fields = partition_fields(spec, schema)
    return tuple(_announced(file, spec.spec_id, fields) for file in files)


def to_pyiceberg(
    files: Iterable[DataFile], written: Sequence[PartitionField], *, spec: PartitionSpec, schema: Schema
) -> list[ManifestFile]:
    """*files*, announced with the partition fields *written*, ready to be appended to a table of *spec* and *schema*.

    Row ids are assigned by the commit, so an announced ``first_row_id`` is left out.
    """
    sources = _sources(written, partition_fields(spec, schema), spec.spec_id)
    return [_appendable(file, sources, spec.spec_id) for file in files]


def _announced(file: ManifestFile, spec_id: int, fields: Sequence[PartitionField]) -> DataFile:
    return DataFile(
        file_path=file.file_path,
        file_format=FileFormat(file.file_format).value,
        content=int(file.content),
        spec_id=spec_id,
        partition=tuple(_from_tuple(file.partition[position], field) for position, field in enumerate(fields)),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        key_metadata=file.key_metadata,
        split_offsets=None if file.split_offsets is None else tuple(file.split_offsets),
        equality_ids=None if file.equality_ids is None else tuple(file.equality_ids),
        sort_order_id=file.sort_order_id,
        **{name: getattr(file, name) for name in _STATISTICS},
    )


def _appendable(file: DataFile, sources: Sequence[int], spec_id: int) -> ManifestFile:
    if file.content != DataFileContent.DATA:
        raise TableError("LC3310", f"{file.file_path} is a delete file: only data files are appended")
    if file.spec_id != spec_id:
        raise TableError(
            "LC3311",
            f"{file.file_path} was written under partition spec {file.spec_id}, the table is at spec {spec_id}: "
            "its offsets are planned again",
        )
    if (problem := _contradiction(file)) is not None:
        raise TableError("LC3312", f"file {file.file_path!r:.300} {problem}: its offsets are planned again")
    statistics: dict[str, Any] = {name: _copied(getattr(file, name)) for name in _STATISTICS}
    appendable = ManifestFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.file_path,
        file_format=FileFormat(file.file_format),
        partition=Record(*(v.bytes if isinstance(v, UUID) else v for v in map(file.partition.__getitem__, sources))),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        key_metadata=file.key_metadata,
        split_offsets=None if file.split_offsets is None else list(file.split_offsets),
        equality_ids=None,
        sort_order_id=file.sort_order_id,
        **statistics,
    )
    appendable.spec_id = spec_id
    return appendable


def is_data(file: ManifestFile) -> bool:
    """Return whether a file is a data file, in any kind of manifest; those of version 1 state no content."""
    return (file.content or DataFileContent.DATA) == DataFileContent.DATA


def rows_in_footer(io: FileIO, path: str) -> int:
    """Return the number of rows in a Parquet file's own footer.

    :raises OSError: it cannot be read
    :raises TableError: it is no Parquet file
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with io.new_input(path).open(seekable=True) as stream:
            return int(pq.read_metadata(stream).num_rows)
    except pa.ArrowException as e:
        raise TableError("LC3313", f"file {path} is not a readable Parquet file: {e}") from None


def _contradiction(file: DataFile) -> str | None:
    """Return the impossible part of a file's announcement, or the part that a manifest cannot hold."""
    if not file.file_path:
        return "has no path"
    if file.record_count < 0 or file.file_size_in_bytes < 0:
        return f"is of {file.record_count} rows and {file.file_size_in_bytes} bytes"
    if file.sort_order_id is not None and not 0 <= file.sort_order_id <= _INT_MAX:
        return f"has the sort order {file.sort_order_id}"
    for column_ids in (getattr(file, name) for name in _STATISTICS):
        if column_ids and not 0 <= min(column_ids) <= max(column_ids) <= _INT_MAX:
            return "has statistics of a column that no table has"
    counts = (getattr(file, name) for name in _COUNTS)
    return "has a count below 0" if any(each and min(each.values()) < 0 for each in counts) else None


def _sources(written: Sequence[PartitionField], fields: Sequence[PartitionField], spec_id: int) -> list[int]:
    """Position in the announced tuple for each partition field of the table."""
    positions = {field.field_id: position for position, field in enumerate(written)}
    if positions.keys() != {field.field_id for field in fields}:
        raise TableError(
            "LC3314",
            f"files were announced with the partition fields {_names(written)}, "
            f"spec {spec_id} of the table has {_names(fields)}: their offsets are planned again",
        )
    for field in fields:
        announced = written[positions[field.field_id]].type
        if announced != field.type and (announced, field.type) not in _READABLE:
            raise TableError(
                "LC3315",
                f"files were announced with partition field {field.name!r} as {announced}, spec {spec_id} of the table "
                f"has it as {field.type}: their offsets are planned again",
            )
    return [positions[field.field_id] for field in fields]


def _names(fields: Sequence[PartitionField]) -> str:
    return ", ".join(f"{field.name} ({field.field_id})" for field in fields) or "none"


def _from_tuple(value: Any, field: PartitionField) -> PartitionValue:
    if field.type == "uuid" and isinstance(value, bytes):
        return UUID(bytes=value)
    return value  # type: ignore[no-any-return]


def _copied(entries: Mapping[int, Any] | None) -> dict[int, Any] | None:
    return None if entries is None else dict(entries)
