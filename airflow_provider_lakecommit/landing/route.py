# SPDX-License-Identifier: Apache-2.0
"""The section `route` of a landing: its parsing and its checks.

Contract: pure; all mistakes are reported together. The landing's `table` must be one of the route's tables: the ledgers
of the others begin at the end of its ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecommit.core import BY_FIELD, BY_SCHEMA, DEAD_LETTER, FAIL, SCHEMA_NAMES, Route
from airflow_provider_lakecommit.landing.names import meant
from airflow_provider_lakecommit.landing.table import wrong_with_table

ROUTE_KEYS = ("field", "by", "tables", "other", "missing", "create")
TABLE_NAME = re.compile(r"[^.\s]+(\.[^.\s]+)+")
_MISSING = (FAIL, DEAD_LETTER)


def route_of(section: Mapping[str, Any] | None) -> Route | None:
    return None if section is None else Route(**section)


def routed_tables(table: str, section: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the tables that take rows, the leading one first."""
    route = route_of(section)
    return tuple(dict.fromkeys((table, *(route.all_tables if route else ()))))


def check_route(v: Any) -> str | None:
    """Return what is wrong with the section by itself, or ``None``."""
    if v is None:
        return None
    if not isinstance(v, Mapping):
        return f"{v!r} is not a mapping of {', '.join(ROUTE_KEYS)} [LC1132]"
    return "; ".join(_wrong(v)) or None


def wrong_with_route(values: Mapping[str, Any], added: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a valid section together with the other fields of its landing.

    :param added: further columns of each table that is made, with their types
    """
    section = values.get("route")
    if not isinstance(section, Mapping) or check_route(section) is not None:
        return
    route = Route(**section)
    table, dead = values.get("table"), values.get("dead_letter_table")
    if table not in route.all_tables:
        yield (
            f"route: `table` must be one of its tables ({', '.join(route.all_tables)}): "
            "it has the leading ledger [LC1133]"
        )
    csv = values.get("csv")
    if isinstance(csv, Mapping) and csv.get("rows") == "many":
        yield (
            "route: with `format.csv.rows: many` the rows of one record may name several tables: use one table [LC1134]"
        )
    if route.by_schema and (values.get("format", "json") not in SCHEMA_NAMES or values.get("schema")):
        yield f"route: by schema needs records that name a registry schema ({', '.join(SCHEMA_NAMES)}) [LC1135]"
    if route.by_schema and values.get("message"):
        yield "route: by schema takes several messages: remove `format.message` [LC1136]"
    if dead is not None and dead in route.all_tables:
        yield "route: the dead_letter_table cannot be a table of rows [LC1137]"
    for name, create in route.create.items():
        if name == table:
            yield f"route.create: give the schema of {name} in `create` of the landing [LC1138]"
        elif name not in route.all_tables:
            yield f"route.create: {name!r} is not a table of the route{meant(name, route.all_tables)} [LC1139]"
        else:
            yield from (f"route.create: {name}: {text}" for text in wrong_with_table(create, added))


def _wrong(v: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown key {k!r}{meant(str(k), ROUTE_KEYS)}" for k in v if k not in ROUTE_KEYS)
    yield from _wrong_key(v)
    tables = v.get("tables")
    if not isinstance(tables, Mapping) or not tables:
        yield "tables: needs a mapping of the field's texts to tables [LC1140]"
    else:
        for text, table in tables.items():
            if not isinstance(text, str):
                yield f"tables: {text!r} is not a text: write it in quotes [LC1225]"
            if not _is_table(table):
                yield f"tables: {table!r} is not a table name (namespace.table) [LC1141]"
    other = v.get("other", DEAD_LETTER)
    if other not in (DEAD_LETTER, FAIL) and not _is_table(other):
        yield f"other: {other!r} is not {DEAD_LETTER}, {FAIL} or a table name (namespace.table) [LC1142]"
    if v.get("missing", FAIL) not in _MISSING:
        yield f"missing: {v['missing']!r} is not one of {', '.join(_MISSING)} [LC1143]"
    create = v.get("create", {})
    if not isinstance(create, Mapping) or not all(isinstance(c, Mapping) for c in create.values()):
        yield "create: is not a mapping of tables to `create` sections (`schema`, …) [LC1144]"


def _wrong_key(v: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes of the route's key."""
    path, by = v.get("field"), v.get("by", BY_FIELD)
    if by not in (BY_FIELD, BY_SCHEMA):
        yield f"by: {by!r} is not {BY_FIELD} or {BY_SCHEMA} [LC1145]"
    elif by == BY_SCHEMA and path is not None:
        yield "field: remove it, the route is by schema [LC1146]"
    elif by == BY_FIELD and (not isinstance(path, str) or not path or not all(path.split("."))):
        yield f"field: {path!r} is not the path of a field [LC1147]"


def _is_table(v: Any) -> bool:
    return isinstance(v, str) and TABLE_NAME.fullmatch(v) is not None
