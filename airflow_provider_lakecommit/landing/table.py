# SPDX-License-Identifier: Apache-2.0
"""Checks of a ``create`` section without an Iceberg library, when a DAG is parsed.

Contract: pure. All mistakes are reported together, each with its column or entry and the nearest known name. What
passes here may still be refused when the table is made (:mod:`~airflow_provider_lakecommit.iceberg.table_spec`); what
is refused here would be refused there too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_lakecommit.landing.names import meant, unquoted
from airflow_provider_lakecommit.landing.type_text import PRIMITIVES, parse_type

CREATE_KEYS = ("schema", "subject", "partition_by", "sort_order", "properties")
"""Keys of the section that describes a missing table."""
COLUMN_KEYS = ("name", "type", "required", "doc")
_TIMES = ("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
_SIZED = ("int", "long", "string", "binary")
_TAKES: Mapping[str, tuple[str, ...] | None] = {
    "identity": None,
    "year": ("date", *_TIMES),
    "month": ("date", *_TIMES),
    "day": ("date", *_TIMES),
    "hour": _TIMES,
    "bucket": (*_SIZED, "decimal", "date", "time", *_TIMES, "uuid", "fixed"),
    "truncate": (*_SIZED, "decimal"),
}
"""Transforms with the primitive types that each takes; ``None`` means all."""
_FORMS = "a column, identity(c), year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(width, c)"
_ORDER = re.compile(r"(.*?)(?:\s+(?:asc|desc))?(?:\s+nulls\s+(?:first|last))?", re.IGNORECASE)
RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Names that Iceberg reserves for a row's metadata: Spark reads no table with such a column."""
MANY, STRUCT = "many", "struct"
"""Placeholder types of a list or map, and of nested fields."""


def wrong_with_table(create: Mapping[str, Any], added: Mapping[str, str]) -> list[str]:
    """Return all mistakes of a ``create`` section.

    :param added: further columns that the table gets, with their types
    """
    wrong = [
        f"create: unknown key {key!r}; allowed are {', '.join(CREATE_KEYS)}{meant(str(key), CREATE_KEYS)} [LC1157]"
        for key in create
        if key not in CREATE_KEYS
    ]
    if (subject := create.get("subject")) is not None and not (isinstance(subject, str) and subject):
        wrong.append(f"create.subject: {subject!r} is not the name of a subject [LC1158]")
    columns = dict(added)
    if create.get("schema") == "registry":
        # The columns are known only when the table is made.
        return wrong
    of_columns = [*_wrong_columns(create.get("schema"), "", columns)] or _alike(create["schema"])
    wrong += [f"create.schema: {text}" for text in of_columns]
    wrong += [
        f"create.schema: column {name} is a name that Iceberg reserves and Spark cannot read: list "
        "the columns with another name, or without it [LC1345]"
        for name in sorted(RESERVED & columns.keys())
    ]
    for key in ("partition_by", "sort_order"):
        wrong += [f"create.{key}: {text}" for text in _wrong_entries(create.get(key), key, columns)]
    properties = create.get("properties")
    if properties is not None and not isinstance(properties, Mapping):
        wrong.append(f"create.properties: {properties!r} is not a mapping of table properties [LC1159]")
    return wrong


def wrong_with_columns(columns: Any) -> list[str]:
    """Return all mistakes of a list of columns, as in ``create.schema``."""
    return list(_wrong_columns(columns, "", {})) or _alike(columns)


