# SPDX-License-Identifier: Apache-2.0
"""Find the records of a block in which SQL fails, by one query for all of them.

:func:`suspects` turns a transform's guarded tree into a query for the places of records in which it probably fails, by
``try(…)``. It may name too many or too few, and cannot run with ``unnest``: the caller tries each suspect alone, and
then the rest. ``try`` takes no volatile function such as ``error``, so a failing cast replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from airflow_provider_lakecommit.formats.transforms.guarded import GUARD, POSITION, RAISES, constant

Node = dict[str, Any]
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
    row = _call("row", _name(POSITION), *(part for each in node["select_list"] for part in _fallible(each)))
    condition = node["where_clause"] or constant("BOOLEAN", True)
    node["select_list"] = [_name(POSITION)]
    node["where_clause"] = _call(_FAILED, condition, row)


def _try(tree: Any) -> None:
    """Replace what ``try`` does not allow."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            pending += node.values()
            name = str(node.get("function_name")).lower()
            if name == RAISES:
                node.update(_call(_FAILS, _name(POSITION)))
            elif name == GUARD:
                node.update(_call(_DIVISOR, *node["children"], _name(POSITION)))


def _fallible(expression: Node) -> Iterator[Node]:
    """Yield an expression of the select list; of ``*`` only replacements, since plain columns cannot fail."""
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
