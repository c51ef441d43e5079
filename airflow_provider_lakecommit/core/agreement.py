# SPDX-License-Identifier: Apache-2.0
"""Find ranges about which two tables of a landing disagree.

Tables disagree about a range that they have by different readings under different known rules: a record of it may be in
both or in neither. Another engine's rollback of one table alone can cause that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.provenance import Provenance, same_readings, shares_of
from airflow_provider_lakecommit.core.rules import evaluated_in, evaluated_otherwise, merged


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
