# SPDX-License-Identifier: Apache-2.0
"""Check the SQL of a transform, and build the queries that are run for it.

:func:`row_wise` parses ``select … from record where …`` by DuckDB's own parser. It allows what makes no row, a row or
several of each record by itself: expressions of known, stable functions, and ``unnest`` in the select list. The query
gets the record's place in front, and guards (:mod:`~airflow_provider_lakecommit.formats.transforms.guarded`). The place
differs when a record is read again, so ``*`` leaves it out, and a record as one value is refused.

Everything else is a :class:`~airflow_provider_lakecommit.exceptions.TableError` that names the part: joins, aggregates,
windows, ``distinct``, ``order by``, ``limit``, subqueries, ``random()``, ``now()``, too deep nesting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import duckdb

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.transforms.guarded import POSITION, RAISES, column_ref, guard, nodes, suspects

RECORD = "record"
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
"""Functions that look like columns."""
_OF_NOW = frozenset({"current_localtime", "current_localtimestamp"})
"""Functions of the present time that DuckDB lists as stable; so is ``age`` with one argument."""
_OF_THE_ENGINE = frozenset({"current_setting", "getvariable", "vector_type", "version"})
"""Functions whose result depends on the engine, not the record."""
_OF_A_LIST = frozenset({"aggregate", "array_aggr", "array_aggregate", "list_aggr", "list_aggregate"})
"""Functions that take the name of an aggregate for their list."""
_DRAWS = "reservoir_quantile"
"""An aggregate that draws random values."""
EXPLODES = "unnest"
MOST_LEVELS = 150
"""Deepest nesting of expressions: Python's own limit, less what callers may have used."""


def row_wise(
    connection: duckdb.DuckDBPyConnection, sql: str, columns: Collection[str], functions: Collection[str] = ()
) -> tuple[str, str]:
    """Return two queries: one for a transform's rows behind the place of their record, one for the places of suspects.

    :param columns: the columns of ``record``
    :param functions: further ones that the connection has
    :raises TableError: naming the part that may not be there
    """
    if POSITION in {name.lower() for name in columns}:
        raise TableError("LC4035", f"transform.record_schema: the name {POSITION} is reserved")
    tree = _tree(connection, sql)
    node = tree["statements"][0]["node"]
    for part in _wrong_parts(node):
        raise TableError("LC4036", f"transform: {part}: a transform reads one record, `select … from record where …`")
    found = _Walk(connection, columns, functions, node["from_table"]["alias"])
    for expression in node["select_list"]:
        found.check(expression, explodes=True)
    found.check(node["where_clause"])
    guard([node["select_list"], node["where_clause"]], {"", RECORD, node["from_table"]["alias"].lower()})
    rows = _text(connection, tree, {**node, "select_list": [column_ref(POSITION), *node["select_list"]]})
    suspects(node)
    return rows, _text(connection, tree, node)


