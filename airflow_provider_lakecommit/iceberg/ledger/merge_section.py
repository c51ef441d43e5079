# SPDX-License-Identifier: Apache-2.0
"""Merge the ledger entry of a closed backfill into the one of all closed backfills.

Contract: one compare-and-swap removes the entry and gives its ranges, and those of its bounds that the table has passed
without a row, to the other one, so that the ledger describes the same table before and after. The snapshot names the
entry (``lakecommit.merged``), so that it does not count as dropped. A missing entry is closed already.

Offsets of two Kafka clusters are never in one entry. What closed backfills have landed from the cluster that the
landing reads is in the entry ``filled``, what they have landed from another cluster is in the entry of that cluster.
Each cluster has one entry: two that a migration or an older ledger has left become one.

Failure story: see :mod:`~airflow_provider_lakecommit.iceberg.ledger.swap`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import uuid4

from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import (
    FILLED,
    Coverage,
    Decision,
    EvaluatedBy,
    LedgerSection,
    Provenance,
    added,
    evaluated_in,
    filled_from,
    is_filled,
    merged,
)
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import record_of_change, swap_sections
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import HAD, MERGED, had_to_text


def merge_section(
    tables: Tables,
    table: str,
    own: tuple[str, str],
    *,
    had: EvaluatedBy,
    cluster_id: str = "",
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
) -> LedgerState:
    """Remove an entry, and give its ranges to the one of closed backfills, which is made if missing.

    :param own: landing and stream of the entry
    :param had: ranges that, by the log, the table has passed without a row, and that no entry has yet, by their rules
    :param cluster_id: cluster that the landing reads, by default the entry's
    :param decision: of the user who closed it before it was complete
    :raises LedgerError: the ledger is missing
    """
    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        section = state.section(*own)
        if section is None:
            return None
        passed = Coverage.union(had.values()) - state.covered()
        extra.clear()
        extra[MERGED] = json.dumps([own])
        if passed:
            extra[HAD] = had_to_text(passed)
        read = merged(section.evaluated, evaluated_in(had, passed).items(), most=None)
        closed = replace(section, evaluated=read)
        return _with_closed(state.sections, closed, passed, cluster_id or section.cluster_id)

    record = record_of_change(SnapshotKind.CARRY, own, branch, decision, extra=extra)
    return swap_sections(tables, table, record, update)


def _with_closed(
    sections: tuple[LedgerSection, ...], section: LedgerSection, passed: Coverage, now: str
) -> tuple[LedgerSection, ...]:
    """Return the entries without the closed one, with its ranges in the one of closed backfills of its cluster.

    :param now: the cluster that the landing reads
    """
    closed: dict[str, LedgerSection] = {}
    kept = [s for s in sections if s.key != section.key and not (s.landing == section.landing and is_filled(s.lane))]
    for s in sections:
        if s.landing == section.landing and is_filled(s.lane):
            known = closed.get(s.cluster_id)
            closed[s.cluster_id] = s if known is None else _both(s, known, Coverage())
    closed[section.cluster_id] = _both(section, closed.get(section.cluster_id), passed)
    named = [replace(s, lane=FILLED if cluster == now else filled_from(cluster)) for cluster, s in closed.items()]
    return (*kept, *named)


def _both(section: LedgerSection, other: LedgerSection | None, passed: Coverage) -> LedgerSection:
    if other is None:
        # It has no runs, so it needs nothing of the control log.
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
    # What the table has passed without a row.
    empty = (Provenance.counted(section.generation, passed, 0),) if passed else ()
    return replace(
        other,
        # With several specs, it is unknown which range is of which.
        spec_version=other.spec_version if other.spec_version == section.spec_version else "",
        starts={**other.starts, **starts},
        covered=other.covered | section.covered | passed,
        evaluated=evaluated,
        replayed=other.replayed | section.replayed,
        provenance=added(other.provenance, (*section.provenance, *empty)),
    )