def _alike(columns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the mistakes of valid columns whose names differ only in case."""
    wrong = []
    for names in _names(columns, ""):
        folded = [name.casefold() for name in names]
        if same := sorted(name for name, one in zip(names, folded, strict=True) if folded.count(one) > 1):
            wrong.append(f"columns {', '.join(same)} differ only in case, which SQL ignores: rename one [LC1366]")
    return wrong


def _names(columns: Sequence[Mapping[str, Any]], path: str) -> Iterator[list[str]]:
    """Yield the sibling names of the columns and of each nested struct, with their paths."""
    yield [f"{path}{column['name']}" for column in columns]
    for column in columns:
        yield from _within(column["type"], f"{path}{column['name']}")


def _within(kind: Any, path: str) -> Iterator[list[str]]:
    if isinstance(kind, str):
        kind = parse_type(kind)
    if isinstance(kind, Mapping):
        if STRUCT in kind:
            yield from _names(kind[STRUCT], f"{path}.")
        for part in (kind.get("list"), *(kind["map"][key] for key in ("key", "value") if "map" in kind)):
            yield from _within(part, path)


def _wrong_columns(given: Any, path: str, columns: dict[str, str]) -> Iterator[str]:
    """:param columns: gets the columns, also those within structs, with their type words"""
    if not _is_list(given) or not given:
        whose = f"column {path[:-1]}: struct needs " if path else ""
        yield f"{whose}a list of columns, each {{name, type, required, doc}}, not {given!r} [LC1160]"
        return
    known = set[str]()
    for n, column in enumerate(given):
        name = column.get("name") if isinstance(column, Mapping) else None
        if not isinstance(name, str) or not name:
            entry = f"entry {n + 1} of {path or 'the columns'}"
            needs = f"{entry} must be like {{name: id, type: long}}, not {column!r} [LC1161]"
            yield f"{entry}: {why}" if (why := unquoted(name)) else needs
            continue
        where = f"{path}{name}"
        if name in known:
            yield f"column {where} is given twice [LC1162]"
        known.add(name)
        if _is_split(column):
            columns[where] = ""
            yield f"column {where}: YAML has split its type {column['type']!r} at the comma: put it in quotes [LC1341]"
            continue
        yield from (f"column {where}: {text}" for text in _wrong_keys(column))
        if "type" in column or not set(column) - set(COLUMN_KEYS):
            yield from _wrong_type(column.get("type"), where, columns)
        else:
            # An unknown key is a misspelled one: do not also report that its meaning is missing.
            columns[where] = ""


def _is_split(column: Mapping[str, Any]) -> bool:
    """Return True for the type `decimal(10, 2)` without quotes between braces."""
    kind = column.get("type")
    return isinstance(kind, str) and "(" in kind and ")" not in kind and any(str(k).endswith(")") for k in column)


def _wrong_keys(column: Mapping[str, Any]) -> Iterator[str]:
    for key in column:
        if key not in COLUMN_KEYS:
            yield f"unknown key {key!r}; allowed: {', '.join(COLUMN_KEYS)}{meant(str(key), COLUMN_KEYS)} [LC1163]"
    if not isinstance(column.get("required", False), bool):
        yield f"required {column['required']!r} is not true or false [LC1164]"
    if column.get("doc") is not None and not isinstance(column["doc"], str):
        yield f"doc {column['doc']!r} is not a text [LC1165]"


def _wrong_type(given: Any, where: str, columns: dict[str, str]) -> Iterator[str]:
    # A column with a wrong type can still be named below.
    columns[where] = ""
    if isinstance(given, Mapping):
        yield from _wrong_nested(given, where, columns)
        return
    if not isinstance(given, str):
        yield f"column {where}: {given!r} is not a type; {PRIMITIVES} [LC1166]"
        return
    try:
        _enter(parse_type(given), where, columns)
    except ValueError as e:
        yield f"column {where}: {given!r} is not a type: {e} [LC1167]"


def _enter(kind: str | Mapping[str, Any], where: str, columns: dict[str, str]) -> None:
    columns[where] = kind if isinstance(kind, str) else STRUCT if STRUCT in kind else MANY
    for column in kind.get(STRUCT, ()) if isinstance(kind, Mapping) else ():
        _enter(column["type"], f"{where}.{column['name']}", columns)


def _wrong_nested(given: Mapping[str, Any], where: str, columns: dict[str, str]) -> Iterator[str]:
    kind = next((k for k in ("struct", "list", "map") if k in given), None)
    if kind is None or set(given) - ({kind} if kind == STRUCT else {kind, "required"}):
        yield (
            f"column {where}: {dict(given)!r} is not a type; allowed are {{struct: [columns]}}, "
            "{list: type, required: bool} and {map: {key: type, value: type, required: bool}} [LC1168]"
        )
        return
    columns[where] = STRUCT if kind == STRUCT else MANY
    inner = given[kind]
    if kind == STRUCT:
        yield from _wrong_columns(inner, f"{where}.", columns)
    elif kind == "list":
        yield from _wrong_type(inner, f"{where}.element", {})
    elif not isinstance(inner, Mapping) or {"key", "value"} - set(inner) or set(inner) - {"key", "value", "required"}:
        yield f"column {where}: map needs key and value (and required), not {inner!r} [LC1169]"
    else:
        yield from _wrong_type(inner["key"], f"{where}.key", {})
        yield from _wrong_type(inner["value"], f"{where}.value", {})


def _wrong_entries(given: Any, key: str, columns: Mapping[str, str]) -> Iterator[str]:
    entries = [] if given is None else [given] if isinstance(given, str) else given
    if not _is_list(entries) or not all(isinstance(e, str) for e in entries):
        yield f"{given!r} is not a list of {_FORMS} [LC1170]"
        return
    for entry in entries:
        by = entry.strip()
        if key == "sort_order" and (ordered := _ORDER.fullmatch(by)):
            by = ordered[1]
        if (text := _wrong_entry(by, columns)) is not None:
            yield f"{entry!r}{text}"


def _wrong_entry(by: str, columns: Mapping[str, str]) -> str | None:
    call = re.fullmatch(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?(.*?)\s*\)", by)
    call = call or re.fullmatch(r"(identity)(\d*)\s+(\S+)", by)
    transform, size, column = (call[1].lower(), call[2], call[3]) if call else ("identity", None, by)
    if transform not in _TAKES:
        return f" is not one of: {_FORMS}{meant(transform, _TAKES)} [LC1171]"
    sized = transform in ("bucket", "truncate")
    if sized != bool(size) or (size and int(size) < 1) or (call is None and re.search(r"[\s(),]", by)):
        return f" is not one of: {_FORMS} [LC1172]"
    path = column.split(".")
    if any(columns.get(".".join(path[:n])) == MANY for n in range(1, len(path))):
        return f": column {column} is inside a list or map, so a row has several values of it [LC1173]"
    if column not in columns:
        return f": there is no column {column!r}; columns are {', '.join(columns)}{meant(column, columns)} [LC1174]"
    kind, takes = columns[column], _TAKES[transform]
    if kind in (MANY, STRUCT):
        return f": column {column} is a struct, list or map: use a column with one value [LC1175]"
    if kind and takes is not None and not kind.startswith(takes):
        return f": column {column} is {kind}; {transform} takes {', '.join(takes)} [LC1176]"
    return None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