def _text(connection: duckdb.DuckDBPyConnection, tree: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    changed = {**tree, "statements": [{**tree["statements"][0], "node": node}]}
    return str(connection.execute("select json_deserialize_sql(?::json)", [json.dumps(changed)]).fetchall()[0][0])


def _tree(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    """Parse one statement, no deeper than :data:`MOST_LEVELS`."""
    try:
        tree = _parsed(connection, sql)
        levels = max(level for _, level in nodes(tree))
    except RecursionError:
        levels = MOST_LEVELS + 1
    if levels > MOST_LEVELS:
        raise TableError(
            "LC4037",
            f"transform: expressions are more than {MOST_LEVELS} levels deep: `a || b || …`, `a + b + …` and "
            "`else case` add a level each; use `concat(a, b, …)`, `list_sum([a, b, …])` or further `when`",
        )
    if tree["error"]:
        raise TableError("LC4038", f"transform: {tree['error_message']}")
    if len(tree["statements"]) != 1:
        raise TableError("LC4039", f"transform: it has {len(tree['statements'])} statements, but must have one")
    return tree


def _parsed(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(connection.execute("select json_serialize_sql(?)", [sql]).fetchall()[0][0])
    return tree


def _wrong_parts(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the forbidden parts of a statement, besides its expressions."""
    if node["type"] != "SELECT_NODE":
        yield f"it is not a plain select ({str(node.get('setop_type', node['type'])).lower().replace('_', ' ')})"
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
    """Checks expressions, with the connection's functions."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, columns: Collection[str], functions: Collection[str], alias: str
    ) -> None:
        self._connection = connection
        self._record = {RECORD, alias.lower()}
        self._columns = {name.lower() for name in columns}
        self._own = {name.lower() for name in functions}
        self._macros: dict[str, str | None] = {}

    @cached_property
    def _known(self) -> dict[str, list[tuple[str, str, str | None]]]:
        """Return DuckDB's functions by name: kind, stability and definition. One query costs as much as for all
        names.
        """
        found: dict[str, list[tuple[str, str, str | None]]] = {}
        for name, *rest in self._connection.execute(
            "select distinct function_name, function_type, stability, macro_definition from duckdb_functions()"
        ).fetchall():
            found.setdefault(name, []).append((rest[0], rest[1], rest[2]))
        return found

    def check(self, expression: Any, *, explodes: bool = False) -> None:
        """:param explodes: True if it may contain ``unnest``"""
        for node, _ in nodes(expression):
            kind = node.get("class")
            if kind is not None and (what := self._wrong(kind, node, explodes)) is not None:
                raise TableError(
                    "LC4040", f"transform: {what}: a transform reads one record, and must always give the same result"
                )

    def _wrong(self, kind: str, expression: Mapping[str, Any], explodes: bool) -> str | None:
        if kind == "COLUMN_REF":
            return self._wrong_name([name.lower() for name in expression["column_names"]])
        if kind == "STAR":
            return _wrong_star(expression["expr"])
        if kind == "CONSTANT":
            number = expression["value"].get("value")
            infinite = isinstance(number, float) and not math.isfinite(number)
            return "a number too large for a double" if infinite else None
        if kind == "FUNCTION":
            return self._wrong_function(expression, explodes)
        if kind == "WINDOW":
            return f"{expression.get('function_name') or expression['type'].lower()} over a window"
        return None if kind in _PLAIN else f"a {kind.lower().replace('_', ' ')}"

    def _wrong_name(self, names: list[str]) -> str | None:
        if POSITION in names:
            return f"{POSITION}, the record's internal position"
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
            return f"{name}, an internal function of the engine"
        if name in _OF_NOW or (name == "age" and len(expression["children"]) == 1):
            return f"{name}, which gives another answer each time"
        if name in _OF_A_LIST and (what := _wrong_aggregate(expression["children"])):
            return f"{name} of {what}"
        return self._wrong_by_list(name)

    def _wrong_by_list(self, name: str) -> str | None:
        known = self._known.get(name, [])
        # In an expression a name that is also that of a table function is not of this one.
        scalar = [each for each in known if each[0] in ("scalar", "macro")]
        for function_type, stability, definition in scalar or known:
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
        if name in self._macros or definition is None:
            return
        self._macros[name] = definition
        tree = _parsed(self._connection, f"select {definition}")
        if tree["error"]:
            raise TableError("LC4041", f"transform: it is unknown if {name} reads one record only")
        try:
            self.check(tree["statements"][0]["node"]["select_list"])
        except TableError as e:
            raise TableError("LC4042", f"{e}; {name} uses it") from e


def _wrong_star(chosen: Mapping[str, Any] | None) -> str | None:
    """Return what is wrong with columns chosen from ``*``: by a pattern, or by names, the place could be among them."""
    if chosen is None:
        return None
    if chosen["class"] == "CONSTANT":
        return "columns by a pattern: use `columns(c -> c like …)`"
    names = chosen.get("children", [chosen])
    if names and names[0]["class"] == "STAR":
        return None  # filtered by a lambda
    if any(name["class"] != "CONSTANT" or str(name["value"].get("value")).lower() == POSITION for name in names):
        return f"columns by computed names, or {POSITION}"
    return None


def _wrong_aggregate(arguments: list[dict[str, Any]]) -> str | None:
    if len(arguments) < 2 or arguments[1]["class"] != "CONSTANT":
        return "an aggregate without a literal name"
    named = arguments[1]["value"].get("value")
    return f"{named}, which draws random values" if str(named).lower() == _DRAWS else None
