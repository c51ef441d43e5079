# SPDX-License-Identifier: Apache-2.0
"""Checks of the options `sql`, `record_schema` and `functions` of a landing's section `transform`.

Contract: pure; no SQL is parsed here, so that a DAG file needs no engine. The SQL itself is checked when a window is
planned (:mod:`~airflow_provider_lakecommit.formats.transforms.row_wise`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecommit.landing.table import wrong_with_columns

_IMPORT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_FUNCTION = re.compile(r"[a-z_][a-z0-9_]*")


def check_transform(v: Any) -> str | None:
    """Check one text, or one per table of a route."""
    if v is None or (isinstance(v, str) and v.strip()):
        return None
    good = isinstance(v, Mapping) and v and all(isinstance(k, str) and isinstance(s, str) for k, s in v.items())
    return None if good else f"{v!r} is not SQL (`select … from record`), nor a mapping of tables to SQL [LC1182]"


def check_record_schema(v: Any) -> str | None:
    """Check a list of columns as in `create.schema`."""
    return None if v is None else "; ".join(wrong_with_columns(v)) or None


def check_functions(v: Any) -> str | None:
    """Check the names in SQL, and the places of the functions."""
    if not isinstance(v, Mapping):
        return f"{v!r} is not a mapping of names to functions (module.function) [LC1183]"
    for name, path in v.items():
        if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
            return f"{name!r} is not the name of a function (a-z, digits, _) [LC1184]"
        if not isinstance(path, str) or not _IMPORT.fullmatch(path):
            return f"{name}: {path!r} is not a function (module.function) [LC1185]"
    return None


def wrong_with_transform(values: Mapping[str, Any], tables: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with fields that are valid by themselves.

    :param tables: the tables that take rows
    """
    transform = values.get("transform")
    if transform is None:
        stated = [key for key in ("record_schema", "functions") if values.get(key)]
        yield from (f"transform.{key}: needs `transform.sql`" for key in stated)
        return
    if not values.get("record_schema"):
        yield (
            "transform.sql: needs `transform.record_schema`, the columns of `record` that are "
            "read from the values "
            "[LC1186]"
        )
    if isinstance(transform, str) and len(tables) > 1:
        yield (f"transform.sql: with several tables, give a mapping of tables to SQL ({', '.join(tables)}) [LC1187]")
    if isinstance(transform, Mapping):
        unknown = (table for table in transform if table not in tables)
        yield from (f"transform.sql: {table!r} is not a table of the landing" for table in unknown)
