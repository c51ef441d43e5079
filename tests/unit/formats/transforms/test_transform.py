# SPDX-License-Identifier: Apache-2.0
"""SQL between record and row: what may be said, what becomes of records, and what is refused before one is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded
from airflow_provider_lakecommit.formats.transforms import transform
from airflow_provider_lakecommit.formats.transforms.row_wise import row_wise
from airflow_provider_lakecommit.formats.transforms.transform import TransformDecoder
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.table_spec import columns_from_spec
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.decoders import block_decoder, check_schema
from tests.support.declared import changed_landing, landing_of
from tests.support.effort import examples

RECORD = [
    {"name": "id", "type": "long", "required": True},
    {"name": "name", "type": "string"},
    {"name": "n", "type": "int"},
    {"name": "amount", "type": "decimal(9, 2)"},
    {"name": "at", "type": "timestamptz"},
    {"name": "items", "type": "list<struct<sku: string, n: int>>"},
    {"name": "tags", "type": "map<string, long>"},
]
TABLE = [
    {"name": "id", "type": "long", "required": True},
    {"name": "text", "type": "string"},
    {"name": "n", "type": "int"},
]


def schema_of(columns: Sequence[Mapping[str, Any]]) -> Schema:
    return columns_from_spec(columns)


def landing(sql: str, **more: Any) -> Landing:
    stated = {"record_schema": RECORD, "timestamps": {"at": "epoch_millis"}, **more}
    return landing_of(name="a", topics="a", table="s.t", transform=sql, **stated)


def transformed(sql: str, values: Sequence[bytes], table: Sequence[Mapping[str, Any]] = TABLE, **more: Any) -> Decoded:
    decoder = block_decoder(landing(sql, **more), {"s.t": schema_of(table)})
    block = decoder.decode(values)
    decoder.close()
    (decoded,) = block.tables.values()
    assert len(decoded.records or ()) == decoded.table.num_rows
    return Decoded(
        table=decoded.table,
        records=list(decoded.records or ()),
        rejects=block.rejects,
        filtered=list(block.filtered),
        ignored=block.ignored,
    )


def values(*records: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(r).encode() for r in records]


def rows(decoded: Decoded, *names: str) -> list[Any]:
    return [tuple(row[n] for n in names) for row in decoded.table.to_pylist()]


def test_columns_are_made_and_records_filtered() -> None:
    made = transformed(
        "select id, upper(name) as text from record where n > 1",
        values({"id": 1, "name": "a", "n": 1}, {"id": 2, "name": "b", "n": 2}, {"id": 3, "n": 3}, {"id": 4}),
    )
    assert rows(made, "id", "text", "n") == [(2, "B", None), (3, None, None)]
    assert (made.records, made.filtered, made.rejects) == ([1, 2], [0, 3], ())


def test_lists_explode_in_their_order_and_an_empty_one_is_filtered() -> None:
    items = [[{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], [], None, [{"sku": "c", "n": None}]]
    made = transformed(
        "select id, unnest(items).sku as text, unnest(items).n as n from record",
        values(*({"id": i, "items": some} for i, some in enumerate(items))),
    )
    assert rows(made, "id", "text", "n") == [(0, "a", 1), (0, "b", 2), (3, "c", None)]
    assert (made.records, made.filtered) == ([0, 0, 3], [1, 2])


@pytest.mark.parametrize(
    ("sql", "bad", "reason"),
    [
        ("select id, cast(name as int) as n from record", {"name": "x"}, "Could not convert string 'x'"),
        ("select id, n // (n - 1) as n from record", {"n": 1}, "division by zero"),
        ("select id, cast(n % (n - 1) as int) as n from record", {"n": 1}, "division by zero"),
        ("select id, mod(n, n - 1) as n from record", {"n": 1}, "division by zero"),
        ("select id, cast(n / (n - 1) as int) as n from record", {"n": 1}, "division by zero"),
        ("select id * 4611686018427387904 as id from record", {}, "Overflow in multiplication"),
        ("select id, n + 2147483640 as n from record", {"n": 100}, "Overflow in addition"),
        ("select id, id * 2147483648 as n from record", {}, "column n: 15032385536 is out of range"),
        ("select id, case when n = 1 then error('not so') else 1 end as n from record", {"n": 1}, "not so"),
        ("select nullif(id, 7) as id from record", {}, "required column id is null"),
        (
            "select id, list_reduce([x for x in [n] if x > 1], lambda a, b: a + b) as n from record",
            {"n": 1},
            "empty input list",
        ),
    ],
)
@pytest.mark.parametrize("others", [0, 1, 40])
def test_a_record_in_which_the_sql_fails_is_rejected_alone(
    sql: str, bad: Mapping[str, Any], reason: str, others: int
) -> None:
    good = {"id": 0, "name": "0", "n": 3}
    made = transformed(sql, values(*[good] * others, {**good, "id": 7, **bad}, *[good] * others))
    (reject,) = made.rejects
    assert (reject.index, made.filtered) == (others, [])
    assert reason in reject.reason
    assert made.records == [i for i in range(2 * others + 1) if i != others]


WIDE = [
    *TABLE[:1],
    {"name": "d", "type": "double"},
    {"name": "ds", "type": "list<struct<d: double>>"},
    {"name": "day", "type": "date"},
    {"name": "at", "type": "timestamptz"},
    {"name": "clock", "type": "time"},
    {"name": "price", "type": "decimal(3, 1)"},
    {"name": "code", "type": "fixed[2]"},
]


@pytest.mark.parametrize(
    ("sql", "good", "bad", "kind"),
    [
        ("select id, cast(name as double) * 1e300 as d", "2", "1e9", "transform_failed"),
        ("select id, cast(name as double) as d", "2", "1e999", "transform_failed"),
        ("select id, exp(cast(name as int)) as d", "2", "999", "transform_failed"),
        ("select id, 1 / cast(name as double) as d", "2", "1e-320", "transform_failed"),
        ("select id, pow(cast(name as double), 9) - 1 as d", "2", "1e99", "transform_failed"),
        ("select id, (1e308 - pow(cast(name as double), 9)) * 0 as d", "2", "1e99", "transform_failed"),
        ("select id, [{'d': pow(cast(name as double), 9)}] as ds", "2", "1e99", "transform_failed"),
        ("select id, unnest([2.0::double, 10.0 ** cast(name as int)]) as d", "2", "999", "transform_failed"),
        ("select id, cast(name as date) as day", "2026-01-02", "infinity", "wrong_value"),
        ("select id, cast(name as date) as day", "9999-12-31", "10000-01-01", "wrong_value"),
        ("select id, cast(name as timestamptz) as at", "2026-01-02 00:00:00", "-infinity", "wrong_value"),
        ("select id, cast(name as timestamptz) + interval 1 day as at", "0001-01-01", "9999-12-31", "wrong_value"),
        ("select id, cast(name as time) as clock", "23:59:59.999999", "24:00:00", "wrong_value"),
        ("select id, cast(name as int) as price", "99", "100", "wrong_value"),
        ("select id, cast(name as blob) as code", "ab", "abc", "wrong_value"),
    ],
)
def test_a_value_that_the_engine_would_alter_is_a_reject(sql: str, good: str, bad: str, kind: str) -> None:
    made = transformed(f"{sql} from record", values({"id": 1, "name": good}, {"id": 2, "name": bad}, {"id": 3}), WIDE)
    assert [(r.index, r.kind) for r in made.rejects] == [(1, kind)]
    assert {row["id"] for row in made.table.to_pylist()} == {1, 3}
    assert any(value not in (None, [{"d": None}]) for row in made.table.to_pylist() for value in list(row.values())[1:])


def test_a_record_that_breaks_the_engine_costs_no_other_one() -> None:
    """``list_where`` of DuckDB 1.5 does so for lists in a list: what is asked of it later is answered by a new one."""
    columns = [TABLE[0], {"name": "lists", "type": "list<list<long>>"}]
    made = transformed(
        "select id, list_where(lists, [])::varchar as text from record",
        values(*({"id": i, "lists": [[], [1], [2, 3]] if i == 20 else None} for i in range(40))),
        record_schema=columns,
        timestamps={},
    )
    assert {i for (i,) in rows(made, "id")} | {20} == set(range(40))
    assert {(r.index, r.kind) for r in made.rejects} <= {(20, "transform_failed")}


def test_a_message_of_the_engine_that_is_cut_off_within_a_character_is_that_of_its_record() -> None:
    made = transformed(
        "select id, from_binary(name)::varchar as text from record",
        values({"id": 1, "name": "é"}, {"id": 2, "name": "1"}),
    )
    assert [(r.index, r.kind) for r in made.rejects] == [(0, "transform_failed")]
    assert rows(made, "id") == [(2,)]


class Read(BaseDecoder):
    """A decoder that has read its values before."""

    def __init__(self, columns: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> None:
        self._schema = arrow_schema(schema_of(columns))
        self._rows = rows

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return Decoded(table=pa.Table.from_pylist(list(self._rows), schema=self.schema))


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("d > 5", [0, 2, 3]),
        ("d >= 'inf'::double", [0, 3]),
        ("d in (0.0, 7.0)", [1, 2]),
        ("d <= 'nan'::double", [0, 1, 2, 3]),
    ],
)
def test_a_filter_finds_a_number_that_is_none_greater_than_others_as_an_expression_does(
    condition: str, kept: list[int]
) -> None:
    columns = [{"name": "id", "type": "long"}, {"name": "d", "type": "double"}]
    read = Read(columns, [{"id": i, "d": d} for i, d in enumerate([math.nan, -0.0, 7.0, math.inf, None])])
    table = schema_of([TABLE[0], {"name": "holds", "type": "boolean"}])
    of = TransformDecoder(read, f"select id from record where {condition}", table, frozenset(), {}).decode([])
    block = TransformDecoder(read, f"select id, {condition} as holds from record", table, frozenset(), {}).decode([])
    assert [i for (i,) in rows(of, "id")] == [i for i, holds in rows(block, "id", "holds") if holds] == kept


def test_what_a_record_reports_to_be_infinite_may_be() -> None:
    texts = ["inf", "-Infinity", "NaN", "1e999", "1.5"]
    made = transformed(
        "select id, cast(name as double) as d from record",
        values(*({"id": i, "name": text} for i, text in enumerate(texts))),
        WIDE,
    )
    assert [str(d) for _, d in rows(made, "id", "d")] == ["inf", "-inf", "nan", "1.5"]
    assert [r.index for r in made.rejects] == [3]


def test_a_try_makes_null_of_what_would_be_refused() -> None:
    made = transformed("select id, try(7 // (n - 1)) as n from record", values({"id": 1, "n": 1}, {"id": 2, "n": 3}))
    assert (rows(made, "id", "n"), made.rejects) == ([(1, None), (2, 3)], ())


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("try(name::int + 1) as n, try(name::int + 2)::varchar as text", (None, None)),
        ("coalesce(n, name::int + 1) as n, coalesce(n + 1, name::int + 1)::varchar as text", (5, "6")),
    ],
)
def test_an_expression_used_twice_but_not_needed_refuses_no_record(sql: str, row: tuple[Any, ...]) -> None:
    made = transformed(f"select id, {sql} from record", values({"id": 1, "name": "x", "n": 5}))
    assert (rows(made, "n", "text"), made.rejects) == ([row], ())


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("typeof(1e2)", "DOUBLE"),
        ("typeof(5.)", "DECIMAL(1,0)"),
        ("(n * 1.5e0)::int", "4"),
        ("-0e0", "-0.0"),
        ("0.30000000000000004e0", "0.30000000000000004"),
        ("5e-324", "5e-324"),
        ("7 // '2'", "3"),
        ("array_to_string(range(n), '')", "012"),
        ("repeat(name, n)", "aaa"),
        ("columns(['n']) + 1", "4"),
    ],
)
def test_an_expression_means_what_it_means_in_the_engine(expression: str, text: str) -> None:
    made = transformed(
        f"select id, ({expression})::varchar as text from record", values({"id": 1, "name": "a", "n": 3})
    )
    assert rows(made, "text") == [(text,)]


def test_many_functions_are_looked_up_at_once() -> None:
    """The engine's list of functions takes as long for one of them as for all."""

    class Counted:
        def __init__(self, inner: duckdb.DuckDBPyConnection) -> None:
            self.inner, self.requests = inner, 0

        def execute(self, *args: Any) -> duckdb.DuckDBPyConnection:
            self.requests += "duckdb_functions" in args[0]
            return self.inner.execute(*args)

    with duckdb.connect() as connection:
        counted = Counted(connection)
        columns = ", ".join(f"{name}(id) + {n} as c{n}" for n, name in enumerate(["abs", "sign", "ceil"] * 50))
        assert "c149" in row_wise(cast(Any, counted), f"select {columns} from record", ["id"])[0]
    assert counted.requests == 1


