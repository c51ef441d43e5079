# SPDX-License-Identifier: Apache-2.0
"""What the control log says is in a table.

A table counts by its id: one recreated under the same name is another table. If the log does not know the id, the
newest id it knows is used. A range that a later epoch plans again was rolled back, as no plan takes landed ranges.

A rollback after which nothing was planned leaves no trace in the log. :func:`rows_of` gives the least number of rows
the table must then have.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from airflow_provider_lakecommit.core.log import CycleOpened, Entry, SliceReported, TablePublished
from airflow_provider_lakecommit.core.offsets import Coverage


def announced_in(entries: Sequence[Entry], table: str, uuid: UUID) -> Coverage:
    """Return the ranges that were published in a table and not planned again since.

    :param entries: of one lane, in log order
    """
    source = _source_of(entries, table, uuid)
    landed: dict[UUID | None, Coverage] = {}
    order: dict[UUID | None, int] = {None: -1}
    epochs: list[tuple[Coverage, UUID]] = []
    for e in entries:
        match e:
            case CycleOpened() if (epoch := _epoch_of(e, table, source)) is not None:
                age = order.setdefault(epoch, len(order))
                again = Coverage.union(s.coverage for s in e.plan.slices if table in s.tables)
                landed = {k: c - again if order.get(k, -1) < age else c for k, c in landed.items()}
            case SliceReported() if (of := e.report.table(table)) is not None:
                epochs.append((e.report.coverage, of.epoch))
            case TablePublished() if e.table == table and e.uuid in (None, source):
                key = next((k for c, k in reversed(epochs) if c.overlaps(e.coverage)), None)
                landed[key] = landed.get(key, Coverage()) | e.coverage
    return Coverage.union(landed.values())


def rows_of(entries: Sequence[Entry], table: str, coverage: Coverage) -> int:
    """Return the rows that these ranges gave, as far as the log still has their reports."""
    rows, counted = 0, Coverage()
    for e in reversed(entries):
        of = e.report.table(table) if isinstance(e, SliceReported) else None
        if not isinstance(e, SliceReported) or of is None:
            continue
        ranges = e.report.coverage
        if not ranges - coverage and not ranges.overlaps(counted):
            rows, counted = rows + of.rows, counted | ranges
    return rows


def _epoch_of(e: CycleOpened, table: str, uuid: UUID | None) -> UUID | None:
    return next((t.epoch for t in e.plan.targets if t.table == table and t.uuid == uuid), None)


def _source_of(entries: Sequence[Entry], table: str, uuid: UUID) -> UUID | None:
    """Return the present table id, or the newest one that the log knows."""
    known = [e.uuid for e in entries if isinstance(e, TablePublished) and e.table == table and e.uuid is not None]
    return uuid if uuid in known or not known else known[-1]
