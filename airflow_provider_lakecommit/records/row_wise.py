# SPDX-License-Identifier: Apache-2.0
"""SQL that is of one record each: what a transform may say, and the query that is run for it.

Contract: :func:`row_wise` takes ``select … from record where …`` apart by DuckDB's own parser, and lets pass only what
makes of each record, by itself, no row, a row or several: expressions of known functions that give the same answer
whenever they are asked, and ``unnest`` in the select list. What it gives back is that query with the record's place in
front, and with each divisor looked at: DuckDB makes null, or infinity, of a division by zero, where a record is to be
refused; within ``try(…)`` it is the null that is asked for there. The place itself is not to be had: it is another one
when the record is read again, so ``*`` leaves it out, and a record as one value, which would hold it, is refused.

Failure story: everything else is a :class:`~airflow_provider_lakecommit.exceptions.TableError` that names the part: a
syntax error, a join, an aggregate, a window, ``distinct``, ``order by``, ``limit``, a subquery, ``random()`` or
``now()``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import duckdb

from airflow_provider_lakecommit.exceptions import TableError

__all__ = ["GUARD", "PLACE", "guard_divisors", "row_wise"]

PLACE = "lakecommit_place"
"""Column of ``record`` with the place of a record in its block."""
RECORD = "record"
"""The one table that a query reads."""
GUARD = "lakecommit_divisor"
"""Macro around a divisor."""
_DIVIDING = frozenset({"/", "//", "%", "mod", "divide", "fdiv", "fmod"})
_PLAIN = frozenset(
    {
        "COLUMN_REF",
        "CONSTANT",
        "FUNCTION",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "CASE",
        "CAST",
        "BETWEEN",
        "COLLATE",
    }
    | {"STAR", "LAMBDA", "LAMBDA_REF"}
)
_MODIFIERS = {"DISTINCT_MODIFIER": "distinct", "ORDER_MODIFIER": "order by"}
_CLAUSES = {
    "group_expressions": "group by",
    "group_sets": "group by",
    "having": "having",
    "qualify": "qualify",
    "sample": "a sample",
}
_WITHOUT_PARENTHESES = frozenset(
    {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
    | {"current_user", "session_user", "user", "current_role", "current_catalog", "current_schema", "current_database"}
)
"""What is a function though it looks like a column."""
_OF_NOW = frozenset({"current_localtime", "current_localtimestamp"})
"""Functions of this moment that DuckDB's list says to give the same answer always; ``age`` is one of one argument."""
_OF_THE_ENGINE = frozenset({"current_setting", "getvariable", "version"})
"""Functions whose answer is the engine's, not the record's."""
RAISES = "error"
"""A function by which SQL refuses a record; it is volatile for DuckDB, and always does the same."""
EXPLODES = "unnest"


def guard_divisors(connection: duckdb.DuckDBPyConnection) -> None:
    """Make what the queries of :func:`row_wise` need."""
    connection.execute(f"create macro {GUARD}(d) as case when d = 0 then error('division by zero') else d end")


def row_wise(
    connection: duckdb.DuckDBPyConnection, sql: str, columns: Collection[str], functions: Collection[str] = ()
) -> str:
    """The query that is run for a transform.

    :param columns: of ``record``
    :param functions: further ones that the connection has
    :raises TableError: naming the part that may not be there
    """
    if PLACE in {name.lower() for name in columns}:
        raise TableError(f"record_schema: the name {PLACE} is taken")
    told = json.loads(connection.execute("select json_serialize_sql(?)", [sql]).fetchall()[0][0])
    if told["error"]:
        raise TableError(f"transform: {told['error_message']}")
    if len(told["statements"]) != 1:
        raise TableError("transform: it is more than one statement")
    node = told["statements"][0]["node"]
    for part in _wrong_parts(node):
        raise TableError(f"transform: {part}: a transform is of one record each, `select … from record where …`")
    found = _Walk(connection, columns, functions, node["from_table"]["alias"])
    for expression in node["select_list"]:
        found.check(expression, explodes=True)
    if node["where_clause"] is not None:
        found.check(node["where_clause"])
    place = {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [PLACE]}
    node["select_list"] = [place, *_guarded(node["select_list"])]
    node["where_clause"] = _guarded(node["where_clause"])
    return str(connection.execute("select json_deserialize_sql(?::json)", [json.dumps(told)]).fetchall()[0][0])


def _wrong_parts(node: Mapping[str, Any]) -> Iterator[str]:
    """What of a statement, beside its expressions, may not be there."""
    if node["type"] != "SELECT_NODE":
        yield f"it is no plain select ({str(node.get('setop_type', node['type'])).lower().replace('_', ' ')})"
        return
    yield from (_MODIFIERS.get(m["type"], "limit") for m in node["modifiers"])
    if node["cte_map"]["map"]:
        yield "with"
    yield from (what for key, what in _CLAUSES.items() if node[key])
    if node["aggregate_handling"] != "STANDARD_HANDLING":
        yield "group by all"
    source = node["from_table"]
    if source["type"] != "BASE_TABLE" or source["table_name"].lower() != RECORD or source["schema_name"]:
        named = {"JOIN": "a join", "SUBQUERY": "a subquery", "EMPTY": "no `from record`"}
        yield (
            f"from {source.get('table_name')}"
            if source["type"] == "BASE_TABLE"
            else named.get(source["type"], source["type"].lower().replace("_", " "))
        )
    elif source["sample"] is not None or source["at_clause"] is not None:
        yield "a sample"
    elif source["column_name_alias"]:
        yield "new names for the columns of record"


