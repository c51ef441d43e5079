# SPDX-License-Identifier: Apache-2.0
"""What is said of rejects of a table that evolves: the type that the table had when they were evaluated."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.formats.decoder import Reject
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.spark.unknown_paths import with_types

SCHEMA = create_from_spec(
    {"schema": [{"name": "n", "type": "int"}, {"name": "lines", "type": "list<struct<price: decimal(4, 2)>>"}]}
)[0]


@pytest.mark.parametrize(
    ("kind", "column", "reason", "message"),
    [
        ("wrong_value", "n", "column n is a string, not a number", " (the table has int)"),
        ("wrong_value", "lines.element.price", "too large", " (the table has decimal(4, 2))"),
        ("wrong_value", "n", "column n: the table has int, the records have string", ""),
        ("wrong_value", "lines", "column lines is a number, not an array", ""),
        ("wrong_value", "elsewhere", "of a column that is not there", ""),
        ("wrong_value", None, "of the whole value", ""),
        ("missing_required", "n", "required column n is missing or null", ""),
    ],
)
def test_a_value_that_its_column_cannot_take_is_reported_with_the_columns_type(
    kind: str, column: str | None, reason: str, message: str
) -> None:
    (found,) = with_types([Reject(index=3, kind=kind, column=column, reason=reason)], [SCHEMA])
    assert found == Reject(index=3, kind=kind, column=column, reason=f"{reason}{message}")


def test_of_several_tables_only_a_type_that_all_with_the_column_have_is_named() -> None:
    """A record of another table than the first was said to be refused by the first one's type."""
    other = create_from_spec({"schema": [{"name": "n", "type": "long"}, {"name": "m", "type": "date"}]})[0]
    some = [Reject(index=n, kind="wrong_value", column=name, reason="bad") for n, name in enumerate("nm")]
    assert [r.reason for r in with_types(some, [SCHEMA, other])] == ["bad", "bad (the table has date)"]
