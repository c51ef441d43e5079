# SPDX-License-Identifier: Apache-2.0
"""From the types that SQL gives to wanted columns, with and without a column that the table has."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.formats.evolution.paths import plain
from airflow_provider_lakecommit.formats.evolution.schema import evolved_schema
from airflow_provider_lakecommit.formats.evolution.sql_types import inferred_from_sql
from airflow_provider_lakecommit.formats.transforms.engine import given_by
from airflow_provider_lakecommit.formats.transforms.fit import misfit
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec

NOTHING = Schema()
COLUMNS = (
    "a tinyint, b utinyint, c smallint, d usmallint, e integer, f uinteger, g bigint, h ubigint, i float, j double, "
    "k decimal(38, 10), l varchar, m blob, n boolean, o uuid, p date, q time, r timestamp, s timestamptz, "
    "t timestamp_s, u timestamp_ms, v integer[], w struct(x bigint, y varchar[]), "
    "x map(varchar, struct(z double)), y timestamp_ns, z hugeint, aa uhugeint, bb hugeint[]"
)
OTHERS = (
    "c interval, d bit, e enum('x', 'y'), f union(x int, y varchar), g time with time zone, "
    "h integer[3], i struct(x bigint, y interval), j interval[], k map(bit, int)"
)


def given(columns: str) -> pa.Schema:
    """The types of columns, as the engine tells them."""
    with duckdb.connect() as connection:
        connection.execute("set arrow_lossless_conversion = true")
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(f"create table t ({columns})")
        return connection.execute("from t").to_arrow_table().schema


def test_each_type_has_a_column_that_takes_it_over() -> None:
    """What is made of it is what the writer of rows takes without a guess."""
    types = given(COLUMNS)
    found = inferred_from_sql(NOTHING, types, widen=True)
    assert found.left_out == ()
    changes = evolution(NOTHING, found.columns, widen=True, limits=found.limits).changes
    assert len(changes) == len(types)
    made = arrow_schema(evolved_schema(NOTHING, changes, last_id=0, schema_id=1))
    assert [f.name for f in types if misfit(f.type, made.field(f.name).type)] == []


def test_what_no_column_is_of_is_left_out_by_its_name() -> None:
    found = inferred_from_sql(NOTHING, given(OTHERS), widen=True)
    assert found.columns == StructType()
    assert [one.column for one in found.left_out] == [*("c", "d", "e", "f", "g", "h", "i.y", "j.element", "k.key")]
    assert all("cast it" in one.text for one in found.left_out)


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("null", "v"),
        ("if(id > 1, null, null)", "v"),
        ("[]", "v.element"),
        ("unnest([])", "v"),
        ("map {}", "v"),
        ("map {'a': null}", "v.value"),
        ("[{'a': id, 'b': [null]}]", "v.element.b.element"),
        ("row(1, 2)", "v"),
        ("row(null, 2)", "v"),
    ],
)
def test_what_reports_no_type_or_no_name_is_left_out(sql: str, column: str) -> None:
    """A column of a type that a user guessed would stand against what is meant for ever."""
    types = given_by(f"select id, {sql} as v from record", pa.schema([pa.field("id", pa.int64())]), {})
    found = inferred_from_sql(NOTHING, types, widen=True)
    assert [f.name for f in found.columns.fields] == ["id"]
    assert [one.column for one in found.left_out] == [column]


def test_what_is_cast_is_named_though_it_is_null() -> None:
    sql = 'select null::int as a, []::varchar[] as b, {\'NULL\': id} as c, id as "NULL" from record -- "NULL"'
    types = given_by(sql, pa.schema([pa.field("id", pa.int64())]), {})
    found = inferred_from_sql(NOTHING, types, widen=True)
    assert [plain(f.field_type) for f in found.columns.fields] == [
        "int",
        "list<string>",
        "struct<NULL: optional long>",
        "long",
    ]


@pytest.mark.parametrize(
    ("own", "sql", "wide"),
    [
        ("int", "bigint", "long"),
        ("int", "uinteger", "long"),
        ("int", "smallint", "int"),
        ("long", "integer", "long"),
        ("int", "ubigint", "int"),
        ("int", "hugeint", "int"),
        ("float", "double", "double"),
        ("double", "float", "double"),
        ("decimal(6, 2)", "decimal(12, 4)", "decimal(10, 2)"),
        ("decimal(38, 2)", "decimal(38, 0)", "decimal(38, 2)"),
        ("decimal(6, 2)", "bigint", "decimal(6, 2)"),
        ("string", "bigint", "string"),
        ("list<int>", "bigint[]", "list<long>"),
        ("struct<x: int>", "struct(x bigint, y varchar)", "struct<x: long, y: string>"),
        ("map<string, int>", "map(varchar, bigint)", "map<string, long>"),
    ],
)
def test_a_column_becomes_as_wide_as_the_sql_only_where_types_may_be_widened(own: str, sql: str, wide: str) -> None:
    schema = create_from_spec({"schema": [{"name": "c", "type": own}]})[0]
    for widen in (False, True):
        found = inferred_from_sql(schema, given(f"c {sql}"), widen=widen)
        held = evolution(schema, found.columns, widen=widen, limits=found.limits)
        assert held.misfits == ()
        made = evolved_schema(schema, held.changes, last_id=9, schema_id=1).find_type("c")
        narrow = (own, "struct<x: int, y: string>")[own.startswith("struct")]
        assert plain(made).replace("optional ", "") == (wide if widen else narrow)
