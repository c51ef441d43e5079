# SPDX-License-Identifier: Apache-2.0
"""A lane's section becomes part of the one that has what closed lanes have landed.

Contract: one compare-and-swap takes the section out and gives what it has, and what the table has passed of its range
without a row, to that one, so that the ledger says the same of the table before and after. The snapshot says which
section it was (``lakecommit.merged``), so that nobody takes it for dropped. A lane that is not there is closed already.

Offsets of two Kafka clusters are never in one section. What closed lanes have landed from the cluster that the landing
reads is in the section ``filled``, what they have landed from another cluster is in the section of that cluster. There
is one section for each cluster: two that an earlier release or a move has left become one.

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
from airflow_provider_lakecommit.core import (
    FILLED,
    Coverage,
    Decision,
    LedgerSection,
    Provenance,
    added,
    filled_from,
    is_filled,
    merged,
)
from airflow_provider_lakecommit.iceberg import Tables


def merge_section(
    tables: Tables,
    table: str,
    own: tuple[str, str],
    *,
    had: Coverage,
    cluster_id: str = "",
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
) -> LedgerState:
    """Take a section out, and give what it has to the one of closed lanes, which is made if there is none.

    :param own: landing and lane of the section
    :param had: what the table has passed without a row, by the log, and no section says yet
    :param cluster_id: of the cluster that the landing reads, by default that of the section
    :param decision: of the person who closed it before it was whole
    :raises LedgerError: the ledger is gone
    """
    landing, lane = own
    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        section = state.section(landing, lane)
        if section is None:
            return None
        passed = had - state.covered()
        extra.clear()
        extra[MERGED] = json.dumps([[landing, lane]])
        if passed:
            extra[HAD] = had_to_text(passed)
        return _with_closed(state.sections, section, passed, cluster_id or section.cluster_id)

    record = SnapshotRecord(
        kind=SnapshotKind.CARRY,
        branch=branch,
        landing=landing,
        lane=lane,
        extra=extra,
        decisions=() if decision is None else (decision,),
    )
    return swap_sections(tables, table, record, update)


def _with_closed(
    sections: tuple[LedgerSection, ...], section: LedgerSection, passed: Coverage, now: str
) -> tuple[LedgerSection, ...]:
    """Return the sections without the one that is closed, and what it has in the one of closed lanes of its cluster.

    :param now: the cluster that the landing reads
    """
    closed: dict[str, LedgerSection] = {}
    kept = [s for s in sections if s is not section and not (s.landing == section.landing and is_filled(s.lane))]
    for s in sections:
        if s.landing == section.landing and is_filled(s.lane):
            known = closed.get(s.cluster_id)
            closed[s.cluster_id] = s if known is None else _both(s, known, Coverage())
    closed[section.cluster_id] = _both(section, closed.get(section.cluster_id), passed)
    named = [replace(s, lane=FILLED if cluster == now else filled_from(cluster)) for cluster, s in closed.items()]
    return (*kept, *named)


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
            evaluated={},
            positions={},
            replayed=Coverage(),
            sink=None,
            suspended="",
            replaces=False,
            provenance=(),
            control=replace(section.control, low=None),
        )
    evaluated = merged(other.evaluated, section.evaluated.items(), most=None)
    starts = {p: min(o, other.starts.get(p, o)) for p, o in section.starts.items()}
    return replace(
        other,
        # Of lanes of several specs nobody can tell which range is of which.
        spec_version=other.spec_version if other.spec_version == section.spec_version else "",
        starts={**other.starts, **starts},
        covered=other.covered | section.covered | passed,
        evaluated=evaluated,
        replayed=other.replayed | section.replayed,
        provenance=added(other.provenance, (*section.provenance, *_empty(section, passed))),
    )


def _empty(section: LedgerSection, passed: Coverage) -> tuple[Provenance, ...]:
    """What the table has passed without a row."""
    return (Provenance.counted(section.generation, passed, 0),) if passed else ()
