# SPDX-License-Identifier: Apache-2.0
"""The snapshot after which a table has one row per key, or one per record again, by its ledger.

Contract: rows are searched on the head that the request asserts, and removed in the snapshot that changes the ledger.
All entries of the landing get a new epoch: slices written by the former rule are read again.

Failure story: as of any compare-and-swap, see :mod:`~airflow_provider_lakecommit.committer.swap`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from airflow_provider_lakecommit.committer.delete_files import Superseded
from airflow_provider_lakecommit.committer.ledger import read_ledger, require_ledger
from airflow_provider_lakecommit.committer.stage import Attempt, stage
from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.committer.swap import Change, compare_and_swap, ledger_change
from airflow_provider_lakecommit.core import LIVE, Decision
from airflow_provider_lakecommit.iceberg import Tables


def rekey_table(
    tables: Tables,
    table: str,
    *,
    landing: str,
    branch: str,
    key: tuple[str, ...],
    scan: Callable[[Table], Superseded | None],
    new_epoch: Callable[[], UUID],
    decided: Callable[[Superseded | None], Decision],
) -> tuple[Superseded | None, int | None]:
    """Change the key of a landing's rows; returns the removed rows, and the snapshot.

    :param scan: called with each head; returns the rows to remove, or ``None``
    :param decided: the user's decision about these rows
    :raises LedgerError: the ledger is missing, or its rollback is not resolved
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable
    """

    def change(loaded: Table) -> Change[Superseded | None]:
        state = read_ledger(loaded.metadata, branch)
        require_ledger(state, table)
        found = scan(loaded)
        record = SnapshotRecord(
            kind=SnapshotKind.INIT,
            branch=branch,
            landing=landing,
            lane=LIVE,
            extra={} if found is None else found.extra,
            decisions=(decided(found),),
        )
        sections = tuple(
            replace(s, upsert_key=key, epoch=new_epoch()) if s.landing == landing else s for s in state.sections
        )
        last[:] = [found]
        return ledger_change(table, state, record, sections, found)

    def staged(loaded: Table, on: str, files: Sequence[DataFile], summary: Mapping[str, str]) -> Attempt:
        return stage(loaded, on, files, summary, rewrite=None if last[0] is None else last[0].rewrite)

    last: list[Superseded | None] = []
    swapped = compare_and_swap(tables, table, branch, change, staging=staged)
    return (swapped.landed.why if swapped.landed else None), swapped.snapshot_id
