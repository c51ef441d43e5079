# SPDX-License-Identifier: Apache-2.0
"""The columns of a landing's SQL, compared with those of a table that may evolve.

Contract: reads only the declaration. Arrow and the SQL engine are loaded on demand; other plans do not need them. A
table without SQL, or of a landing without `evolve`, is taken as it is.
"""

from __future__ import annotations

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import InferredTypes, evolved_schema
from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.landing import Landing


def evolves_by_sql(landing: Landing, table: str) -> bool:
    """Return True if the SQL, and no record, decides which columns a table may get."""
    return landing.evolve != "none" and landing.transform_of(table) is not None


def wanted_by_sql(landing: Landing, table: str, schema: Schema) -> InferredTypes:
    """Return the columns that a landing's SQL needs in a table.

    :raises KeyError: it has no SQL for it
    :raises TableError: the SQL reads more than one record, or cannot be run
    """
    from airflow_provider_lakecommit.formats import inferred_from_sql
    from airflow_provider_lakecommit.spark import given_columns

    return inferred_from_sql(schema, given_columns(landing, table, schema), widen=landing.evolve == "widen")


def check_evolving(landing: Landing, table: str, schema: Schema) -> None:
    """Check that a landing can fill a table once it has the SQL's columns, as far as allowed.

    :raises TableError: naming every failing column, and why it cannot be as in the SQL
    """
    from airflow_provider_lakecommit.spark import check_schema, filled_elsewhere

    if not evolves_by_sql(landing, table):
        check_schema(landing, schema, table)
        return
    wanted = wanted_by_sql(landing, table, schema)
    found = evolution(
        schema, wanted.columns, widen=landing.evolve == "widen", skip=filled_elsewhere(landing), limits=wanted.limits
    )
    evolved = evolved_schema(schema, found.changes, last_id=max(schema.field_ids, default=0), schema_id=0)
    try:
        check_schema(landing, evolved, table)
    except TableError as e:
        why = "; ".join(map(str, (*wanted.left_out, *found.left_out)))
        raise TableError("LC6223", f"{e}; {why}" if why else str(e)) from e
