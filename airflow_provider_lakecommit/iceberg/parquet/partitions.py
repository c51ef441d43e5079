# SPDX-License-Identifier: Apache-2.0
"""Distribute rows to the partitions of an Iceberg spec.

Contract: for a block of rows, :class:`Partitioning` yields each partition once with the numbers of its rows in their
order. Values follow the Iceberg specification and have the form of a manifest (days, microseconds, unscaled text, bytes
of a uuid), ``None`` included; sources may be nested in structs. Fields are distinguished by position: two fields of one
source, dropped fields (void) and fields of dropped sources are all possible. -0.0 and 0.0 are two values, NaN is one.

The path of a partition is for people; readers use the values in the manifest. So a name that is too long for a file
system or an object store is cut, with a digest after it that keeps partitions apart.

The transforms are pyiceberg's, except where those are wrong or missing: nanoseconds before 1970 in buckets, and hours
of nanoseconds. A transform that is unknown, or does not fit its column, is a :class:`TableError` before a record is
read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, HourTransform, Transform, UnknownTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, one_array

Key = tuple[Any, ...]

_NANOS = (TimestampNanoType, TimestamptzNanoType)
_NANOS_PER_HOUR = 3_600_000_000_000
_PATH_BYTES = 600
"""The longest path of a partition. The whole key of an object has at most 1,024 bytes."""
_PART_BYTES, _DIGEST = 200, 16
"""The longest name of a folder (file systems allow 255 bytes), and the digest at the end of a shortened one."""


class _FieldPartition(PartitionKey):
    """A partition whose values are in a manifest's form already."""

    @cached_property
    def partition(self) -> Record:
        return Record(*(v.value for v in self.field_values))

    def to_path(self) -> str:
        parts = super().to_path().split("/")
        most = min(_PART_BYTES, max(2 * _DIGEST, _PATH_BYTES // len(parts)))
        return "/".join(p if len(p) <= most else _cut(p, most) for p in parts)


class Partitioning:
    """A partition spec over a schema.

    :raises TableError: a field whose transform cannot be applied, by name
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._spec, self._schema = spec, schema
        self._fields = [_value_of(f, schema) for f in spec.fields]

    def __bool__(self) -> bool:
        """Return True if there can be more than one partition."""
        return bool(self._fields)

    def partition_of(self, key: Key) -> PartitionKey | None:
        """The partition as location providers and manifests want it; nothing for a table without partitions."""
        if not self._fields:
            return None
        values = [PartitionFieldValue(f, v) for f, v in zip(self._spec.fields, key, strict=True)]
        return _FieldPartition(values, self._spec, self._schema)

    def deal(self, table: pa.Table) -> list[tuple[Key, Numbers]]:
        """Return each partition with the numbers of its rows; partitions come in no particular order."""
        values = [value(table) for value in self._fields]
        codes, kinds = _codes(values, table.num_rows)
        if kinds == 1:
            return [(_key(values, 0), np.arange(table.num_rows))] if table.num_rows else []
        order = np.argsort(codes.astype(np.uint16) if kinds <= 1 << 16 else codes, kind="stable")
        counts = np.bincount(codes, minlength=kinds)
        parts = np.split(order, np.cumsum(counts[counts > 0])[:-1])
        return [(_key(values, int(rows[0])), rows) for rows in parts]


def transformed(array: pa.Array, transform: Transform[Any, Any], kind: IcebergType) -> pa.Array:
    """Apply the transform of a partition or sort field to its source; the result has the form of a manifest."""
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(array))
    if isinstance(kind, _NANOS) and isinstance(transform, BucketTransform):
        array = _divided(array, 1000).cast(pa.timestamp("us"))
    elif isinstance(kind, _NANOS) and isinstance(transform, HourTransform):
        return _divided(array, _NANOS_PER_HOUR)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return _plain(transform.pyarrow_transform(kind)(array))


def source_column(table: pa.Table, schema: Schema, field_id: int) -> pa.Array:
    """The column with this id, through structs if it is nested: by position, for names may hold dots."""
    accessor = schema.accessor_for_field(field_id)
    array = one_array(table.column(accessor.position))
    while accessor.inner is not None:
        accessor = accessor.inner
        array = pc.struct_field(array, [accessor.position])
    return array


def check_transform(transform: Transform[Any, Any], schema: Schema, source_id: int, what: str) -> IcebergType:
    """Return the type of the source; ``what`` names the field in the error."""
    source = schema.find_field(source_id)
    kind = source.field_type
    if isinstance(transform, UnknownTransform) or not (kind.is_primitive and transform.can_transform(kind)):
        raise TableError(
            "LC3331",
            f"{what} is {transform} of column {schema.find_column_name(source_id)!r}, which is {kind}: this "
            "transform cannot be written; replace the field",
        )
    return kind


def _value_of(field: PartitionField, schema: Schema) -> Callable[[pa.Table], pa.Array]:
    """A function from rows to the values of a partition field."""
    transform, source_id = field.transform, field.source_id
    if isinstance(transform, VoidTransform):
        return lambda table: pa.nulls(table.num_rows)
    kind = check_transform(transform, schema, source_id, f"partition field {field.name!r}")
    return lambda table: transformed(source_column(table, schema, source_id), transform, kind)


def _codes(values: list[pa.Array], rows: int) -> tuple[Numbers, int]:
    """One number per row, equal where all values are equal, and a bound above them. No product can overflow: codes are
    made dense before they grow beyond the rows.
    """
    codes, kinds = np.zeros(rows, np.int64), 1
    for array in values:
        encoded = _encodable(array).dictionary_encode(null_encoding="encode")
        own = max(1, len(encoded.dictionary))
        if own == 1:
            continue
        codes, kinds = codes * own + encoded.indices.to_numpy(zero_copy_only=False), kinds * own
        if kinds > max(rows, 1 << 16):
            found, codes = np.unique(codes, return_inverse=True)
            kinds = len(found)
    return codes, kinds


def _encodable(array: pa.Array) -> pa.Array:
    """Floats by their bits, NaNs being one: a dictionary of floats would take 0.0 and -0.0 for the same at times."""
    if not pa.types.is_floating(array.type):
        return array
    bits = pa.int32() if array.type.bit_width == 32 else pa.int64()
    one_nan = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
    return one_array(one_nan).view(bits)


def _cut(part: str, most: int) -> str:
    """The beginning of a name, which is percent-encoded, and a digest of all of it."""
    begin = part[: most - _DIGEST - 1]
    # No half of an escape: such a path is no URI.
    if (escape := begin.rfind("%", -2)) >= 0:
        begin = begin[:escape]
    return f"{begin}~{sha256(part.encode()).hexdigest()[:_DIGEST]}"


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return array.cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(kind) else array


def _divided(array: pa.Array, by: int) -> pa.Array:
    """Whole numbers divided, rounded down also below zero, as microseconds or a field's number want it."""
    numbers = array.cast(pa.int64())
    quotients = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), by)
    mask = numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(quotients, pa.int64(), mask=mask)


def _key(values: list[pa.Array], row: int) -> Key:
    return tuple(v[row].as_py() for v in values)
