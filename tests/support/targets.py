# SPDX-License-Identifier: Apache-2.0
"""What a plan tells a writer about a table, taken from a real one."""

from __future__ import annotations

from uuid import uuid4

from pyiceberg.table import Table

from airflow_provider_lakecommit.core.model import TableTarget


def target_of(table: Table, name: str = "shop.orders") -> TableTarget:
    """The target for a table as it is now."""
    return TableTarget(
        table=name,
        uuid=table.metadata.table_uuid,
        location=table.location(),
        schema=table.schema().model_dump_json(),
        schema_id=table.schema().schema_id,
        spec=table.spec().model_dump_json(),
        spec_id=table.spec().spec_id,
        properties=dict(table.properties),
        format_version=table.format_version,
        epoch=uuid4(),
        sort_order="" if table.sort_order().is_unsorted else table.sort_order().model_dump_json(),
    )
