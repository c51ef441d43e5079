# SPDX-License-Identifier: Apache-2.0
"""Checks of a landing's section `transform`, and the parsing of its option `unwrap`.

Contract: pure; no SQL is parsed here, so that a DAG file needs no engine. The SQL itself is checked when a window is
planned (:mod:`~airflow_provider_lakecommit.formats.transforms.row_wise`).

`unwrap` is ``debezium`` alone, or a mapping with ``envelope: debezium`` and further ``columns``, each with a path
in the envelope. The columns of :data:`COLUMNS` are filled in tables that have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecommit.landing.names import WITH_MODULE, meant
from airflow_provider_lakecommit.landing.options import label
from airflow_provider_lakecommit.landing.table import wrong_with_columns

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
        if not isinstance(path, str) or not WITH_MODULE.fullmatch(path):
            return f"{name}: {path!r} is not a function (module.function) [LC1185]"
    return None


def wrong_with_transform(values: Mapping[str, Any], tables: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with fields that are valid by themselves."""
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


_UNWRAPPED = ("json", "json_schema", "avro")
"""Formats whose values may be envelopes."""
DELETED = "deleted"
"""A path that no envelope has: whether the row was deleted."""
COLUMNS: Mapping[str, str] = {
    "_op": "op",
    "_is_deleted": DELETED,
    "_source_time": "source.ts_ms",
    "_snapshot": "source.snapshot",
    "_transaction_id": "transaction.id",
    "_transaction_order": "transaction.total_order",
}
"""Columns filled from an envelope in tables that have them, with the paths of their values."""
IMAGES = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""The row image of a change, by its ``op``."""
_ENVELOPES = ("debezium",)
_KEYS = ("envelope", "columns")
_ROOTS = ("op", "source", "transaction", "ts_ms", "ts_us", "ts_ns")
PAYLOAD = "payload"
"""Path of an envelope in JSON that Connect's converter wraps with its schema."""
ENVELOPE_ROOTS = frozenset({*_ROOTS, "before", "after", PAYLOAD})
"""First parts of paths in the envelope, outside of the row."""


def columns_of_unwrap(section: str | Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a checked section, with the paths of their values."""
    stated = section.get("columns", {}) if isinstance(section, Mapping) else {}
    return {**COLUMNS, **stated}


def delete_values(section: str | Mapping[str, Any] | None) -> dict[str, bool | str]:
    """Return the columns by whose values a row says that the source deleted its key."""
    paths = COLUMNS if section is None else columns_of_unwrap(section)
    marks: dict[str, bool | str] = {DELETED: True} if section is None else {DELETED: True, "op": "d"}
    return {column: marks[path] for column, path in paths.items() if path in marks}


def check_unwrap(v: Any) -> str | None:
    if v is None or v in _ENVELOPES:
        return None
    if not isinstance(v, Mapping):
        return f"{v!r} is not one of {', '.join(_ENVELOPES)}, nor a mapping of {', '.join(_KEYS)} [LC1188]"
    if unknown := [f"{k!r}{meant(str(k), _KEYS)}" for k in v if k not in _KEYS]:
        return f"unknown key {', '.join(unknown)}; allowed are {', '.join(_KEYS)} [LC1189]"
    if v.get("envelope") not in _ENVELOPES:
        return f"envelope {v.get('envelope')!r} is not one of {', '.join(_ENVELOPES)} [LC1190]"
    columns = v.get("columns", {})
    if not isinstance(columns, Mapping) or not all(
        isinstance(c, str) and c and isinstance(p, str) for c, p in columns.items()
    ):
        return f"columns {columns!r} is not a mapping of columns to paths in the envelope [LC1191]"
    for column, path in columns.items():
        root, *_ = path.split(".")
        if path != DELETED and (root not in _ROOTS or not all(path.split("."))):
            return (
                f"columns: {column}: {path!r} is neither {DELETED} nor a path that begins with "
                f"{', '.join(_ROOTS)} [LC1192]"
            )
    return None


def wrong_with_unwrap(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a valid section together with the other fields of its landing."""
    if values.get("unwrap") is None:
        return
    if values.get("format", "json") not in _UNWRAPPED:
        yield f"{label('unwrap')}: needs one of the formats {', '.join(_UNWRAPPED)} [LC1193]"
    if values.get("unknown_fields", "ignore") != "ignore":
        yield (
            f"{label('unwrap')}: for fields in an envelope only `columns.unknown_fields: ignore` is possible [LC1194]"
        )
    create = values.get("create")
    if isinstance(create, Mapping) and create.get("schema") == "registry":
        yield (
            "create.schema: with `transform.unwrap`, a registry has the envelope's columns: list "
            "the row's columns [LC1195]"
        )
