# SPDX-License-Identifier: Apache-2.0
"""The description of a table for writers, and whether they can fill it, once it has the columns of the landing's SQL.

Contract: :func:`check_fit` refuses before a record is read what a writer would refuse later. It needs Arrow, which a
plan avoids to load, so a table that writers filled in its current state is not checked again: the plans in the log have
the schema, spec and properties of finished slices. A plan found in the log is only a message: :func:`contradiction`
checks it against the tables. Its location and location provider must be the table's current ones; its schema, spec and
order must be some that the table had. The SQL engine is loaded on demand too; a table without SQL, or of a landing
without `evolve`, is taken as it is.

Failure story: a table that cannot be filled is a :class:`~airflow_provider_lakecommit.exceptions.TableError` naming all
reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import PLACING, LandingState, Plan, Role, TableTarget, role_of
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import InferredTypes, evolved_schema
from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.landing import Landing

_WRITER_PROPERTIES = ("write.", "schema.name-mapping")


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


_ANY = UUID(int=0)
"""Placeholder for an epoch, which does not affect what a writer can do."""
