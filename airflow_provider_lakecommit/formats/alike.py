# SPDX-License-Identifier: Apache-2.0
"""Find the JSON values of a refused block that fail for the same reason: a column of the wrong kind, or invalid JSON.

Each returned value would also be refused alone, since the parser's types are fixed. Values that Python's reader accepts
or cannot classify are not returned. So a wrong type in every record costs about as much as a right one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_lakecommit.formats.columns import Column
from airflow_provider_lakecommit.formats.decoder import Refusal

_FRAME = 5
"""Length of a schema registry prefix: a zero, and the number of the schema."""
_FORMS: Mapping[bytes, str] = {
    b"\x1f\x8b": "it is gzip: leave compression to Kafka (the producer's compression.type)",
    b"\xef\xbb\xbf": "it begins with a byte order mark: write it without one",
    b"\xff\xfe": "it is UTF-16: write it as UTF-8",
    b"\xfe\xff": "it is UTF-16: write it as UTF-8",
    b"Obj\x01": "it is an Avro file: write single Avro records, and state `format: avro`",
}
"""Descriptions of values by their first bytes, with the remedy."""

_CHANGED = re.compile(r" changed from (?P<wanted>\w+) to (?P<found>\w+)")
"""The parser's wording: it takes the table's type as the one it saw first."""
_KIND = re.compile(r" is an? (?P<kind>boolean|number|string|array|object), not ")
_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
"""The parser's names for the kinds of Python's reader."""


def other_kind(text: str) -> str:
    """Return the parser's message on a value of another kind, in plain words."""
    return _CHANGED.sub(lambda kinds: f" is {_a(kinds['found'])}, not {_a(kinds['wanted'])}", text)


def _a(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "ao" else f"a {kind}"


def struct_paths(columns: Iterable[Column], above: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Return the names that lead to each column outside of lists and maps."""
    found: dict[str, tuple[str, ...]] = {}
    for column in columns:
        found[column.path] = names = (*above, column.name)
        if pa.types.is_struct(column.wire):
            found |= struct_paths(column.children, names)
    return found


def fail_alike(
    values: Sequence[bytes], refusal: Refusal, paths: Mapping[str, tuple[str, ...]]
) -> Mapping[int, Refusal]:
    """Return the values refused for the same reason, by position; none if that is unknown."""
    changed = _KIND.search(refusal.reason)
    if refusal.kind == "not_json" and changed is None:
        return {i: why for i, value in enumerate(values) if (why := _no_json(value)) is not None}
    # Without a name, the value itself is meant.
    names = () if refusal.kind == "not_json" else paths.get(refusal.column or "")
    if changed is None or names is None or refusal.kind not in ("not_json", "wrong_value"):
        return {}
    return {i: refusal for i, value in enumerate(values) if _kind_at(value, names) == changed["kind"]}


def known_form(value: bytes, refusal: Refusal) -> Refusal:
    """Add to the refusal of invalid JSON what its first bytes show."""
    found = next((form for head, form in _FORMS.items() if value.startswith(head)), None)
    if found is None and value[:1] == b"\x00" and len(value) > _FRAME:
        schema = int.from_bytes(value[1:_FRAME], "big")
        is_json = value[_FRAME:].lstrip()[:1] in (b"{", b"[")
        formats = "`format: json_schema`" if is_json else "`format: avro`, or `protobuf` if that schema is one,"
        found = (
            f"it begins with a schema registry's magic byte (schema {schema}): state {formats} and "
            "the registry's connection"
        )
    return refusal if found is None else Refusal(refusal.kind, refusal.column, f"{refusal.reason}; {found}")


def _no_json(value: bytes) -> Refusal | None:
    try:
        json.loads(value.decode())
    except UnicodeDecodeError:
        return known_form(value, Refusal("not_json", None, "the value is not valid UTF-8"))
    except json.JSONDecodeError as e:
        return known_form(value, Refusal("not_json", None, f"the value is not valid JSON: {e.msg}"))
    except (ValueError, RecursionError):
        return None
    return None


def _kind_at(value: bytes, names: Sequence[str]) -> str | None:
    """Return the kind of the value there; of a repeated name the last one: such a record is refused anyway."""
    try:
        found: Any = json.loads(value.decode())
    except (ValueError, RecursionError):
        return None
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return _KINDS.get(type(found))
