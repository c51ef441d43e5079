# SPDX-License-Identifier: Apache-2.0
"""Guards added to a query, so that it is exact.

DuckDB makes null or infinity of a division by zero, where the record must be refused; within ``try(…)`` it is null.
``*`` leaves out the record's place. Numbers keep their written type: ``1e2`` is a ``double``, which DuckDB's text of a
tree forgets.

:func:`suspects` turns a transform's guarded tree into a query for the places of records in which it probably fails, by
``try(…)``. It may name too many or too few, and cannot run with ``unnest``: the caller tries each suspect alone, and
then the rest. ``try`` takes no volatile function such as ``error``, so a failing cast replaces it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import duckdb

POSITION = "lakecommit_place"
"""Column of ``record`` with the place of a record in its block."""
GUARD = "lakecommit_divisor"
RAISES = "error"
"""A function by which SQL refuses a record. DuckDB calls it volatile, but it always does the same."""
Node = dict[str, Any]
_DIVIDING = frozenset({"/", "//", "%", "mod", "divide", "fdiv", "fmod"})


def nodes(tree: Any) -> Iterator[tuple[Node, int]]:
    """Yield each node before its children, with its depth. Trees may be deep, hence no recursion."""
    pending: list[tuple[Any, int]] = [(tree, 0)]
    while pending:
        node, level = pending.pop()
        if isinstance(node, list):
            pending += ((each, level) for each in reversed(node))
        elif isinstance(node, dict):
            yield node, level
            level += "class" in node
            pending += ((each, level) for each in reversed(node.values()))


def guard_divisors(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros for the queries of :func:`guard`."""
    connection.execute(f"create macro {GUARD}(d) as case when d = 0 then error('division by zero') else d end")


def guard(tree: Any, records: Collection[str]) -> None:
    """Guard divisors, exclude the place from ``*``, and keep types of numbers.

    :param records: names of ``record``, to distinguish its ``*`` from a struct's
    """
    pending = [(tree, False)]
    while pending:
        node, tried = pending.pop()
        if isinstance(node, list):
            pending += ((each, tried) for each in node)
        elif isinstance(node, dict):
            # Within `try(…)`, which takes no function that raises by itself?
            tried = tried or node.get("type") == "OPERATOR_TRY"
            pending += ((each, tried) for each in node.values())
            kind = node.get("class")
            if kind == "STAR" and node["relation_name"].lower() in records:
                node["exclude_list"] = [*node["exclude_list"], POSITION]
            elif kind == "FUNCTION" and node["function_name"].lower() in _DIVIDING and len(node["children"]) == 2:
                node["children"] = [node["children"][0], _divisor(node, tried)]
            elif kind == "CONSTANT":
                _keep_type(node)


def _divisor(division: Mapping[str, Any], tried: bool) -> dict[str, Any]:
    divisor: dict[str, Any] = division["children"][1]
    if divisor["class"] == "CONSTANT" and _is_a_number_but_zero(divisor["value"].get("value")):
        return divisor
    call = {**division, "schema": "", "catalog": "", "is_operator": False, "alias": ""}
    if tried:
        return {**call, "function_name": "nullif", "children": [divisor, _ZERO]}
    return {**call, "function_name": GUARD, "children": [divisor]}


def _is_a_number_but_zero(value: Any) -> bool:
    """Return True for such a number, also as a text, which the engine converts."""
    try:
        return float(value) != 0
    except (TypeError, ValueError):
        return False


def _keep_type(node: dict[str, Any]) -> None:
    """Add a cast to doubles and whole decimals, which the engine's text of a tree would change."""
    value, kind = node["value"], node["value"]["type"]
    if kind["id"] == "DOUBLE":
        child = constant("VARCHAR", repr(value["value"]))
    elif kind["id"] == "DECIMAL" and not kind["type_info"]["scale"]:
        child = dict(node, alias="")
    else:
        return
    cast = {"class": "CAST", "type": "OPERATOR_CAST", "child": child, "cast_type": kind, "try_cast": False}
    alias = node["alias"]
    node.clear()
    node.update(cast, alias=alias)


def constant(kind: str, value: Any) -> dict[str, Any]:
    stated = {"type": {"id": kind, "type_info": None}, "is_null": False, "value": value}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "value": stated}


_ZERO = constant("INTEGER", 0)


_FAILS, _DIVISOR, _FAILED = "lakecommit_fails", "lakecommit_tried_divisor", "lakecommit_failed"
"""Macros: fails in every record; fails for a divisor of zero; checks whether an expression fails."""


def add_suspecting(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros for the queries of :func:`suspects`."""
    # A cast of a column: a cast of a constant would be evaluated, and fail, before there is a record.
    connection.execute(f"create macro {_FAILS}(p) as case when cast(concat('!', p) as int) is null then null end")
    connection.execute(f"create macro {_DIVISOR}(d, p) as case when d = 0 then {_FAILS}(p) else d end")
    connection.execute(f"create macro {_FAILED}(wanted, made) as try(case when wanted then [made] else [] end) is null")


def suspects(node: Node) -> None:
    """Turn a transform's guarded node without the position into one that returns the positions of suspects."""
    _try([node["select_list"], node["where_clause"]])
    row = _call("row", column_ref(POSITION), *(part for each in node["select_list"] for part in _fallible(each)))
    condition = node["where_clause"] or constant("BOOLEAN", True)
    node["select_list"] = [column_ref(POSITION)]
    node["where_clause"] = _call(_FAILED, condition, row)


def _try(tree: Any) -> None:
    """Replace what ``try`` does not allow."""
    for node, _ in nodes(tree):
        name = str(node.get("function_name")).lower()
        if name == RAISES:
            node.update(_call(_FAILS, column_ref(POSITION)))
        elif name == GUARD:
            node.update(_call(_DIVISOR, *node["children"], column_ref(POSITION)))


def _fallible(expression: Node) -> Iterator[Node]:
    """Yield an expression of the select list; of ``*`` only replacements, since plain columns cannot fail."""
    if expression["class"] == "STAR" and not expression["columns"]:
        yield from (replaced["value"] for replaced in expression["replace_list"])
    else:
        yield expression


def column_ref(name: str) -> Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}


def _call(name: str, *arguments: Node) -> Node:
    return {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "function_name": name,
        "schema": "",
        "children": list(arguments),
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": False,
        "export_state": False,
        "catalog": "",
    }
