# SPDX-License-Identifier: Apache-2.0
"""Which JSON values of a refused block fail alike: a column that is of the wrong kind, a value that is no JSON.

Contract: pure. What is named is surely refused alone, too: the parser is asked for fixed types, so a kind of value that
it refuses in one record's column it refuses in each. A value that Python's reader takes, or cannot tell, is not named:
whoever asks has another way for it. So a misspelt type, which spoils every record, costs about what a right one does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_provider_lakecommit.formats.columns import Column
from airflow_provider_lakecommit.formats.decoder import Refusal

__all__ = ["fail_alike", "known_form", "other_kind", "struct_paths"]

_FRAME = 5
"""Bytes that a schema registry's serializers put before a value: a zero, and the number of the schema."""
_FORMS: Mapping[bytes, str] = {
    b"\x1f\x8b": "it is gzip: leave compression to Kafka (the producer's compression.type)",
    b"\xef\xbb\xbf": "it begins with a byte order mark: write it without one",
    b"\xff\xfe": "it is UTF-16: write it as UTF-8",
    b"\xfe\xff": "it is UTF-16: write it as UTF-8",
}
"""What a value is that begins so, and what helps."""

_CHANGED = re.compile(r" changed from (?P<wanted>\w+) to (?P<found>\w+)")
"""The parser's words: to it the type of the table is what it saw first."""
_KIND = re.compile(r" is an? (?P<kind>boolean|number|string|array|object), not ")
_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
"""What the parser calls the values of Python's reader."""


def other_kind(said: str) -> str:
    """What the parser says of a value of another kind, for people."""
    return _CHANGED.sub(lambda kinds: f" is {_a(kinds['found'])}, not {_a(kinds['wanted'])}", said)


def _a(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "ao" else f"a {kind}"


def struct_paths(columns: Iterable[Column], above: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The names that lead to each column, of those that are not within a list or a map."""
    found: dict[str, tuple[str, ...]] = {}
    for column in columns:
        found[column.path] = names = (*above, column.name)
        if pa.types.is_struct(column.wire):
            found |= struct_paths(column.children, names)
    return found


def fail_alike(
    values: Sequence[bytes], refusal: Refusal, paths: Mapping[str, tuple[str, ...]]
) -> Mapping[int, Refusal]:
    """The values that are refused for the same reason, by their places; none where nothing is known of it.

    :param paths: of :func:`struct_paths`
    """
    judge = _judge(refusal, paths)
    if judge is None:
        return {}
    return {i: why for i, value in enumerate(values) if (why := judge(value)) is not None}


def known_form(value: bytes, refusal: Refusal) -> Refusal:
    """The refusal of a value that is no JSON, with what it is, where its first bytes tell."""
    found = next((told for head, told in _FORMS.items() if value.startswith(head)), None)
    if found is None and value[:1] == b"\x00" and len(value) > _FRAME:
        schema = int.from_bytes(value[1:_FRAME], "big")
        found = (
            f"it begins with a schema registry's magic byte (schema {schema}), as the serializers of Avro, "
            "Protobuf and JSON Schema write it: write it as plain JSON"
        )
    return refusal if found is None else Refusal(refusal.kind, refusal.column, f"{refusal.reason}; {found}")


def _judge(refusal: Refusal, paths: Mapping[str, tuple[str, ...]]) -> Callable[[bytes], Refusal | None] | None:
    changed = _KIND.search(refusal.reason)
    if refusal.kind == "not_json" and changed is None:
        return _no_json
    # The value itself is where no name leads to.
    names = () if refusal.kind == "not_json" else paths.get(refusal.column or "")
    if changed is None or names is None or refusal.kind not in ("not_json", "wrong_value"):
        return None
    kind = changed["kind"]
    return lambda value: refusal if _kind_at(value, names) == kind else None


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
    """The kind of what is there; of a name that is there twice, the last one: such a record is refused anyway."""
    try:
        found: Any = json.loads(value.decode())
    except (ValueError, RecursionError):
        return None
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return _KINDS.get(type(found))
