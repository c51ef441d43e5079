# SPDX-License-Identifier: Apache-2.0
"""The tables of a landing: found, or made as declared, described for writers, and able to take its rows.

Contract: a data table is made only if the landing states ``create``, a dead-letter table whenever it is missing. An
existing table is never altered. What it lacks is an error before anything is read: :func:`check_fit` refuses what a
writer would refuse later, once the table has the columns of the landing's SQL. It needs Arrow, which a plan avoids to
load, so a table that writers filled in its current state is not checked again: the plans in the log have the schema,
spec and properties of finished slices. The SQL engine is loaded on demand too; a table without SQL, or of a landing
without `evolve`, is taken as it is.

A plan found in the log is only a message: :func:`contradiction` checks it against the tables. Its location and location
provider must be the table's current ones; its schema, spec and order must be some that the table had.

Failure story: a missing table that may not be made, one with columns that this landing cannot fill, or one of an
unsupported format version is a :class:`~airflow_provider_lakecommit.exceptions.TableError` naming all of them; nothing
is made first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import NestedField, StructType

from airflow_provider_lakecommit.core import PLACING, LandingState, Plan, Role, TableTarget, role_of
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import InferredTypes, create_of, dotted, evolved_schema, plain
from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.iceberg import (
    DEAD_LETTER_SCHEMA,
    METADATA_TYPES,
    OPTIONAL_DEAD_LETTER_COLUMNS,
    create_from_spec,
    sort_order_from_spec,
)
from airflow_provider_lakecommit.landing import Landing

_WRITER_PROPERTIES = ("write.", "schema.name-mapping")
_ANY = UUID(int=0)
"""Placeholder for an epoch, which does not affect what a writer can do."""
MARKED = "lakecommit.record-columns"
"""Property of tables that were made with metadata columns."""


def table_of(
    session: LandingSession, name: str, *, dry: bool = False, before_making: Callable[[str], None] = lambda _: None
) -> Table:
    """Return a table of the landing, made if it is missing and may be made.

    :param before_making: called with its name first; raises if it must not be made
    :raises TableError: it is missing, or cannot take the rows
    """
    landing = session.landing
    table = session.tables.find(name)
    if table is None:
        before_making(name)
        table = _created(session, name, dry)
    _check(landing, name, table)
    return table


def _check(landing: Landing, name: str, table: Table) -> None:
    if table.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
        raise TableError(
            "LC6224",
            f"table {name} has format version {table.format_version}, or its types need it: pyiceberg can append to "
            f"versions up to {SUPPORTED_TABLE_FORMAT_VERSION}; nanosecond timestamps need 3, microsecond timestamps do "
            "not",
        )
    role = role_of(landing.destinations, name)
    if role is Role.DEAD_LETTERS and (unfit := _unfit(table.schema())):
        raise TableError("LC6225", f"dead-letter table {name} {unfit}: name another table, or let a run create it")
    # In a table that the landing did not make, columns of these names may be the records' own.
    stated = landing.columns.metadata is not None or MARKED in table.metadata.properties
    both = [f.name for f in table.schema().fields if f.name in landing.record_columns]
    if role is Role.ROWS and both and not stated:
        raise _undeclared(landing, both)


def _created(session: LandingSession, name: str, dry: bool) -> Table:
    landing = session.landing
    if role_of(landing.destinations, name) is Role.ROWS and landing.create_of(name) is None:
        raise TableError(
            "LC6226", f"there is no table {name}: create it, or state {_where(landing, name)} in landing {landing.name}"
        )
    expected = _expected(session, name)
    imagined = _imagined(name, *expected)
    _check(landing, name, imagined)
    check_fit(landing, target_of(name, imagined, session.new_id()))
    if name.count(".") > 1 and name.startswith(f"{session.tables.name}."):
        session.log(f"WARNING: {name} begins with the name of its catalog, which `table` does not need")
    if dry:
        session.log(f"table {name} is missing; a run creates it")
        return imagined
    session.log(f"table {name} is missing; creating it")
    return session.tables.create(name, *expected)


def differences(landing: Landing, name: str, table: Table) -> tuple[str, ...]:
    """Return how a data table differs from ``create``, which only applies to a missing table."""
    stated = landing.create_of(name)
    if stated is None or stated["schema"] == "registry":
        # The table may be older than the registry's newest version.
        return ()
    schema, spec, _ = create_from_spec(_create_section(landing, stated))
    has = {f.name: f for f in table.schema().fields}
    found = [
        f"column {f.name} is missing"
        if (own := has.get(f.name)) is None
        else f"column {f.name} is {_plain(own)}, not {_plain(f)}"
        for f in schema.fields
        if f.name not in has or not (_plain(has[f.name]) == _plain(f) or _evolved(landing, f, has[f.name]))
    ]
    now, expected = _parts(table.schema(), table.spec()), _parts(schema, spec)
    if now != expected:
        found.append(f"it is partitioned by {now or 'nothing'}, not by {expected or 'nothing'}")
    return tuple(found)


def _evolved(landing: Landing, stated: NestedField, now: NestedField) -> bool:
    """Return True if changes that the landing allows can have produced this column."""
    if landing.evolve == "none" or stated.required != now.required:
        return False
    found = evolution(Schema(stated), StructType(now), widen=landing.evolve == "widen")
    return not (found.misfits or found.left_out)


def _plain(field: NestedField) -> str:
    """Return a column's type without field ids, which catalogs reassign."""
    return f"{re.sub(r'[0-9]+: ', '', str(field.field_type))}{' required' if field.required else ''}"


