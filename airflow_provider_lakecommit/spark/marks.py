# SPDX-License-Identifier: Apache-2.0
"""The columns of a table that identify the record of each row.

Contract: imports no Arrow, so that a job that reports its slices in the driver starts without it.
"""

from __future__ import annotations

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import Role, role_of
from airflow_provider_lakecommit.iceberg import mark_columns
from airflow_provider_lakecommit.landing import MARK_COLUMNS, Landing


def marks_of(landing: Landing, table: str, schema: Schema) -> tuple[int, ...]:
    """Return their field ids, in the order of :data:`~airflow_provider_lakecommit.core.provenance.COORDINATES`; empty
    if the table lacks one, or the landing does not fill them.
    """
    role = role_of(landing.destinations, table)
    if role is Role.ROWS and not set(MARK_COLUMNS) <= set(landing.record_columns):
        return ()
    return mark_columns(schema, role)