def test_a_star_may_be_that_of_a_struct() -> None:
    columns = [TABLE[0], {"name": "st", "type": "struct<n: int, text: string>"}]
    made = transformed(
        "select id, st.* from record",
        values({"id": 1, "st": {"n": 5, "text": "a"}}),
        record_schema=columns,
        timestamps={},
    )
    assert rows(made, "id", "text", "n") == [(1, "a", 5)]


def test_a_row_does_not_depend_on_where_its_record_is() -> None:
    sql = "select id, concat_ws(',', *columns(c -> c in ('id', 'name'))) as text from record"
    given = values(*({"id": i, "name": "a"} for i in range(3)))
    alone = [rows(transformed(sql, [value]), "id", "text")[0] for value in given]
    assert rows(transformed(sql, given), "id", "text") == alone


@pytest.mark.parametrize("kind", ["long", "decimal(38, 0)", "decimal(38, 2)", "int"])
def test_complete_numbers_of_sixteen_bytes_go_into_what_holds_them(kind: str) -> None:
    most = {"long": 2**63 - 1, "decimal(38, 0)": 10**38 - 1, "decimal(38, 2)": 10**36 - 1, "int": 2**31 - 1}[kind]
    table = [TABLE[0], {"name": "n", "type": kind}, {"name": "ns", "type": f"list<{kind}>"}]
    given = [0, -1, most, -most, most + 1, -most - 2, None, 2**127 - 1, -(2**127), 5]
    made = transformed(
        "select id, list_sum([name::hugeint]) as n, [name::hugeint] as ns from record",
        values(*({"id": i, "name": None if n is None else str(n)} for i, n in enumerate(given))),
        table,
    )
    assert [(r.index, r.kind) for r in made.rejects] == [(i, "wrong_value") for i in (4, 5, 7, 8)]
    assert rows(made, "n", "ns") == [(n, [n]) for i, n in enumerate(given) if i not in (4, 5, 7, 8)]
    unsigned = transformed(
        "select id, name::uhugeint as n from record",
        values(*({"id": i, "name": str(n)} for i, n in enumerate([7, most, most + 1, 2**128 - 1, 2**127]))),
        table,
    )
    assert [r.index for r in unsigned.rejects] == [2, 3, 4]
    assert [int(n) for (n,) in rows(unsigned, "n")] == [7, most]


