# SPDX-License-Identifier: Apache-2.0
"""Several schemas of one window: a new column does not depend on which of them is met first."""

from __future__ import annotations

from itertools import permutations

import pytest
from pyiceberg.types import StructType

from airflow_provider_lakecommit.formats.evolution.named_schemas import JoinedColumns
from airflow_provider_lakecommit.formats.evolution.paths import plain
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec


def columns(kind: str) -> StructType:
    return create_from_spec({"schema": [{"name": "c", "type": kind}]})[0].as_struct()


@pytest.mark.parametrize(
    ("kinds", "held"),
    [
        (("int", "long"), "long"),
        (("int", "double"), "double"),
        (("int", "float"), "double"),
        (("long", "float", "int"), "double"),
        (("decimal(6, 2)", "decimal(6, 4)"), "decimal(8, 4)"),
        (("decimal(6, 2)", "int"), "decimal(12, 2)"),
        (("decimal(6, 2)", "long", "decimal(38, 0)"), ""),
        (("string", "uuid"), "string"),
        (("fixed[4]", "fixed[8]"), "binary"),
        (("string", "binary", "fixed[4]"), "binary"),
        (("int", "string", "double"), ""),
        (("date", "timestamp"), ""),
        (("timestamp", "timestamptz"), ""),
        (("list<int>", "list<double>"), "list<double>"),
        (("list<int>", "list<string>"), ""),
        (("list<int>", "int"), ""),
        (("map<string, int>", "map<string, long>"), "map<string, long>"),
        (("map<string, int>", "map<int, int>"), ""),
        (("struct<a: int>", "struct<a: double>"), "struct<a: double>"),
        (("struct<a: int>", "struct<a: string>"), ""),
    ],
)
def test_the_type_that_holds_all_is_requested_in_whatever_order(kinds: tuple[str, ...], held: str) -> None:
    for some in permutations(kinds):
        joined = JoinedColumns()
        for kind in some:
            joined.add(columns(kind))
        found = [plain(f.field_type).replace("optional ", "") for f in joined.columns.fields]
        assert found == ([held] if held else []), some
        assert bool(joined.left_out) == (not held), some
        assert all("its schemas disagree: " in str(why) for why in joined.left_out.values())


def test_of_a_struct_what_agrees_stays() -> None:
    for some in permutations(("struct<a: int, b: string>", "struct<a: int, b: long, c: date>", "struct<b: boolean>")):
        joined = JoinedColumns()
        for kind in some:
            joined.add(columns(kind))
        (field,) = joined.columns.fields
        assert isinstance(field.field_type, StructType)
        assert {f.name for f in field.field_type.fields} == {"a", "c"}
        assert [one.column for one in joined.left_out.values()] == ["c.b"]
