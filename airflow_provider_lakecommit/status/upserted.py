# SPDX-License-Identifier: Apache-2.0
"""What `verify` checks of a table that is kept equal to its source.

Contract: live rows are landed rows less superseded and deleted ones, by the summaries alone, as long as no other
writer has changed rows and no range was replaced. :func:`check_keys` (`verify --keys`) reads the key columns of all
live rows and finds keys that are there twice.

Memory: 8 bytes per row for :data:`ROWS_AT_ONCE` rows; larger tables are read several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.iceberg import DELETED, SUPERSEDED, SnapshotKind, SnapshotRecord, Tables
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.table_history import Finding, TableHistory, note_on, wrong_in

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 20_000_000
MOST_KEYS = 5
"""Keys in one finding."""


def dead_rows(record: SnapshotRecord) -> tuple[int, int]:
    """Return how many rows a snapshot superseded, and how many it deleted."""
    found = (record.extra.get(name, "0") for name in (SUPERSEDED, DELETED))
    superseded, deleted = (int(n) if n.isascii() and n.isdigit() else 0 for n in found)
    return superseded, deleted


def live_problem(history: TableHistory) -> str | None:
    """Return how the live rows of a table differ from what its snapshots state, or ``None``."""
    records = [s.record for s in history.snapshots]
    upserts = any(SUPERSEDED in r.extra for r in records)
    if not upserts or not history.whole or history.live is None or any(r.kind is SnapshotKind.REPLACE for r in records):
        return None
    rows = sum(r.rows for r in records)
    superseded, deleted = (sum(dead_rows(r)[n] for r in records) for n in (0, 1))
    if rows - superseded - deleted == history.live:
        return None
    return (
        f"has {history.live} live rows by its metadata, but {rows} landed rows less {superseded} superseded and "
        f"{deleted} deleted ones are {rows - superseded - deleted}"
    )


def check_keys(landing: Landing, tables: Tables, progress: Callable[[str], None]) -> Iterator[Finding]:
    """Yield keys that several live rows of the data table have.

    :raises CatalogError: the catalog or the storage is unreachable
    """
    if not landing.upsert.key:
        yield note_on(landing.table, "the landing has no `upsert`: no key was checked")
        return
    if (table := tables.find(landing.table)) is None:
        return
    import numpy as np
    import pyarrow as pa

    from airflow_provider_lakecommit.iceberg import Columns, DeletePositions, HeadReader, Numbers, hashes, live_rows

    head, positions = HeadReader(landing.table).read(table, landing.branch), DeletePositions(landing.table)
    columns = Columns(table.schema(), tuple(landing.upsert.key), landing.upsert.order_column)

    def blocks() -> Iterator[tuple[list[pa.Array], Numbers]]:
        for one in live_rows(table, head, positions, columns):
            if one.keys is not None:
                keys = [k.filter(pa.array(one.live)) for k in one.keys]
                yield keys, hashes(keys)

    rows = sum(e.data_file.record_count for e in head.entries.values())
    passes = -(-rows // ROWS_AT_ONCE) or 1
    twice: list[Numbers] = []
    for one in range(passes):
        progress(f"{landing.table}: reading the key of each row ({one + 1} of {passes})")
        found = np.sort(np.concatenate([np.zeros(0, np.uint64), *(h[h % passes == one] for _, h in blocks())]))
        twice.append(np.unique(found[1:][found[1:] == found[:-1]]))
    suspects = np.concatenate(twice)
    if not len(suspects):
        return
    # Different keys may have one hash.
    names = list(landing.upsert.key)
    parts = [
        pa.table([k.filter(pa.array(mine)) for k in keys], names)
        for keys, h in blocks()
        if (mine := np.isin(h, suspects)).any()
    ]
    counted = pa.concat_tables(parts).group_by(names).aggregate([([], "count_all")])
    several = counted.filter(pa.compute.greater(counted.column("count_all"), 1))
    if several.num_rows:
        some = ", ".join(str(tuple(row.values())[: len(names)]) for row in several.slice(0, MOST_KEYS).to_pylist())
        more = " …" if several.num_rows > MOST_KEYS else ""
        text = f"{several.num_rows} keys ({', '.join(names)}) have several rows: {some}{more}"
        yield wrong_in(landing.table, text)
