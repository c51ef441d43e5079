# SPDX-License-Identifier: Apache-2.0
"""A declaration as plain values, and the hash of the options that change the rows.

Contract: pure. Both leave out defaults, so that a release with a new option voids nothing written under an older one,
and a stored or sent spec holds what its author wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

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
    # A record without a key is rejected, and a delete without a value by which it is ordered, unless it is ignored.
    *("upsert_key", "upsert_order_by", "upsert_deletes"),
)
"""Options that decide the disposition of a record, by their recorded names."""
SHAPING = ("table", "dead_letter_table", *DECODING)
"""Options that the spec version hashes."""


def plain_values(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their default, as in JSON and YAML; times in seconds."""
    return {key: _plain(value) for key, value in values.items() if key not in defaults or value != defaults[key]}


def spec_hash(values: Mapping[str, Any], defaults: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return sixteen hexadecimal digits of the values of those keys."""
    stated = {key: values[key] for key in keys}
    if stated.get("route"):
        # How tables are made changes no row.
        stated["route"] = {k: v for k, v in stated["route"].items() if k != "create"}
    given = {k: dict(v) if isinstance(v, Mapping) else v for k, v in stated.items() if v and v != defaults.get(k)}
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return list(value) if isinstance(value, tuple) else value
