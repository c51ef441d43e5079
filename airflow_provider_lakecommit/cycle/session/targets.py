# SPDX-License-Identifier: Apache-2.0
"""What writers need to know of a table, and whether they can fill it.

Contract: :func:`check_fit` refuses before a record is read what a writer would refuse later. It needs Arrow, whose
loading costs a plan more than all else that it does, so a table that writers have filled just as it is now is not asked
again: the plans in the log show with which schema, spec and properties slices were finished.
A plan that is found in the log is a message: :func:`contradiction` holds it against the tables. Where it writes to, and
which code says so, must be what the table says now; its schema, spec and order must be some that the table had.

Failure story: a table that cannot be filled is a :class:`~airflow_provider_lakecommit.exceptions.TableError` naming all
that stands against it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import PLACING, LandingState, Plan, Role, TableTarget, role_of
from airflow_provider_lakecommit.cycle.session.sql_columns import check_evolving
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.landing import Landing

__all__ = ["check_fit", "check_unless_filled", "contradiction", "target_of"]

_WRITER_PROPERTIES = ("write.", "schema.name-mapping")


def target_of(name: str, table: Table, epoch: UUID) -> TableTarget:
    """All that writers need to know of a table."""
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
    """Whether files with the rows of this landing can be written for this table, once it has got the columns that the
    landing's SQL gives, where it may.

    :raises TableError: naming every column, field or property that stands against it
    """
    from airflow_provider_lakecommit.iceberg import check_target

    if role_of(landing.destinations, target.table) is Role.ROWS:
        try:
            check_evolving(landing, target.table, Schema.model_validate_json(target.schema))
        except TableError as e:
            if len(landing.data_tables) == 1:
                raise
            raise TableError("LC6228", f"{target.table}: {e}") from e
    check_target(target, landing.connections.location_providers)


def check_unless_filled(landing: Landing, targets: Sequence[TableTarget], landing_state: LandingState) -> None:
    """:func:`check_fit` for the tables that no finished slice in the log shows to be filled as they are now.

    :raises TableError: see there; or a rule is for a column of none of them
    """
    shown = [
        replace(target, epoch=_ANY)
        for cycle in landing_state.cycles.values()
        if cycle.finished and cycle.plan.spec_version == landing.spec_version
        for target in cycle.plan.targets
    ]
    fresh = [target for target in targets if replace(target, epoch=_ANY) not in shown]
    for target in fresh:
        check_fit(landing, target)
    there = [target for target in targets if target.table in landing.data_tables]
    if fresh and len(there) == len(landing.data_tables):
        # With Arrow, which a plan of tables in use does without.
        from airflow_provider_lakecommit.spark import check_rules

        check_rules(landing, {target.table: Schema.model_validate_json(target.schema) for target in there})


def contradiction(plan: Plan, tables: Mapping[str, Table], unread: Collection[str] = ()) -> str | None:
    """The first thing in which a plan is contradicted by the tables that it writes to, or ``None``.

    :param tables: of the landing, as just read from the catalog
    :param unread: those that could not be read, of which nothing is known
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
"""In place of an epoch, which does not matter to what a writer can do."""
