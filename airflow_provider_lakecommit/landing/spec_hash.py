# SPDX-License-Identifier: Apache-2.0
"""A declaration as plain values, and the hash of those that change the rows.

Contract: pure. What is at its default is left out of both, so that a new release with a new option voids nothing that
was written under an older one, and a spec that is stored or sent holds what its author wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

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
"""Options of a landing that decide what becomes of a record, by the names under which they are recorded."""
SHAPING = ("table", "dead_letter_table", *DECODING)
"""Options that a spec version is made of."""


def plain_values(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Options that differ from their default, as JSON and YAML write them; times in seconds."""
    return {key: _plain(value) for key, value in values.items() if key not in defaults or value != defaults[key]}


def spec_hash(values: Mapping[str, Any], defaults: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Sixteen hexadecimal digits of the values of those keys."""
    stated = {key: values[key] for key in keys}
    if stated.get("route"):
        # How tables are made changes no row.
        stated["route"] = {k: v for k, v in stated["route"].items() if k != "create"}
    said = {k: dict(v) if isinstance(v, Mapping) else v for k, v in stated.items() if v and v != defaults.get(k)}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
