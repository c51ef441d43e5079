# SPDX-License-Identifier: Apache-2.0
"""Guards added to a query, so that it is exact.

DuckDB makes null or infinity of a division by zero, where the record must be refused; within ``try(…)`` it is null.
``*`` leaves out the record's place. Numbers keep their written type: ``1e2`` is a ``double``, which DuckDB's text of a
tree forgets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import duckdb

POSITION = "lakecommit_place"
"""Column of ``record`` with the place of a record in its block."""
GUARD = "lakecommit_divisor"
RAISES = "error"
"""A function by which SQL refuses a record. DuckDB calls it volatile, but it always does the same."""
_DIVIDING = frozenset({"/", "//", "%", "mod", "divide", "fdiv", "fmod"})


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