def test_what_the_format_refuses_is_refused_as_before_and_keeps_its_position() -> None:
    made = transformed(
        "select id, name as text from record where id <> 3",
        [b"{", *values({"id": 1}, {"id": "x"}, {"id": 3}, {"name": "a"}, {"id": 5, "more": 1})],
    )
    assert [(r.index, r.kind) for r in made.rejects] == [(0, "not_json"), (2, "wrong_value"), (4, "missing_required")]
    assert (made.records, made.filtered, dict(made.ignored)) == ([1, 5], [3], {"more": 1})


def test_a_record_with_one_bad_row_gives_none() -> None:
    items = [[{"sku": "a", "n": 1}, {"sku": None, "n": 2}], [{"sku": "b", "n": 3}]]
    made = transformed(
        "select id, unnest(items).sku as sku from record",
        values(*({"id": i, "items": some} for i, some in enumerate(items))),
        [TABLE[0], {"name": "sku", "type": "string", "required": True}],
    )
    assert rows(made, "id", "sku") == [(1, "b")]
    assert [(r.index, r.kind, r.column) for r in made.rejects] == [(0, "missing_required", "sku")]


def bare(n):  # type: ignore[no-untyped-def]
    return n


def doubled(n: int) -> int:
    """For SQL; refuses 13."""
    if n == 13:
        raise ValueError("thirteen")
    return 2 * n


