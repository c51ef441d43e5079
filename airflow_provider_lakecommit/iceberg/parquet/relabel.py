# SPDX-License-Identifier: Apache-2.0
"""Put rows under the names, field ids and required flags of a file's schema, without copying or reading a value.

Contract: :func:`relabelled` takes tables whose columns have the layout of the schema's: the same types in the same
places, names, metadata and nullability aside; an extension type counts as its storage. Slices, structs, lists and maps
are not copied, because Arrow's C data interface reads the same buffers under another schema. A column of another layout
is a :class:`TableError` that names it: under a foreign type, its values would have another meaning.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from airflow_provider_lakecommit.exceptions import TableError


class _Under:
    """A batch that claims another schema; :func:`pyarrow.record_batch` creates a batch with that schema from it."""

    __slots__ = ("_batch", "_schema")

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def relabelled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same values as a table of *schema*; columns are matched by position.

    :raises TableError: a column has another layout
    """
    if table.schema.equals(schema, check_metadata=True):
        return table
    for found, target in zip(table.schema, schema, strict=True):
        if not _alike(found.type, target.type):
            raise TableError(
                "LC3332", f"column {target.name!r} is {target.type} in the file, the rows have {found.type}"
            )
    return pa.Table.from_batches([pa.record_batch(_Under(b, schema)) for b in table.to_batches()], schema=schema)


def _alike(found: pa.DataType, target: pa.DataType) -> bool:
    found, target = _storage(found), _storage(target)
    if pa.types.is_nested(target):
        if found.id != target.id or found.num_fields != target.num_fields:
            return False
        return all(_alike(found.field(i).type, target.field(i).type) for i in range(target.num_fields))
    return bool(found.equals(target))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
