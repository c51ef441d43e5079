# SPDX-License-Identifier: Apache-2.0
"""A declaration as plain values, and the hash of those that change the rows.

Contract: pure. What is at its default is left out of both, so that a new release with a new option voids nothing that
was written under an older one, and a spec that is stored or sent holds what its author wrote.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["DECODING", "SHAPING", "plain_values", "spec_hash"]

DECODING = (
    *(
        "format",
        "schema",
        "reader_schema",
        "message",
        "csv",
        "timestamps",
        "encodings",
        "unknown_fields",
        "key",
        "headers",
    ),
    *("metadata_columns", "unwrap", "route", "transform", "record_schema", "functions"),
)
"""Fields of a landing that decide what becomes of a record."""
SHAPING = ("table", "dead_letter_table", *DECODING)
"""Fields that a spec version is made of."""


def plain_values(declared: DataclassInstance) -> dict[str, Any]:
    """The fields of a declaration as JSON and YAML write them; times in seconds."""
    return {
        f.name: _plain(value)
        for f in dataclasses.fields(declared)
        if (value := getattr(declared, f.name)) != _default(f)
    }


def spec_hash(declared: DataclassInstance, keys: Sequence[str]) -> str:
    """Sixteen hexadecimal digits of what those fields say."""
    defaults = {f.name: f.default for f in dataclasses.fields(declared)}
    values = {key: getattr(declared, key) for key in keys}
    if values.get("route"):
        # How tables are made changes no row.
        values["route"] = {k: v for k, v in values["route"].items() if k != "create"}
    said = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items() if v and v != defaults[k]}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