class TimeIsUp(BaseException):
    """What a time limit raises, wherever a program is."""


def stopped_once(n: int) -> int:
    """For SQL; is interrupted at 13, the first time."""
    if n == 13 and not STOPS:
        STOPS.append(n)
        raise TimeIsUp
    if n == 14:
        raise SystemExit(2)
    return n


STOPS: list[int] = []


@pytest.mark.parametrize("sql", ["stopped_once(n)", "try(stopped_once(n))"])
def test_what_stops_a_function_from_outside_is_no_fault_of_its_record(sql: str) -> None:
    STOPS.clear()
    of = landing(
        f"select id, cast({sql} as int) as n from record", functions={"stopped_once": f"{__name__}.stopped_once"}
    )
    decoder = block_decoder(of, {"s.t": schema_of(TABLE)})
    given = values({"id": 1, "n": 4}, {"id": 2, "n": 13}, {"id": 3, "n": 14})
    with pytest.raises(TimeIsUp):
        decoder.decode(given)
    block = decoder.decode(given)
    decoder.close()
    assert block.tables["s.t"].table.column("n").to_pylist()[:2] == [4, 13]
    assert [r.index for r in block.rejects] == ([2] if sql.startswith("stopped") else [])


def test_functions_by_import_path_take_part_and_refuse_records_by_raising() -> None:
    made = transformed(
        "select id, cast(doubled(n) as int) as n from record",
        values({"id": 1, "n": 4}, {"id": 2, "n": 13}, {"id": 3}),
        functions={"doubled": f"{__name__}.doubled"},
    )
    assert rows(made, "id", "n") == [(1, 8), (3, None)]
    (reject,) = made.rejects
    assert (reject.index, reject.kind) == (1, "transform_failed")
    assert "thirteen" in reject.reason


def less(n: int) -> int:
    """For SQL; gives what its annotation does not say."""
    return n / 2 if n else None  # type: ignore[return-value]


def test_what_a_function_gives_is_null_or_of_its_annotated_type() -> None:
    made = transformed(
        "select id, cast(less(n) as int) as n from record",
        values({"id": 1, "n": 0}, {"id": 2, "n": 3}, {"id": 3}),
        functions={"less": f"{__name__}.less"},
    )
    assert rows(made, "id", "n") == [(1, None), (3, None)]
    (reject,) = made.rejects
    assert "it returned float, but is annotated with" in reject.reason


def maybe(n: int) -> int | None:
    """For SQL; all of these give what is not quite what their annotation says."""
    return n / 2  # type: ignore[return-value]


