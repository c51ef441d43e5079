# SPDX-License-Identifier: Apache-2.0
"""What writers need to know of a table, and whether they can fill it.

Contract: :func:`check_fit` refuses before a record is read what a writer would refuse later. It needs Arrow, whose
loading costs a plan more than all else that it does, so a table that writers have filled just as it is now is not asked
again: the plans in the log show with which schema, spec and properties slices were finished.

Failure story: a table that cannot be filled is a :class:`~airflow_provider_lakecommit.exceptions.TableError` naming all
that stands against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_provider_lakecommit.core.model import TableTarget
from airflow_provider_lakecommit.core.routing import Role, role_of
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.landing import Landing

__all__ = ["check_fit", "check_unless_filled", "target_of"]

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
    """Whether files with the rows of this landing can be written for this table.

    :raises TableError: naming every column, field or property that stands against it
    """
    from airflow_provider_lakecommit.parquet.layout import check_target
    from airflow_provider_lakecommit.spark.slices import check_schema

    if role_of(landing.destinations, target.table) is Role.ROWS:
        check_schema(landing, Schema.model_validate_json(target.schema))
    check_target(target)


def check_unless_filled(landing: Landing, targets: Iterable[TableTarget], landing_state: LandingState) -> None:
    """:func:`check_fit` for the tables that no finished slice in the log shows to be filled as they are now.

    :raises TableError: see there
    """
    shown = [
        replace(target, epoch=_ANY)
        for cycle in landing_state.cycles.values()
        if cycle.finished and cycle.plan.spec_version == landing.spec_version
        for target in cycle.plan.targets
    ]
    for target in targets:
        if replace(target, epoch=_ANY) not in shown:
            check_fit(landing, target)


_ANY = UUID(int=0)
"""In place of an epoch, which does not matter to what a writer can do."""
