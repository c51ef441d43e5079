# SPDX-License-Identifier: Apache-2.0
"""The rules that decide whether a record becomes a row or a reject: the landing's decoding and its tables' columns.

Rules are one text, equal for readings that judge every record alike; ids, comments and the order of columns are not
part of it, since records and rows have columns by name.
Ledgers and reports record the rules of their ranges. A range that one table has by some rules is never read for another
table by other rules (:func:`evaluated_otherwise`): a record could end up in both tables, or in none. Tables that have a
range by different readings under different known rules disagree about it (:func:`differing`). Another engine's rollback
of one table alone can cause that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.provenance import Provenance, same_readings, shares_of

UNKNOWN = ""
"""Rules of a reading that recorded none."""
MOST_RULES = 8
"""Rules that a ledger keeps; those of older ranges are forgotten."""
_IDS = frozenset({"id", "element-id", "key-id", "value-id", "schema-id", "identifier-field-ids", "doc"})

EvaluatedBy = Mapping[str, Coverage]
"""Disjoint ranges by their rules, oldest rules first."""


def rules_of(decoding: str, *schemas: str) -> str:
    """Return the rules of a reading.

    :param decoding: the landing's decoding settings as one text
    :param schemas: of the tables that take rows, as JSON of the Iceberg specification
    """
    columns = "".join(json.dumps(_plain(json.loads(schema)), sort_keys=True) for schema in schemas)
    return f"{decoding}/{hashlib.sha256(columns.encode()).hexdigest()[:12]}"


def _plain(value: Any) -> Any:
    """Drop the parts of a schema that decide nothing, such as the order of columns, its only lists."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in _IDS}
    return sorted(map(_plain, value), key=lambda column: column["name"]) if isinstance(value, list) else value


def merged(
    known: EvaluatedBy, added: Iterable[tuple[str, Coverage]], *, most: int | None = MOST_RULES
) -> dict[str, Coverage]:
    """Add ranges, without those of unknown rules, and forget the oldest rules.

    :param most: rules to keep; ``None`` for all, where nothing is stored
    """
    out = dict(known)
    for rules, coverage in added:
        if rules != UNKNOWN and coverage:
            out[rules] = out.get(rules, Coverage()) | coverage
    return dict(list(out.items())[-most:]) if most else out


def evaluated_in(known: EvaluatedBy, coverage: Coverage) -> dict[str, Coverage]:
    return {rules: both for rules, c in known.items() if (both := c & coverage)}


def unevaluated(known: EvaluatedBy, coverage: Coverage) -> Coverage:
    """Return the ranges of unknown rules."""
    for c in known.values():
        coverage = coverage - c
    return coverage


def evaluated_otherwise(known: EvaluatedBy, coverage: Coverage, rules: str) -> Coverage:
    """Return the ranges known to be judged by other rules."""
    found = Coverage()
    for r, c in known.items():
        if r != rules and UNKNOWN not in (r, rules):
            found = found | (coverage & c)
    return found


def differing(one: Sequence[LedgerSection], other: Sequence[LedgerSection]) -> Coverage:
    """Return the ranges about which two tables disagree, each given by its ledger entries of one landing.

    Ranges that an open replay has replaced in one table only are left out.
    """
    same = same_readings(current_readings(one), current_readings(other))
    evaluated = merged({}, _evaluated(one), most=None)
    found = Coverage.union(evaluated_otherwise(evaluated, ranges, rules) for rules, ranges in _evaluated(other))
    replaying = Coverage.union(s.bounds for s in (*one, *other) if s.replaces)
    return found - same - replaying


def current_readings(sections: Sequence[LedgerSection]) -> list[Provenance]:
    """Return the entries of current rows, each cut to the ranges that no later reading has."""
    covered = Coverage.union(s.covered for s in sections if not s.replaces)
    entries = [e for s in sections if not s.replaces for e in s.provenance]
    return [replace(share.entry, coverage=share.part) for share in shares_of(entries, covered)]


def _evaluated(sections: Sequence[LedgerSection]) -> list[tuple[str, Coverage]]:
    return [item for s in sections if not s.replaces for item in evaluated_in(s.evaluated, s.covered).items()]