def several(n: int) -> list[int]:
    return [n, n / 2]  # type: ignore[list-item]


def named(n: int) -> dict[str, int]:
    return {"a": n / 2}  # type: ignore[dict-item]


def wide(n: int) -> float:
    return 2**53 + n


def once(n: int) -> Decimal:
    return Decimal(n)


@pytest.mark.parametrize("call", ["maybe(n)", "several(n)[2]", "named(n)['a']", "wide(n)"])
def test_an_answer_is_checked_with_all_that_is_in_it(call: str) -> None:
    name = call.partition("(")[0]
    made = transformed(
        f"select id, cast({call} as long) as id2 from record",
        values({"id": 1, "n": 2}, {"id": 2, "n": 3}, {"id": 3}),
        [TABLE[0], {"name": "id2", "type": "long"}],
        functions={name: f"{__name__}.{name}"},
    )
    # Only the second of `wide` cannot be a float; all others are halves, which are no whole numbers.
    assert [r.index for r in made.rejects] == ([1] if name == "wide" else [0, 1])
    assert all("annotated with" in r.reason for r in made.rejects)
    assert rows(made, "id2")[-1] == (None,)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select lakecommit_place as id from record", "lakecommit_place, the record's internal position"),
        ("select id, cast(r.lakecommit_place as int) as n from record r", "lakecommit_place"),
        ("select id, record::varchar as text from record", "record as one value: name its columns"),
        ("select id, to_json(R)::varchar as text from record as r", "r as one value: name its columns"),
        ("select id, columns('.*') as text from record", "columns by a pattern"),
        ("select id, current_localtimestamp()::varchar as text from record", "current_localtimestamp, which gives"),
        ('select id, age("at")::varchar as text from record', "age, which gives another answer each time"),
        (
            "select id, current_setting('threads')::varchar as text from record",
            "current_setting, an internal function of the",
        ),
        ("select count(*) as n from record", "count_star, an aggregate"),
        ("select id, sum(n) as n from record group by id", "group by"),
        ("select id from record group by all", "group by all"),
        ("select id, max(n) as n from record", "max, an aggregate"),
        ("select id, geomean(n) as n from record", "avg, an aggregate"),
        ("select id, row_number() over () as n from record", "row_number over a window"),
        ("select distinct id from record", "distinct"),
        ("select id from record order by id", "order by"),
        ("select id from record limit 1", "limit"),
        ("select id from record using sample 10%", "a sample"),
        ("select id from record tablesample 10%", "a sample"),
        ("select r.id from record r join record s on r.id = s.id", "a join"),
        ("select id from record, unnest(items)", "a join"),
        ("select id from (select * from record)", "a subquery"),
        ("select id from record where id in (select 1)", "a subquery"),
        ("select (select 1) as id from record", "a subquery"),
        ("with r as (select 1 as id) select id from record", "with"),
        ("select id from record union all select id from record", "union"),
        ("select 1 as id", "no `from record`"),
        ("select id from orders", "from orders"),
        ("select id from read_csv('/etc/passwd')", "table function"),
        ("select id from '/etc/passwd'", "from /etc/passwd"),
        ("select id from other.record", "from record"),
        ("select id from record qualify n > 1", "qualify"),
        ("select id from record where unnest(items).n > 1", "unnest outside of the select list"),
        ("select id, random() as n from record", "random, which gives another answer each time"),
        ("select id, cast(now() as varchar) as text from record", "now, which gives another answer"),
        ("select id, cast(current_date as varchar) as text from record", "current_date"),
        ("select id, cast(CURRENT_TIMESTAMP as varchar) as text from record", "current_timestamp"),
        ("select id, cast(today() as varchar) as text from record", "today, which"),
        ("select id, uuid()::varchar as text from record", "uuid, which"),
        ("select id, nextval('s') as n from record", "nextval, which"),
        ("select id, cast(ago(interval 1 day) as varchar) as text from record", "ago"),
        ("select id, ? as n from record", "a parameter"),
        ("select #1 as id from record", "a positional reference"),
        ("select id from record; select 1", "it has 2 statements, but must have one"),
        ("insert into record values (1)", "Only SELECT"),
        ("selec id from record", "syntax error"),
        ("select id, nonsense(n) as n from record", "nonsense"),
        ("select id, other as n from record", 'column "other"'),
        ("select id, n + 1 from record", "returns column '(n + 1)', which the table lacks"),
        ("select id, name as txt from record", "did you mean 'text'"),
        ("select id, id as id from record", "returns column id twice"),
        ("select name as text from record", "does not return id, which the table requires"),
        ("select id, name as n from record", "column n is string, but int32 in the table: cast it"),
        ("select id, n / 2 as n from record", "column n is double, but int32 in the table: cast it"),
        ('select id, "at" as text from record', "column text is timestamp[us, tz=UTC], but string in the table"),
        ("select id as lakecommit_place from record", "returns column 'lakecommit_place', which the table lacks"),
        ("select * replace (random() as n) from record", "random, which gives another answer each time"),
        ("select * replace ((select max(n) from record) as n) from record", "a subquery"),
        ("select * replace (lag(n) over () as n) from record", "over a window"),
        ("select columns(* replace (lakecommit_place as id)) from record", "lakecommit_place, the record's"),
        ("select id, columns(['lakecommit_place']) + 0 as n from record", "by computed names, or lakecommit_place"),
        ("select id, columns(['lake' || 'commit_place']) + 0 as n from record", "by computed names"),
        ("select id, vector_type(n) as text from record", "vector_type, an internal function of the engine"),
        ("select id, list_aggr([n], 'Reservoir_Quantile', 0.5) as n from record", "draws random values"),
        (
            "select id, list_aggregate([n], 'reservoir_' || 'quantile', 0.5) as n from record",
            "an aggregate without a literal name",
        ),
        ("select id, 1e400 as d from record", "a number too large for a double"),
        ("select id, " + " + ".join(["n"] * 300) + " as n from record", "more than 150 levels deep"),
        ("select id, " + " + ".join(["n"] * 900) + " as n from record", "more than 150 levels deep"),
        ("-- nothing", "it has 0 statements, but must have one"),
    ],
)
def test_what_is_not_of_one_record_each_or_does_not_fit_is_named(sql: str, message: str) -> None:
    with pytest.raises(TableError) as refused:
        check_schema(landing(sql), schema_of(TABLE))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"gone": "tests.unit.formats.transforms.test_transform.gone"}, "gone cannot be imported.*LC4031"),
        ({"upper": f"{__name__}.doubled"}, "SQL already has a function upper.*LC4033"),
        ({"bare": f"{__name__}.bare"}, "bare .* cannot be used.*LC4034"),
        (
            {"once": f"{__name__}.once"},
            "once .* cannot be used: .* bool, int, float, str, bytes, and lists and dicts.*LC4034",
        ),
        ({"table": f"{__name__}.TABLE"}, "table .* is not a function but a list.*LC4032"),
    ],
)
def test_a_function_that_cannot_be_used_is_named(functions: dict[str, str], message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_schema(landing("select id from record", functions=functions), schema_of(TABLE))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"transform": 7}, "transform.sql: 7 is not SQL"),
        ({"transform": "select 1"}, "transform.sql: needs `transform.record_schema`"),
        ({"record_schema": RECORD}, "transform.record_schema: needs `transform.sql`"),
        ({"functions": {"a": "b.c"}}, "transform.functions: needs `transform.sql`"),
        ({"transform": "s", "record_schema": [{"name": "a", "type": "lng"}]}, "record_schema: column a: 'lng'"),
        (
            {"transform": "s", "record_schema": [{"name": "a", "type": "long"}, {"name": "A", "type": "long"}]},
            "columns A, a differ only in case",
        ),
        (
            {"transform": "s", "record_schema": [{"name": "a", "type": "map<string, list<struct<b: int, B: int>>>"}]},
            "columns a.B, a.b differ only in case",
        ),
        (
            {
                "transform": "s",
                "record_schema": [
                    {
                        "name": "a",
                        "type": {"list": {"struct": [{"name": "x", "type": "int"}, {"name": "X", "type": "int"}]}},
                    }
                ],
            },
            "columns a.X, a.x differ only in case",
        ),
        ({"transform": {"s.u": "select 1"}, "record_schema": RECORD}, "'s.u' is not a table of the landing"),
        ({"transform": "s", "record_schema": RECORD, "functions": {"A": "b.c"}}, "'A' is not the name of a function"),
        ({"transform": "s", "record_schema": RECORD, "functions": {"a": "b"}}, "'b' is not a function"),
        (
            {"transform": "s", "record_schema": RECORD, "route": {"field": "f", "tables": {"a": "s.t", "b": "s.u"}}},
            "give a mapping of tables to SQL",
        ),
    ],
)
def test_wrong_fields_are_reported_without_an_engine(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        landing_of(name="a", topics="a", table="s.t", **fields)
    assert message in str(refused.value)


def test_every_type_comes_through_as_it_is() -> None:
    types = {
        "b": "boolean",
        "i": "int",
        "l": "long",
        "f": "float",
        "d": "double",
        "dec": "decimal(38, 10)",
        "day": "date",
        "t": "time",
        "ts": "timestamp",
        "tz": "timestamptz",
        "s": "string",
        "u": "uuid",
        "bin": "binary",
        "fix": "fixed[4]",
        "st": "struct<a: long, b: list<string>>",
        "li": "list<decimal(5, 2)>",
        "m": "map<string, struct<x: uuid>>",
    }
    columns = [{"name": "id", "type": "long", "required": True}, *({"name": n, "type": t} for n, t in types.items())]
    value = {
        "id": 1,
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 1.5,
        "d": 1e-300,
        "dec": 1234567890123456789012345678.1234567891,
        "day": "2026-01-02",
        "t": "01:02:03.000004",
        "ts": "2026-01-02T03:04:05.000006",
        "tz": "0001-01-01T00:00:00Z",
        "s": "žluťoučký \U0001f40d",
        "u": "12345678-1234-5678-1234-567812345678",
        "bin": "AAECAw==",
        "fix": "AAECAw==",
        "st": {"a": 1, "b": ["x", None]},
        "li": [1.25, None],
        "m": {"k": {"x": "12345678-1234-5678-1234-567812345678"}},
    }
    text = json.dumps(value).replace("1.2345678901234568e+27", "1234567890123456789012345678.1234567891")
    given = [text.encode(), b'{"id": 2}']
    encodings = {"bin": "base64", "fix": "base64"}
    made = transformed(
        "select * from record", given, columns, record_schema=columns, encodings=encodings, timestamps={}
    )
    plain = landing_of(name="a", topics="a", table="s.t", encodings=encodings)
    decoder = block_decoder(plain, {"s.t": schema_of(columns)})
    (expected,) = decoder.decode(given).tables.values()
    assert made.rejects == ()
    assert made.table.schema.equals(expected.table.schema)
    assert made.table.to_pylist() == expected.table.to_pylist()
    assert made.table.to_pylist()[0]["u"] == UUID(value["u"])


ITEMS = st.lists(
    st.fixed_dictionaries({"sku": st.sampled_from(["a", "7", None]), "n": st.sampled_from([0, 1, 5, None])})
)
RECORDS = st.fixed_dictionaries({"id": st.integers(0, 9), "items": st.one_of(st.none(), ITEMS), "n": st.integers(0, 3)})
QUERY = "select id, unnest(items).sku as text, 10 // unnest(items).n as n from record where n < 3"


@settings(max_examples=examples(90), deadline=None, derandomize=True)
@given(st.lists(RECORDS, max_size=30))
def test_a_block_is_as_its_records_one_by_one(records: list[dict[str, Any]]) -> None:
    made = transformed(QUERY, values(*records))
    expected: list[tuple[int, Any]] = []
    rejected, filtered = list[int](), list[int]()
    for i, r in enumerate(records):
        items = r["items"] or []
        if r["n"] >= 3 or not items:
            filtered.append(i)
        elif any(item["n"] == 0 for item in items):
            rejected.append(i)
        else:
            expected += [(i, (r["id"], it["sku"], None if it["n"] is None else 10 // it["n"])) for it in items]
    assert list(zip(made.records or (), rows(made, "id", "text", "n"), strict=True)) == expected
    assert ([r.index for r in made.rejects], made.filtered) == (rejected, filtered)


FALLIBLE = [
    "name::int",
    "10 // n",
    "n + 2147483645",
    "case when n = 2 then error('two') else n end",
    "doubled(n)::int",
    "try(10 // n)",
    "tags['a']::int",
    "case when name = 'x' then 0 else name::int + 1 end",
    "coalesce(n, name::int)",
    "unnest(items).n",
    "10 // unnest(items).n",
    "unnest(items).sku::int",
    "error(name)::int",
    "columns(['n']) // n",
]
CONDITIONS = ["true", "n > 1", "name::int > 0", "10 // n > 1", "regexp_matches(name, '^[0-9]+$')", "doubled(n) <> 4"]
MADE: list[Mapping[str, Any]] = [
    *TABLE,
    {"name": "price", "type": "decimal(5, 1)"},
    {"name": "pairs", "type": "list<struct<a: int, b: string>>"},
    {"name": "code", "type": "fixed[2]"},
    {"name": "m", "type": "map<string, int>"},
]
FALLIBLE_SQL = st.builds(
    "select {}, ({})::bigint * 100000000 as n, ({})::varchar as text, n * {} as price, {} from record where {}".format,
    st.sampled_from(["id", "nullif(id, 7) as id", "10 // id as id"]),
    st.sampled_from(FALLIBLE[:-1]),
    st.sampled_from(FALLIBLE),
    st.sampled_from([1, 9999]),
    st.sampled_from(
        ["[{'a': n * 1000000000::bigint, 'b': name}] as pairs", "name::blob as code", "map([name], [n]) as m"]
    ),
    st.sampled_from(CONDITIONS),
)
FALLIBLE_RECORDS = st.fixed_dictionaries(
    {
        "id": st.sampled_from([0, 1, 2, 7, 8]),
        "name": st.sampled_from(["5", "5", "77", "x", "é", None]),
        "n": st.sampled_from([5, 5, 6, 0, 2, 13, 100, None]),
        "items": st.sampled_from([None, [], [{"sku": "5", "n": 5}], [{"sku": "a", "n": 0}, {"sku": "1", "n": None}]]),
        "tags": st.sampled_from([None, {}, {"a": 1}, {"a": 2**40}]),
    }
)


@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(FALLIBLE_SQL, st.lists(FALLIBLE_RECORDS, max_size=25))
def test_rows_reasons_and_positions_are_those_of_each_record_alone(sql: str, records: list[dict[str, Any]]) -> None:
    of = landing(sql, functions={"doubled": f"{__name__}.doubled"})
    decoder = block_decoder(of, {"s.t": schema_of(MADE)})
    block = decoder.decode(values(*records))
    (made,) = block.tables.values()
    expected: list[Any] = []
    for i, value in enumerate(values(*records)):
        alone = decoder.decode([value])
        expected += [(i, row) for row in alone.tables["s.t"].table.to_pylist()]
        expected += [(i, r.kind, r.column, r.reason) for r in alone.rejects]
        expected += [(i, "filtered") for _ in alone.filtered]
    decoder.close()
    found: list[Any] = list(zip(made.records or (), made.table.to_pylist(), strict=True))
    found += [(r.index, r.kind, r.column, r.reason) for r in block.rejects]
    found += [(i, "filtered") for i in block.filtered]
    assert sorted(found, key=lambda each: each[0]) == expected


@pytest.mark.heavy(but=("select id, name::int as n*", "select id, columns*"))
@pytest.mark.parametrize(
    ("sql", "bad", "queries"),
    [
        ("select id, name::int as n", {"name": "x"}, 3 + 50),
        ("select id, 10 // (n - 3) as n", {"n": 3}, 3 + 50),
        ("select id, case when n = 3 then error(name) else name end as text where name <> 'y'", {"n": 3}, 3 + 50),
        ('select * exclude (amount, "at", items, tags, name) replace (n + name::int as n)', {"name": "x"}, 3 + 50),
        ("select id, columns(['n']) // (n - 3)", {"n": 3}, 3 + 50),
        ("select id, n * 1000000000::bigint as n", {"n": 3}, 1),
        ("select id, name as text where name::int > 0", {"name": "x"}, 3 + 50),
    ],
)
def test_records_that_fail_cost_a_query_each_and_values_that_do_not_fit_none(
    sql: str, bad: Mapping[str, Any], queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []

    def counted(connection: Any, query: str, table: pa.Table) -> pa.Table:
        requests.append(query)
        return run(connection, query, table)

    run = transform.run
    good = {"name": "1", "n": 1, "items": [{"sku": "a", "n": 1}]}
    selected, _, condition = sql.partition(" where ")
    of = landing(f"{selected} from record where {condition or 'true'}")
    decoder = block_decoder(of, {"s.t": schema_of(TABLE)})
    monkeypatch.setattr(transform, "run", counted)
    block = decoder.decode(values(*({"id": i, **good, **(bad if i % 40 == 0 else {})} for i in range(2000))))
    decoder.close()
    assert [r.index for r in block.rejects] == list(range(0, 2000, 40))
    assert len(requests) == queries


def test_a_column_that_the_key_fills_may_be_named_as_one_of_the_record() -> None:
    record = [{"name": "id", "type": "long"}, {"name": "at", "type": "long"}]
    table = [{"name": "id", "type": "long"}, {"name": "at", "type": "timestamptz"}, {"name": "n", "type": "long"}]
    of = landing(
        'select "at" as n from record', record_schema=record, key={"column": "at"}, timestamps={"at": "iso8601"}
    )
    with pytest.raises(TableError, match="LC4004"):
        check_schema(of, schema_of(table))
    check_schema(replace(of, timestamps={}), schema_of(table))
    with pytest.raises(TableError, match="LC4043"):
        check_schema(changed_landing(of, transform='select id, "at" from record', timestamps={}), schema_of(table))


@pytest.mark.heavy
def test_a_record_of_which_sql_makes_more_than_the_memory_is_a_reject_of_its_own() -> None:
    records = values(*({"id": i, "name": "x" * 1000, "n": 2_000_000 if i == 2 else 1} for i in range(5)))
    made = transformed("select id, repeat(name, n) as text from record", records)
    assert rows(made, "id", "text") == [(i, "x" * 1000) for i in (0, 1, 3, 4)]
    assert [(r.index, r.kind) for r in made.rejects] == [(2, transform.FAILED)]


def test_a_field_of_the_record_may_have_a_name_that_no_column_may_have() -> None:
    record = [{"name": "id", "type": "long"}, {"name": "_pos", "type": "int"}]
    stated = {"record_schema": record, "timestamps": {}}
    made = transformed("SELECT id, _pos AS n FROM record", [b'{"id": 1, "_pos": 7}'], **stated)
    assert made.table.column("n").to_pylist() == [7]
