# SPDX-License-Identifier: Apache-2.0
"""Records inside ``schema`` and ``payload``, as Kafka Connect's JSON converter writes them by default.

Decoded for a table without these columns, such a value would become a row of nulls. :func:`wrapped_positions` finds
them, at no cost unless fields of these names were ignored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from airflow_provider_lakecommit.formats.decoder import Decoded

MARKERS = (
    "the value is `schema` and `payload`, as Kafka Connect's converter writes it, and the table "
    "has neither column: set value.converter.schemas.enable=false, or read `payload` with a transform; use "
    "`transform.unwrap` for change envelopes"
)
_NAMES = frozenset({"schema", "payload"})


def is_wrapper(names: Collection[str]) -> bool:
    return set(names) == _NAMES


def wrapped_positions(values: Sequence[bytes], decoded: Decoded) -> Sequence[int]:
    """Return the positions of values that gave a row and are wrappers."""
    if not all(decoded.ignored.get(name) for name in _NAMES):
        return ()
    positions = range(len(values)) if decoded.records is None else decoded.records
    return [i for i in positions if b'"payload"' in values[i] and is_wrapper(_names(values[i]))]


def _names(value: bytes) -> Collection[str]:
    """Return the names of a parsed record; none if Python reads less of it than the parser."""
    try:
        return dict(json.loads(value, parse_int=str, parse_float=str))
    except (ValueError, RecursionError):
        return ()
