# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset migrate`: a landing continues on the Kafka cluster that its topics moved to.

Contract: the ranges of the old cluster stay in the tables' ledgers, as a separate stream without runs (`live@CLUSTER`),
and `verify` accounts for it as before; the landing's own stream begins on the new cluster under a new epoch, so nothing
reported on the old one is committed any more. A landing that returns to a cluster continues where its stream ended.

Failure story: after a kill, some tables are migrated and some are not; run the same command again.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_provider_lakecommit.core import (
    ControlPosition,
    Coverage,
    Decision,
    LedgerSection,
    OffsetRange,
    SourcePartition,
)
from airflow_provider_lakecommit.cycle import LandingSession, all_sections, initial_position, ledger_states, new_section
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import (
    MOVED,
    LedgerState,
    SnapshotKind,
    SnapshotRecord,
    require_ledger,
    swap_sections,
)
from airflow_provider_lakecommit.operations.decisions.migrate_preview import MigrationPreview


def migrate_landing(session: LandingSession, preview: MigrationPreview, *, decision: Decision) -> dict[str, Any]:
    """Migrate as the preview showed.

    :param decision: the user who decided, for the tables' history
    :raises LedgerError: the ledger of a table has changed since
    :raises CatalogError: the catalog is unreachable
    """
    control, known = initial_position(session), all_sections(ledger_states(session).values())
    landing, decided = session.landing, replace(decision, what=preview.what)
    for table in preview.tables:
        moved = [session.lane, _kept_lane(session.lane, preview.old_cluster)]
        record = SnapshotRecord(
            kind=SnapshotKind.INIT,
            branch=landing.branch,
            landing=landing.name,
            lane=session.lane,
            extra={MOVED: json.dumps(moved)},
            decisions=(decided,),
        )
        swap_sections(session.tables, table, record, partial(_moved, session, preview, control, known, table))
        session.log(f"{table}: continues on cluster {preview.source.cluster_id}")
    return {"rebound": list(preview.tables), **preview.to_dict()}


def _kept_lane(lane: str, cluster_id: str) -> str:
    return f"{lane}@{cluster_id}"


def _moved(
    session: LandingSession,
    preview: MigrationPreview,
    control: ControlPosition,
    known: Collection[LedgerSection],
    table: str,
    state: LedgerState,
) -> tuple[LedgerSection, ...] | None:
    """Return the ledger with the old cluster's entry put aside, and the landing's own on the new one."""
    require_ledger(state, table)
    own = state.section(session.landing.name, session.lane)
    if own is None or own.cluster_id == preview.source.cluster_id:
        return None
    if own.cluster_id != preview.old_cluster:
        raise LedgerError("LC7033", f"{table} was migrated to cluster {own.cluster_id}: run the command again")
    kept = replace(
        own, lane=_kept_lane(session.lane, own.cluster_id), epoch=session.new_id(), control=control, positions={}
    )
    back = state.section(session.landing.name, _kept_lane(session.lane, preview.source.cluster_id))
    starts, covered = _on_the_new(preview, back, back and state.whole(back), table)
    section = new_section(session, preview.source, starts, covered, control, before=back or own, known=known)
    section = replace(section, provenance=back.provenance if back else ())
    others = [s for s in state.sections if s.key not in {own.key, kept.key, back.key if back else None}]
    # What was read from another cluster is not read again: no dead letter is closed by that.
    replayed = own.replayed | (back.replayed if back else Coverage())
    return (*others, kept, replace(section, sink=None, replayed=replayed, suspended=own.suspended))


def _on_the_new(
    preview: MigrationPreview, back: LedgerSection | None, whole: LedgerSection | None, table: str
) -> tuple[dict[SourcePartition, int], Coverage]:
    """Return starts and coverage. Records of a copied partition that were landed from the old cluster are covered,
    without marks; if the landing returns to a cluster, so are those that it had of it and skips.

    :param whole: the former entry, with what closed backfills have
    """
    parts = preview.of(table)
    ends = {r.partition: r.next for r in parts}
    if back is None or whole is None:
        return ends, Coverage.of((r.partition, OffsetRange(0, r.copied)) for r in parts if r.landed is not None)
    if again := [f"{p} {whole.end(p)}" for p, end in sorted(ends.items()) if p in back.starts and end < whole.end(p)]:
        raise LedgerError(
            "LC7034",
            f"{table} has landed from this cluster before, up to {', '.join(again)}: nothing is changed, because "
            f"those records would be landed again; state offsets from there on",
        )
    passed = Coverage.of(
        (p, OffsetRange(whole.end(p), end)) for p, end in ends.items() if p in back.starts and whole.end(p) < end
    )
    return {**ends, **back.starts}, back.covered | passed
