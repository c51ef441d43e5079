# SPDX-License-Identifier: Apache-2.0
"""In which records of a block SQL fails, told by one query for all of them.

Contract: :func:`suspects` makes of the guarded tree of a transform a query for the places of the records in which the
SQL probably fails: what it selects of a record is made within ``try(…)``, where the SQL's own condition holds. It may
name too many or too few, and may be one that cannot be run, as where ``unnest`` has options: who asks it tries each of
them alone, and then the rest.

``try`` takes no function that is volatile for the engine, as ``error`` is: a cast that fails stands for it. ``unnest``
is an element of its list there, for each place of the longest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from airflow_provider_lakecommit.records.guarded import EXPLODES, GUARD, PLACE, RAISES, constant

__all__ = ["add_suspecting", "suspects"]

Node = dict[str, Any]
_FAILS, _DIVISOR, _FAILED = "lakecommit_fails", "lakecommit_tried_divisor", "lakecommit_failed"
"""Macros: what fails in every record; what fails for a divisor of zero; and whether something fails."""
_NTH = "lakecommit_nth"
"""A place in exploded lists."""


def add_suspecting(connection: duckdb.DuckDBPyConnection) -> None:
    """Make what the queries of :func:`suspects` need."""
    # A cast of a column: one of a constant would be made, and fail, before there is a record.
    connection.execute(f"create macro {_FAILS}(p) as case when cast(concat('!', p) as int) is null then null end")
    connection.execute(f"create macro {_DIVISOR}(d, p) as case when d = 0 then {_FAILS}(p) else d end")
    connection.execute(f"create macro {_FAILED}(wanted, made) as try(case when wanted then [made] else [] end) is null")


def suspects(node: Node) -> None:
    """Make the node of a transform, guarded and without the place, one that gives the places of suspects."""
    lists = _tried([node["select_list"], node["where_clause"]])
    row = _call("row", _name(PLACE), *(part for each in node["select_list"] for part in _fallible(each)))
    if lists:
        longest = _call("greatest", *(_call("len", each) for each in lists))
        each = {"class": "LAMBDA", "type": "LAMBDA", "alias": "", "lhs": _name(_NTH), "expr": row}
        row = _call("list_transform", _call("generate_series", constant("INTEGER", 1), longest), each)
    wanted = node["where_clause"] or constant("BOOLEAN", True)
    node["select_list"] = [_name(PLACE)]
    node["where_clause"] = _call(_FAILED, wanted, row)


def _tried(tree: Any) -> list[Node]:
    """Put what may stand within ``try`` for what may not, and give the lists that are exploded."""
    lists, pending = list[Node](), [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            name, given = str(node.get("function_name")).lower(), node.get("children", [])
            if name == RAISES:
                node.update(_call(_FAILS, _name(PLACE)))
            elif name == GUARD:
                node.update(_call(_DIVISOR, *given, _name(PLACE)))
            elif name == EXPLODES and len(given) == 1:
                lists += given
                node.update(_call("list_extract", *given, _name(_NTH)))
    return lists


def _fallible(expression: Node) -> Iterator[Node]:
    """An expression of the select list; of ``*`` what replaces columns, for these alone cannot fail."""
    if expression["class"] == "STAR" and not expression["columns"]:
        yield from (replaced["value"] for replaced in expression["replace_list"])
    else:
        yield expression


def _name(name: str) -> Node:
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
