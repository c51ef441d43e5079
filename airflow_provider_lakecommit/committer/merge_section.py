# SPDX-License-Identifier: Apache-2.0
"""A lane's section becomes part of the one that has what closed lanes have landed.

Contract: one compare-and-swap takes the section out and gives what it has, and what the table has passed of its range
without a row, to that one, so that the ledger says the same of the table before and after. The snapshot says which
section it was (``lakecommit.merged``), so that nobody takes it for dropped. A lane that is not there is closed already.

Offsets of two Kafka clusters are never in one section: where the landing has moved, what closed lanes had landed from
the cluster before is put aside under the name of that cluster, and comes back with the landing.

Failure story: that of :mod:`~airflow_provider_lakecommit.committer.swap`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.committer.ledger import LedgerState, require_ledger
from airflow_provider_lakecommit.committer.ledger_updates import swap_sections
from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.committer.summary_extras import HAD, MERGED, had_to_text
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import FILLED, LedgerSection, filled_from, is_filled
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.rules import merged
from airflow_provider_lakecommit.iceberg.catalog import Tables

__all__ = ["merge_section"]


def merge_section(
    tables: Tables,
    table: str,
    own: tuple[str, str],
    *,
    had: Coverage,
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
) -> LedgerState:
    """Take a section out, and give what it has to the one of closed lanes, which is made if there is none.

    :param own: landing and lane of the section
    :param had: what the table has passed without a row, by the log, and no section says yet
    :param decision: of the person who closed it before it was whole
    :raises LedgerError: the ledger is gone
    """
    landing, lane = own
    told: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        section = state.section(landing, lane)
        if section is None:
            return None
        passed = had - state.covered()
        told.clear()
        told[MERGED] = json.dumps([[landing, lane]])
        if passed:
            told[HAD] = had_to_text(passed)
        kept, other = _aside(state.sections, section)
        return (*kept, _both(section, other, passed))

    record = SnapshotRecord(
        kind=SnapshotKind.CARRY,
        branch=branch,
        landing=landing,
        lane=lane,
        extra=told,
        decisions=() if decision is None else (decision,),
    )
    return swap_sections(tables, table, record, update)


def _aside(
    sections: tuple[LedgerSection, ...], section: LedgerSection
) -> tuple[tuple[LedgerSection, ...], LedgerSection | None]:
    """The sections that stay beside the one that is closed, and the one that gets what it has."""
    filled = {s.lane: s for s in sections if s.landing == section.landing and is_filled(s.lane)}
    kept = tuple(s for s in sections if s is not section and s not in filled.values())
    if (now := filled.get(FILLED)) is not None and now.cluster_id != section.cluster_id:
        filled[filled_from(now.cluster_id)] = replace(filled.pop(FILLED), lane=filled_from(now.cluster_id))
    back = filled.pop(filled_from(section.cluster_id), None)
    other = filled.pop(FILLED, None) or (replace(back, lane=FILLED) if back is not None else None)
    return (*kept, *filled.values()), other


def _both(section: LedgerSection, other: LedgerSection | None, passed: Coverage) -> LedgerSection:
    if other is None:
        # Nobody works for it, so nothing of the control log is needed for it.
        other = replace(
            section,
            lane=FILLED,
            epoch=uuid4(),
            starts={},
            ends={},
            covered=Coverage(),
            judged={},
            positions={},
            replayed=Coverage(),
            sink=None,
            suspended="",
            replaces=False,
            control=replace(section.control, low=None),
        )
    judged = merged(other.judged, section.judged.items(), most=None)
    starts = {p: min(o, other.starts.get(p, o)) for p, o in section.starts.items()}
    return replace(
        other,
        starts={**other.starts, **starts},
        covered=other.covered | section.covered | passed,
        judged=judged,
        replayed=other.replayed | section.replayed,
    )
