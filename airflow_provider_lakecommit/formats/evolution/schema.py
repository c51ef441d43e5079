# SPDX-License-Identifier: Apache-2.0
"""Apply changes to a schema.

Columns keep their ids, names, order, comments and defaults. New ones come last in their struct, with ids above the
highest ever given, so that none is mistaken for a dropped one; their comment tells where they come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.formats.evolution.changes import Change, TableSide
from airflow_provider_lakecommit.formats.evolution.paths import Path, paths_in


def side_of(metadata: TableMetadata) -> TableSide:
    """Return what an evolution of a table depends on besides its columns."""
    schema = metadata.schema()
    bound = {f.source_id for spec in metadata.partition_specs for f in spec.fields}
    bound |= {f.source_id for order in metadata.sort_orders for f in order.fields} | set(schema.identifier_field_ids)
    now = {path for path, _ in paths_in(schema.fields)}
    once = {path for s in metadata.schemas for path, _ in paths_in(s.fields)}
    parts = frozenset(f.name.casefold() for spec in metadata.partition_specs for f in spec.fields)
    return TableSide(version=metadata.format_version, bound=frozenset(bound), gone=frozenset(once - now), parts=parts)


def evolved_schema(schema: Schema, changes: Iterable[Change], *, last_id: int, schema_id: int, doc: str = "") -> Schema:
    """Return the schema with these changes.

    :param last_id: the highest id that any column of the table ever had
    :param doc: comment of new columns
    """
    by_parent: dict[Path, list[Change]] = {}
    wider: dict[Path, IcebergType] = {}
    for change in changes:
        if change.adds:
            by_parent.setdefault(change.path[:-1], []).append(change)
        else:
            wider[change.path] = change.kind
    ids = count(last_id + 1)

    def struct(kind: StructType, path: Path) -> StructType:
        kept = [field(f, (*path, f.name)) for f in kind.fields]
        added = by_parent.get(path, ())
        new = [NestedField(0, a.path[-1], a.kind, required=False, doc=doc or None) for a in added]
        return StructType(*kept, *(assign_fresh_schema_ids(Schema(f), lambda: next(ids)).fields[0] for f in new))

    def field(own: NestedField, path: Path) -> NestedField:
        return own.model_copy(update={"field_type": inner(own.field_type, path)})

    def inner(kind: IcebergType, path: Path) -> IcebergType:
        if isinstance(kind, StructType):
            return struct(kind, path)
        if isinstance(kind, ListType):
            element = inner(kind.element_type, (*path, "element"))
            return ListType(kind.element_id, element, element_required=kind.element_required)
        if isinstance(kind, MapType):
            value = inner(kind.value_type, (*path, "value"))
            return MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=kind.value_required)
        return wider.get(path, kind)

    fields = struct(schema.as_struct(), ()).fields
    return Schema(*fields, schema_id=schema_id, identifier_field_ids=schema.identifier_field_ids)