class _Walk:
    """Looks at expressions, with what the connection knows of functions."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Collection[str],
        functions: Collection[str],
        alias: str,
    ) -> None:
        self._connection = connection
        self._record = {RECORD, alias.lower()}
        self._columns = {name.lower() for name in columns}
        self._own = {name.lower() for name in functions}
        self._macros: dict[str, str | None] = {}

    def check(self, expression: Any, *, explodes: bool = False) -> None:
        """:param explodes: may it have ``unnest``?"""
        if isinstance(expression, list):
            for each in expression:
                self.check(each, explodes=explodes)
        if not isinstance(expression, dict):
            return
        kind = expression.get("class")
        if kind is not None and (what := self._wrong(kind, expression, explodes)) is not None:
            raise TableError(f"transform: {what}: a transform is of one record each, and gives the same at any time")
        for key, each in expression.items():
            if key != "value":
                self.check(each, explodes=explodes)

    def _wrong(self, kind: str, expression: Mapping[str, Any], explodes: bool) -> str | None:
        if kind == "COLUMN_REF":
            return self._wrong_name([name.lower() for name in expression["column_names"]])
        if kind == "STAR" and isinstance(pattern := expression["expr"], dict) and pattern["class"] == "CONSTANT":
            return "columns of a pattern, which `columns(c -> c like …)` says"
        if kind == "FUNCTION":
            return self._wrong_function(expression, explodes)
        if kind == "WINDOW":
            return f"{expression.get('function_name') or expression['type'].lower()} over a window"
        return None if kind in _PLAIN else f"a {kind.lower().replace('_', ' ')}"

    def _wrong_name(self, names: list[str]) -> str | None:
        """What is wrong with what is read like a column."""
        if PLACE in names:
            return f"{PLACE}, which is where the record happens to be"
        (first, *more) = names
        if more or first in self._columns:
            return None
        if first in self._record:
            return f"{first} as one value: name its columns"
        return first if first in _WITHOUT_PARENTHESES else None

    def _wrong_function(self, expression: Mapping[str, Any], explodes: bool) -> str | None:
        name = str(expression["function_name"]).lower()
        if name == EXPLODES:
            return None if explodes else f"{EXPLODES} outside of the select list"
        if expression["filter"] is not None or expression["distinct"] or expression["order_bys"]["orders"]:
            return f"{name}, an aggregate"
        if name in self._own or name == RAISES:
            return None
        if name in _OF_THE_ENGINE:
            return f"{name}, which is of the engine"
        if name in _OF_NOW or (name == "age" and len(expression["children"]) == 1):
            return f"{name}, which gives another answer each time"
        return self._wrong_by_list(name)

    def _wrong_by_list(self, name: str) -> str | None:
        """What DuckDB's own list of functions says."""
        known = self._connection.execute(
            "select distinct function_type, stability, macro_definition from duckdb_functions() "
            "where function_name = ?",
            [name],
        ).fetchall()
        for function_type, stability, definition in known:
            if function_type == "macro":
                self._check_macro(name, definition)
            elif function_type == "aggregate":
                return f"{name}, an aggregate"
            elif function_type != "scalar":
                return f"{name}, a {function_type} function"
            elif stability != "CONSISTENT":
                return f"{name}, which gives another answer each time"
        return None

    def _check_macro(self, name: str, definition: str | None) -> None:
        """What a macro is made of, once for each."""
        if name in self._macros or definition is None:
            return
        self._macros[name] = definition
        told = json.loads(
            self._connection.execute("select json_serialize_sql(?)", [f"select {definition}"]).fetchall()[0][0]
        )
        if told["error"]:
            raise TableError(f"transform: {name} is not known to be of one record each")
        try:
            self.check(told["statements"][0]["node"]["select_list"])
        except TableError as e:
            raise TableError(f"{e}; {name} is made of it") from e


def _guarded(expression: Any, *, tried: bool = False) -> Any:
    """The expression with its divisors looked at, and with the place left out of ``*``.

    :param tried: is it within ``try(…)``, which takes no function that raises by itself?
    """
    if isinstance(expression, list):
        return [_guarded(each, tried=tried) for each in expression]
    if not isinstance(expression, dict):
        return expression
    tried = tried or expression.get("type") == "OPERATOR_TRY"
    made = {key: _guarded(each, tried=tried) for key, each in expression.items()}
    if made.get("class") == "STAR":
        made["exclude_list"] = [*made["exclude_list"], PLACE]
    if made.get("class") == "FUNCTION" and made["function_name"].lower() in _DIVIDING and len(made["children"]) == 2:
        made["children"] = [made["children"][0], _divisor(made, tried)]
    return made


def _divisor(division: Mapping[str, Any], tried: bool) -> dict[str, Any]:
    divisor = division["children"][1]
    call = {**division, "function_name": GUARD, "children": [divisor], "is_operator": False, "alias": ""}
    if not tried:
        return call
    return {**call, "function_name": "nullif", "children": [divisor, _ZERO]}


_ZERO = {
    "class": "CONSTANT",
    "type": "VALUE_CONSTANT",
    "alias": "",
    "value": {"type": {"id": "INTEGER", "type_info": None}, "is_null": False, "value": 0},
}
