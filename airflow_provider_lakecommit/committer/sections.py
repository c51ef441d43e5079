# SPDX-License-Identifier: Apache-2.0
"""Changing one section of a ledger by a decision on the section as it is at that moment.

Contract: ``change`` is asked again at every look of the compare-and-swap, so what it decides is never decided on a
section that somebody has replaced meanwhile; ``None`` ends the call without a snapshot. All other sections are carried
as they are.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.committer.ledger import LedgerState, require_ledger
from airflow_provider_lakecommit.committer.lookup import Patience
from airflow_provider_lakecommit.committer.summary import Kind, SnapshotRecord
from airflow_provider_lakecommit.committer.swap import Change, compare_and_swap
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.iceberg.catalog import Tables

__all__ = ["change_section"]


def change_section(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    kind: Kind,
    change: Callable[[LedgerSection], LedgerSection | None],
    *,
    branch: str = MAIN_BRANCH,
    patience: Patience | None = None,
) -> LedgerState:
    """Replace the section of a landing's lane by what ``change`` makes of it, in a snapshot without files.

    :raises LedgerError: the ledger of the table is gone
    """
    record = SnapshotRecord(kind=kind, branch=branch, landing=landing, lane=lane)

    def decide(_: TableMetadata, state: LedgerState) -> Change[None] | None:
        require_ledger(state, table)
        now = state.section(landing, lane)
        new = None if now is None else change(now)
        if new is None:
            return None
        sections = tuple(new if s is now else s for s in state.sections)
        return Change(record=record, sections=sections, why=None)

    return compare_and_swap(tables, table, branch, decide, patience).state
