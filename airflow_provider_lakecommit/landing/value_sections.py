# SPDX-License-Identifier: Apache-2.0
"""Checks of the options ``format.csv``, ``columns.key`` and ``columns.headers`` of a landing.

Contract: pure. A check takes a value of any type, and returns what is wrong and what is allowed, or ``None``.
:func:`wrong_together` checks combinations of valid sections.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_lakecommit.core import FORMATS
from airflow_provider_lakecommit.landing.names import meant

CSV_KEYS = ("columns", "delimiter", "quote", "null_text", "rows")
KEY_KEYS = ("format", "column", "columns", "invalid", "schema", "message")
HEADER_KEYS = ("name", "format", "repeated", "invalid")
ONE_COLUMN = ("raw", "string", "json")
"""Formats in which a key or header fills one column."""
KEY_FORMATS = ("string", *(f for f in FORMATS if f != "csv"))
INVALID = ("reject", "ignore")
REPEATED = ("last", "first")
_NO_DELIMITER = "\r\n\0"


def csv_section(v: Any) -> str | None:
    if v == {}:
        return None
    if (text := _no_mapping(v, CSV_KEYS)) is not None:
        return text
    columns = v.get("columns")
    if not _names(columns) or len(set(columns)) != len(columns):
        return f"columns {columns!r} is not a list of different names, one for each field of a record [LC1196]"
    delimiter, quote = v.get("delimiter", ","), v.get("quote", '"')
    if not _character(delimiter):
        return f"delimiter {delimiter!r} is not one ASCII character [LC1197]"
    if quote is not None and (not _character(quote) or quote == delimiter):
        return (
            f"quote {quote!r} is not one ASCII character other than the delimiter, or null if "
            "nothing is quoted [LC1198]"
        )
    if not isinstance(v.get("null_text", ""), str):
        return f"null_text {v['null_text']!r} is not a text [LC1199]"
    return _one_of(v, "rows", ("one", "many"))


def key_section(v: Any) -> str | None:
    if v == {}:
        return None
    if (text := _no_mapping(v, KEY_KEYS)) is not None:
        return text
    if (text := _one_of(v, "format", KEY_FORMATS) or _one_of(v, "invalid", INVALID)) is not None:
        return text
    column, columns, format_ = v.get("column"), v.get("columns"), v.get("format", "string")
    if (column is None) == (columns is None):
        return "needs either `column` for the whole key, or `columns` for its fields [LC1200]"
    if column is not None and not (isinstance(column, str) and column):
        return f"column {column!r} is not a name [LC1201]"
    named = [*columns, *columns.values()] if isinstance(columns, Mapping) else columns
    if columns is not None and not _names(named):
        return f"columns {columns!r} is not a list of names, or a mapping of columns to fields of the key [LC1202]"
    if column is not None and format_ not in ONE_COLUMN:
        return f"a key of format {format_} is a record: give its `columns` [LC1203]"
    if columns is not None and format_ in ("raw", "string"):
        return f"a key of format {format_} has no fields: give its `column` [LC1204]"
    return None


def headers_section(v: Any) -> str | None:
    if not isinstance(v, Mapping) or not all(isinstance(c, str) and c for c in v):
        return f"{v!r} is not a mapping of columns to headers [LC1205]"
    return next((f"{column}: {text}" for column, h in v.items() if (text := _header(h)) is not None), None)


def _header(v: Any) -> str | None:
    if isinstance(v, str) and v:
        return None
    if (text := _no_mapping(v, HEADER_KEYS)) is not None:
        return text
    if not (isinstance(v.get("name"), str) and v["name"]):
        return "needs the `name` of the header [LC1206]"
    checks = (("format", ONE_COLUMN), ("repeated", REPEATED), ("invalid", INVALID))
    return next((text for key, allowed in checks if (text := _one_of(v, key, allowed)) is not None), None)


def columns_of_key(key: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns that the key fills."""
    return (key["column"],) if "column" in key else tuple(key.get("columns", ()))


def wrong_together(values: Mapping[str, Any], metadata: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with sections that are valid by themselves."""
    format_, csv = values.get("format", "json"), values.get("csv", {})
    if isinstance(csv, Mapping) and (format_ == "csv") != bool(csv):
        yield (
            "format.csv: needs `columns`, the names of a record's fields in order [LC1207]"
            if format_ == "csv"
            else "format.csv: needs `format: csv` [LC1208]"
        )
    yield from (f"format.schema: {text}" for text in _wrong_schema(format_, values.get("schema", "")))
    if schema := values.get("reader_schema"):
        known = ["needs format avro"] if format_ != "avro" else _wrong_schema(format_, schema)
        yield from (f"format.reader_schema: {text}" for text in known)
    if values.get("message") and format_ != "protobuf":
        yield "format.message: needs format protobuf [LC1209]"
    key, headers = values.get("key", {}), values.get("headers", {})
    if key_section(key) is not None or headers_section(headers) is not None:
        return
    if key:
        found = _wrong_schema(key.get("format", "string"), key.get("schema", ""))
        yield from (f"columns.key: schema {text}" for text in found)
    seen = set(metadata)
    for column in (*columns_of_key(key), *headers):
        if column in seen:
            yield f"column {column} is filled twice: by `columns.key`, `columns.headers` or `columns.metadata` [LC1210]"
        seen.add(column)


def _wrong_schema(format: str, schema: Any) -> Iterator[str]:
    if not schema:
        return
    if format not in ("avro", "protobuf"):
        yield "needs format avro or protobuf [LC1211]"
        return
    if format == "protobuf":
        if not isinstance(schema, str):
            yield "is not the text of a .proto file, or a descriptor in base64 [LC1212]"
        return
    try:
        stated = json.loads(schema) if isinstance(schema, str) else schema
    except ValueError as e:
        yield f"is not JSON: {e} [LC1213]"
        return
    if not isinstance(stated, Mapping):
        yield "is not the schema of a record, a mapping or JSON [LC1214]"


def _no_mapping(v: Any, keys: Sequence[str]) -> str | None:
    if not isinstance(v, Mapping):
        return f"{v!r} is not a mapping of {', '.join(keys)} [LC1215]"
    unknown = [k for k in v if k not in keys]
    keys_text = ", ".join(f"{k!r}{meant(str(k), keys)}" for k in unknown)
    return f"unknown key {keys_text}; allowed are {', '.join(keys)} [LC1216]" if unknown else None


def _one_of(v: Mapping[str, Any], key: str, allowed: Sequence[str]) -> str | None:
    found = v.get(key, allowed[0])
    return None if found in allowed else f"{key} {found!r} is not one of {', '.join(allowed)} [LC1217]"


def _names(v: Any) -> bool:
    return isinstance(v, Sequence) and not isinstance(v, str) and bool(v) and all(isinstance(n, str) and n for n in v)


def _character(v: Any) -> bool:
    return isinstance(v, str) and len(v) == 1 and v.isascii() and v not in _NO_DELIMITER
