# SPDX-License-Identifier: Apache-2.0
"""By which rules a record was judged: whether it became a row or a reject is decided by how the landing decodes and by
the columns of its data tables, and by nothing else.

Contract: pure. Rules are one text, equal for readings that judge every record alike: neither the ids of columns nor
their comments are in it. A table's ledger says of its ranges by which rules they were judged, and a report says it of
its slice. Ranges that earlier releases landed are of no known rules.

Invariants: a record has one fate. A range that one table of a landing has by some rules is never taken for another
table by other rules (:func:`otherwise`): a record of it could end in both tables, or in none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.core.offsets import Coverage

UNKNOWN = ""
"""The rules of a reading of which nobody has said them."""
MOST_RULES = 8
"""Rules that a ledger remembers: of ranges that were judged by older ones they are not known any more."""
_IDS = frozenset({"id", "element-id", "key-id", "value-id", "schema-id", "identifier-field-ids", "doc"})

Judged = Mapping[str, Coverage]
"""Ranges by the rules that they were judged by, oldest rules first. No range is in it twice."""


def rules_of(decoding: str, *schemas: str) -> str:
    """The rules of a reading.

    :param decoding: what the landing says of decoding, as one text
    :param schemas: of the data table, or of all tables that take rows, each as the JSON of the Iceberg specification
    """
    columns = "".join(json.dumps(_plain(json.loads(schema)), sort_keys=True) for schema in schemas)
    return f"{decoding}/{hashlib.sha256(columns.encode()).hexdigest()[:12]}"


def _plain(value: Any) -> Any:
    """A schema without what decides nothing."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in _IDS}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def merged(
    known: Judged, added: Iterable[tuple[str, Coverage]], *, most: int | None = MOST_RULES
) -> dict[str, Coverage]:
    """With further ranges; those of rules that are not known are left out, and the oldest rules are forgotten.

    :param most: rules that are kept; ``None`` for all, where nothing is stored: a table of many landings has as many
    """
    out = dict(known)
    for rules, coverage in added:
        if rules != UNKNOWN and coverage:
            out[rules] = out.get(rules, Coverage()) | coverage
    return dict(list(out.items())[-most:]) if most else out


def judged_in(known: Judged, coverage: Coverage) -> dict[str, Coverage]:
    """What is known of these ranges."""
    return {rules: both for rules, c in known.items() if (both := c & coverage)}


def unjudged(known: Judged, coverage: Coverage) -> Coverage:
    """These ranges, less those of which the rules are known."""
    for c in known.values():
        coverage = coverage - c
    return coverage


def otherwise(known: Judged, coverage: Coverage, rules: str) -> Coverage:
    """Of these ranges, those that are known to be judged by other rules."""
    found = Coverage()
    for r, c in known.items():
        if r != rules and UNKNOWN not in (r, rules):
            found = found | (coverage & c)
    return found
