# SPDX-License-Identifier: Apache-2.0
"""How `lakecommit infer-schema` handles a sample if the landing has SQL: the columns of `record` are those of the
records, and the table's are the result of the SQL.

Contract: :func:`given_by_sql` runs the SQL on no rows. Its results may be null in any row, so no column is required.
SQL that does not fit the columns is reported, and leaves the table without any.

Failure story: with SQL for only some of several tables there is no single `record` to infer: that is reported, and
columns are inferred as if there were no SQL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import InferredColumn, plain, wanted_of_sql
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark import given_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlColumns:
    """The columns of the SQL's result, and its errors."""

    sql: str
    columns: Sequence[InferredColumn] = ()
    wrong: Sequence[str] = ()


def given_by_sql(landing: Landing | None, columns: Sequence[InferredColumn]) -> SqlColumns | None:
    """Return the columns that a landing's SQL makes of these; ``None``: its one table has none."""
    if landing is None or landing.routing is not None or (sql := landing.transform_of(landing.table)) is None:
        return None
    record = [c.to_dict() for c in columns if c.type is not None]
    if not record:
        return SqlColumns(sql=sql)
    # Rules are for the current columns of the spec.
    asked = landing.changed(
        transform={"record_schema": record}, timestamps={}, decoding={"encodings": {}}, evolve="none"
    )
    try:
        found = wanted_of_sql(Schema(), given_columns(asked, landing.table, Schema()), widen=False)
    except TableError as e:
        return SqlColumns(sql=sql, wrong=(str(e),))
    given = [
        InferredColumn(name=f.name, type=plain(f.field_type).replace("optional ", ""), required=False)
        for f in found.columns.fields
    ]
    return SqlColumns(sql=sql, columns=given, wrong=[str(one) for one in found.left_out])