def _parts(schema: Schema, spec: PartitionSpec) -> str:
    return ", ".join(f"{f.transform} of {schema.find_column_name(f.source_id)}" for f in spec.fields)


def _expected(session: LandingSession, name: str) -> tuple[Schema, PartitionSpec, dict[str, str], SortOrder]:
    landing = session.landing
    if role_of(landing.destinations, name) is Role.DEAD_LETTERS:
        return DEAD_LETTER_SCHEMA, UNPARTITIONED_PARTITION_SPEC, {}, UNSORTED_SORT_ORDER
    create = _create_section(landing, create_of(landing, name, session.kafka, session.log))
    made = create_from_spec(create)
    return *made, sort_order_from_spec(create, made[0])


def _imagined(name: str, schema: Schema, spec: PartitionSpec, properties: dict[str, str], order: SortOrder) -> Table:
    """Return the table as it would be made, unknown to any catalog."""
    metadata = new_table_metadata(schema, spec, order, f"imagined://{name}", {**properties})
    return Table(tuple(name.split(".")), metadata, "", load_file_io(), NoopCatalog("imagined"))


def _create_section(landing: Landing, create: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a section ``create`` with the missing metadata columns.

    :raises TableError: the landing does not state whether metadata fills a column of the registry
    """
    listed = [c.get("name") for c in create.get("schema", ()) if isinstance(c, Mapping)]
    requested = landing.record_columns
    if landing.columns.metadata is None and (both := [name for name in requested if name in listed]):
        raise _undeclared(landing, both)
    added = [{"name": name, "type": str(METADATA_TYPES[name])} for name in requested if name not in listed]
    marked = {MARKED: "true"} if requested else {}
    return {
        **create,
        "schema": [*create.get("schema", ()), *added],
        "properties": {**(create.get("properties") or {}), **marked},
    }


def _undeclared(landing: Landing, columns: Sequence[str]) -> TableError:
    return TableError(
        "LC6227",
        f"{landing.table}: column {', '.join(columns)} can be filled from the records' own fields or from record "
        f"metadata, and landing {landing.name} does not state which. Set `columns.metadata: false` for fields, `true` "
        "for metadata",
    )


def _where(landing: Landing, name: str) -> str:
    """Return the option with a table's definition."""
    return "`create`" if name == landing.table else f"`route.create` of {name}"


def _unfit(schema: Schema) -> str:
    """Return why a table cannot take every dead letter; empty if it can."""
    fields = [
        f for f in DEAD_LETTER_SCHEMA.fields if f.name not in OPTIONAL_DEAD_LETTER_COLUMNS - {*schema.column_names}
    ]
    found = evolution(schema, StructType(*fields), widen=False)
    lacking = ", ".join(f"{dotted(c.path)} {plain(c.kind)}" for c in found.changes if c.adds)
    always = {f.name for f in fields if f.required}
    required = ", ".join(f.name for f in schema.fields if f.required and f.name not in always)
    parts = (f"lacks {lacking}" if lacking else "", f"requires {required}" if required else "")
    return "; ".join(filter(None, (*parts, *map(str, found.misfits))))


def target_of(name: str, table: Table, epoch: UUID) -> TableTarget:
    """Return all that writers need to know of a table."""
    metadata = table.metadata
    return TableTarget(
        table=name,
        uuid=metadata.table_uuid,
        location=metadata.location,
        schema=metadata.schema().model_dump_json(),
        schema_id=metadata.current_schema_id,
        spec=metadata.spec().model_dump_json(),
        spec_id=metadata.default_spec_id,
        properties={k: v for k, v in metadata.properties.items() if k.startswith(_WRITER_PROPERTIES)},
        format_version=metadata.format_version,
        epoch=epoch,
        sort_order="" if table.sort_order().is_unsorted else table.sort_order().model_dump_json(),
    )


def check_fit(landing: Landing, target: TableTarget) -> None:
    """Check that files with this landing's rows can be written for this table, after the changes of its SQL, if
    allowed.

    :raises TableError: naming every failing column, field or property
    """
    from airflow_provider_lakecommit.iceberg import check_target
    from airflow_provider_lakecommit.spark import check_upsert

    if role_of(landing.destinations, target.table) is Role.ROWS:
        try:
            _check_evolving(landing, target.table, Schema.model_validate_json(target.schema))
            check_upsert(landing, target)
        except TableError as e:
            if len(landing.data_tables) == 1:
                raise
            raise TableError("LC6228", f"{target.table}: {e}") from e
    check_target(target, landing.connections.location_providers)


def _check_evolving(landing: Landing, table: str, schema: Schema) -> None:
    """Check that a landing can fill a table once it has the SQL's columns, as far as allowed.

    :raises TableError: naming every failing column, and why it cannot be as in the SQL
    """
    from airflow_provider_lakecommit.spark import check_schema, filled_elsewhere

    if not evolves_by_sql(landing, table):
        check_schema(landing, schema, table)
        return
    types = sql_types(landing, table, schema)
    found = evolution(
        schema, types.columns, widen=landing.evolve == "widen", skip=filled_elsewhere(landing), limits=types.limits
    )
    evolved = evolved_schema(schema, found.changes, last_id=max(schema.field_ids, default=0), schema_id=0)
    try:
        check_schema(landing, evolved, table)
    except TableError as e:
        why = "; ".join(map(str, (*types.left_out, *found.left_out)))
        raise TableError("LC6223", f"{e}; {why}" if why else str(e)) from e


def evolves_by_sql(landing: Landing, table: str) -> bool:
    """Return True if the SQL, and no record, decides which columns a table may get."""
    return landing.evolve != "none" and landing.transform_of(table) is not None


def sql_types(landing: Landing, table: str, schema: Schema) -> InferredTypes:
    """Return the columns that a landing's SQL needs in a table.

    :raises KeyError: it has no SQL for it
    :raises TableError: the SQL reads more than one record, or cannot be run
    """
    from airflow_provider_lakecommit.formats import inferred_from_sql
    from airflow_provider_lakecommit.spark import given_columns

    return inferred_from_sql(schema, given_columns(landing, table, schema), widen=landing.evolve == "widen")


def check_unless_filled(landing: Landing, targets: Sequence[TableTarget], landing_state: LandingState) -> None:
    """Run :func:`check_fit` for the tables that no finished slice in the log proves fillable in their current state.

    :raises TableError: as there; or a rule is for a column of none of them
    """
    filled = [
        replace(target, epoch=_ANY)
        for cycle in landing_state.cycles.values()
        if cycle.finished and cycle.plan.spec_version == landing.spec_version
        for target in cycle.plan.targets
    ]
    fresh = [target for target in targets if replace(target, epoch=_ANY) not in filled]
    for target in fresh:
        check_fit(landing, target)
    there = [target for target in targets if target.table in landing.data_tables]
    if fresh and len(there) == len(landing.data_tables):
        # With Arrow, which a plan of tables in use does not load.
        from airflow_provider_lakecommit.spark import check_rules

        check_rules(landing, {target.table: Schema.model_validate_json(target.schema) for target in there})


def contradiction(plan: Plan, tables: Mapping[str, Table], unread: Collection[str] = ()) -> str | None:
    """Return the first contradiction between a plan and the tables that it writes to, or ``None``.

    :param tables: the landing's tables, as just read from the catalog
    :param unread: unreadable tables, which are unknown
    """
    for target in plan.targets:
        if target.table in unread:
            continue
        table = tables.get(target.table)
        if table is None:
            return f"it writes to {target.table}, which is not a table of this landing"
        if what := _differs(target, table):
            return f"its {what} of {target.table} differs from the table's"
    missing = {t for s in plan.slices for t in s.tables} - {t.table for t in plan.targets}
    return f"it does not describe {', '.join(sorted(missing))}, which it writes to" if missing else None


def _differs(target: TableTarget, table: Table) -> str | None:
    metadata, order = table.metadata, target.sort_order
    known = {
        "id": target.uuid == metadata.table_uuid,
        "location": target.location == metadata.location,
        "schema": target.schema in {s.model_dump_json() for s in metadata.schemas if s.schema_id == target.schema_id},
        "spec": target.spec in {s.model_dump_json() for s in metadata.partition_specs if s.spec_id == target.spec_id},
        "sort order": not order or order in {o.model_dump_json() for o in metadata.sort_orders},
        "file location": _placing(target.properties) == _placing(metadata.properties),
    }
    return next((what for what, same in known.items() if not same), None)


def _placing(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.startswith(PLACING)}
