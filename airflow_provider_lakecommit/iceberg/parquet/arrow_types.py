# SPDX-License-Identifier: Apache-2.0
"""Iceberg types as Arrow types.

Contract: :func:`arrow_schema` carries field ids, names and required flags at every level, so that a Parquet file
written with it is a file of the table. It has 32-bit offsets (``string``, ``list``) where pyiceberg's own conversion
has 64-bit ones: the files are the same and nothing is copied, because a block never holds 2 GiB.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IcebergType, ListType, MapType, NestedField, StringType, StructType

FIELD_ID = b"PARQUET:field_id"


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a file of this table."""
    return pa.schema([arrow_field(f) for f in schema.fields])


def arrow_field(field: NestedField) -> pa.Field:
    """One column, nested ones included, with its field id."""
    return pa.field(
        field.name,
        _arrow_type(field.field_type),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.field_id).encode()},
    )


def _arrow_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([arrow_field(f) for f in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(arrow_field(kind.element_field))
    if isinstance(kind, MapType):
        return pa.map_(arrow_field(kind.key_field), arrow_field(kind.value_field))
    if isinstance(kind, StringType):
        return pa.string()
    if isinstance(kind, BinaryType):
        return pa.binary()
    return schema_to_pyarrow(kind)
