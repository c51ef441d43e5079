# SPDX-License-Identifier: Apache-2.0
"""Find rows of a table that are not the newest of their keys, and remove them in the snapshot that changes the key.

Contract: reads the key and order columns of all live rows. The newest row of a key stays, in the order of
:mod:`~airflow_provider_lakecommit.iceberg.ledger.newest`; if it is a delete in the source, it is removed too, unless
deletes are kept as rows. Rows without ``kafka_offset`` are older than all others. Keys whose newest row is unknown
count as ``undecided``: rows of several partitions that only offsets order, or several rows without offsets.

Memory: some 100 bytes, and the key, of :data:`ROWS_AT_ONCE` rows; larger tables are read several times.

After the snapshot of :func:`rekey_table`, a table has one row per key, or one per record again, by its ledger. Rows are
searched on the head that the request asserts, and removed in the snapshot that changes the ledger. All entries of the
landing get a new epoch: slices written by the former rule are read again.

Failure story: as of any compare-and-swap, see :mod:`~airflow_provider_lakecommit.iceberg.ledger.swap`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import LIVE, Decision
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.delete_files import (
    DeleteFiles,
    Superseded,
    require_known_rows,
    require_parquet,
)
from airflow_provider_lakecommit.iceberg.ledger.head import Head, HeadReader
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.newest import Changes, Columns, Order, live_rows, rank
from airflow_provider_lakecommit.iceberg.ledger.stage import Change
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap, ledger_change
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule
from airflow_provider_lakecommit.iceberg.parquet.key_set import hashes
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, ParquetRows

ROWS_AT_ONCE = 5_000_000
_UNKNOWN = np.iinfo(np.int64).min
"""The offset of a row without one."""


class KeyRows:
    """The search of one operation, over all its heads.

    :param deletes: columns and values of a row that is a delete in the source
    :param kept: such rows stay as the newest ones
    :param ignored: such rows are removed, and the newest other row of the key stays
    :param progress: takes the number of the present scan of the table, and of all of them
    """

    def __init__(
        self,
        name: str,
        branch: str,
        landing: str,
        rule: UpsertRule,
        deletes: Mapping[str, bool | str],
        *,
        kept: bool = False,
        ignored: bool = False,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._name, self._rule, self._values, self._progress = name, rule, deletes, progress
        self._kept, self._ignored = kept, ignored
        self._heads, self._branch, self._deletes = HeadReader(name), branch, DeleteFiles(name, landing)

    def on(self, table: Table, check: Callable[[Superseded], None], *, write: bool) -> Superseded:
        """Return the rows of this head that are not the newest of their keys.

        :param check: raises if they must not be removed
        :param write: also write the delete files
        :raises TableError: the rows cannot be determined, or one has no key
        :raises StorageError: the storage cannot be read or written
        """
        head = self._heads.read(table, self._branch)
        require_known_rows(head, table, self._name)
        columns = Columns(table.schema(), self._rule.key, self._rule.order)
        sections = read_ledger(table.metadata, self._branch).sections
        many = sum(e.data_file.record_count for e in head.entries.values())
        passes = -(-many // ROWS_AT_ONCE) or 1
        paths = list(head.entries)
        removed: defaultdict[str, list[Numbers]] = defaultdict(list)
        superseded = deleted = undecided = 0
        for number in range(passes):
            self._progress(number + 1, passes)
            some = Changes.joined([*self._rows(table, head, columns, number, passes)], len(self._rule.key))
            out, by_delete, unknown = self._too_many(some._replace(order=columns.in_log_order(some.order, sections)))
            superseded, deleted, undecided = superseded + len(out) - by_delete, deleted + by_delete, undecided + unknown
            for n in np.unique(some.file[out]).tolist():
                removed[paths[n]].append(some.row[out[some.file[out] == n]])
        rows = {path: np.sort(np.concatenate(parts)) for path, parts in removed.items()}
        found = Superseded(
            rewrite=None,
            superseded=superseded,
            deleted=deleted,
            files_read=len(head.entries),
            rows_read=many,
            undecided=undecided,
        )
        check(found)
        return replace(found, rewrite=self._deletes.rewrite(table, head, rows)) if write else found

    def _rows(self, table: Table, head: Head, columns: Columns, number: int, passes: int) -> Iterator[Changes]:
        """Yield the live rows of one scan: those whose hashes have this remainder."""
        for entry in head.entries.values():
            require_parquet(entry.data_file, self._name)
        for one in live_rows(table, head, self._deletes.positions, columns):
            if one.keys is None or any(k.null_count for k in one.keys):
                path = list(head.entries)[one.file]
                raise TableError(
                    "LC3057",
                    f"{self._name}: file {path} has rows without a value in {', '.join(self._rule.key)}, so no key "
                    "identifies them: fill these columns, delete the rows, or choose another key",
                )
            mine = np.flatnonzero(one.live & (hashes(one.keys) % np.uint64(passes) == number))
            yield Changes(
                keys=[k.take(pa.array(mine)) for k in one.keys],
                order=columns.orders(one.parquet, one.group, one.constants).take(mine),
                is_delete=self._is_delete(table, one.parquet, one.group, len(one.live))[mine],
                file=np.full(len(mine), one.file, np.int64),
                row=mine + one.at,
            )

    def _is_delete(self, table: Table, parquet: ParquetRows, group: int, many: int) -> Numbers:
        out = np.zeros(many, bool)
        for column, value in self._values.items():
            field = next((f for f in table.schema().fields if f.name == column), None)
            name = None if field is None else parquet.name(field.field_id)
            if name is not None:
                values = parquet.group(group, [name]).column(name)
                out |= pc.fill_null(pc.equal(values, value), False).to_numpy()
        return out

    def _too_many(self, some: Changes) -> tuple[Numbers, int, int]:
        """Return the rows to remove, how many of them the source deleted, and the number of undecided keys."""
        counted = np.arange(len(some.row)) if not self._ignored else np.flatnonzero(~some.is_delete)
        grouped = rank([k.take(pa.array(counted)) for k in some.keys], some.order.take(counted))
        rows, winner = counted[grouped.by_key], counted[grouped.winner]
        ends = some.is_delete[winner] & (not self._kept)
        out = rows[(rows != winner) | ends]
        ignored = np.flatnonzero(some.is_delete) if self._ignored else counted[:0]
        unknown = len(
            np.unique(winner[_is_undecided(some.order.take(rows), some.order.take(winner)) & (rows != winner)])
        )
        return np.concatenate([out, ignored]), int(ends.sum()), unknown


def _is_undecided(rows: Order, winners: Order) -> Numbers:
    """Return which rows may be newer than the chosen row."""
    unknown, other = rows.offset == _UNKNOWN, winners.offset == _UNKNOWN
    found: Numbers = (rows.column == winners.column) & np.where(
        unknown | other, unknown & other, rows.source != winners.source
    )
    return found


def rekey_table(
    tables: Tables,
    table: str,
    *,
    landing: str,
    branch: str,
    key: tuple[str, ...],
    scan: Callable[[Table], tuple[Superseded | None, Decision]],
) -> tuple[Superseded | None, int | None]:
    """Change the key of a landing's rows; returns the removed rows, and the snapshot.

    :param scan: called with each head; returns the rows to remove, or ``None``, and the user's decision about them
    :raises LedgerError: the ledger is missing, or its rollback is not resolved
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable
    """

    def change(loaded: Table) -> Change[Superseded | None]:
        state = read_ledger(loaded.metadata, branch)
        require_ledger(state, table)
        found, decision = scan(loaded)
        record = SnapshotRecord(
            kind=SnapshotKind.INIT,
            branch=branch,
            landing=landing,
            lane=LIVE,
            extra={} if found is None else found.extra,
            decisions=(decision,),
        )
        sections = tuple(
            replace(s, upsert_key=key, epoch=uuid4()) if s.landing == landing else s for s in state.sections
        )
        made = ledger_change(table, state, record, sections, found)
        return replace(made, rewrite=None if found is None else found.rewrite)

    swapped = compare_and_swap(tables, table, branch, change)
    return swapped.made, swapped.snapshot_id
