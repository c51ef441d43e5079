# SPDX-License-Identifier: Apache-2.0
"""Warnings of a plan about tables: skipped ones, a crowded ledger, a data table that differs from its landing's
`create`, and how to recreate it.

Contract: pure, on tables as read. `create` makes a missing table and changes none, so a wrong first spec leaves a table
that differs from the corrected one. While it has no row, recreating it loses nothing. Records that it rejected may be
dead letters by then: read again for one table alone, they would be in both, so the dead-letter table must be recreated
too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from pyiceberg.table import Table

from airflow_provider_lakecommit.committer import DELETED, LOOKED_UP, SUPERSEDED, key_text, landing_snapshots
from airflow_provider_lakecommit.core import RESET_OFFSETS
from airflow_provider_lakecommit.cycle.plan.tables import Prepared, PreparedTable
from airflow_provider_lakecommit.cycle.session.tables import differences
from airflow_provider_lakecommit.landing import Landing


def lines_of(landing: Landing, prepared: Prepared, known: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the warnings of a plan, which are also logged, and everything that its explanation says of the tables.

    :param known: tables whose problems are already logged
    """
    left_out = {
        name: f"{name} is left out of this plan, and lacks the records that land now" for name in prepared.failures
    }
    apart = (f"{line}: {prepared.failures[name]}" for name, line in left_out.items() if name not in known)
    crowded = (f"{t.name}: {t.state.crowding}" for t in prepared.tables if t.state.crowding)
    warnings = (*apart, *crowded, *_not_as_stated(landing, prepared))
    logged = (line for name, line in left_out.items() if name in known)
    return warnings, (*logged, *warnings, *_upsert_lines(landing, prepared))


def _upsert_lines(landing: Landing, prepared: Prepared) -> Iterator[str]:
    """Yield what an upserting landing looks up in its table, by its last publication."""
    if not landing.upsert.key:
        return
    for t in prepared.tables:
        records = landing_snapshots(t.table.metadata, landing.branch, landing=landing.name)
        last = next((r.extra for r in records if LOOKED_UP in r.extra), None)
        if t.name == landing.table and last is not None:
            rows, _, files = last[LOOKED_UP].partition(" ")
            yield (
                f"{t.name} has {key_text(landing.upsert.key)}: the last publication looked for its keys in {rows} rows "
                f"of {files} files; {last.get(SUPERSEDED)} rows were superseded and {last.get(DELETED)} deleted"
            )


def _not_as_stated(landing: Landing, prepared: Prepared) -> Iterator[str]:
    """Yield the warnings about it, if any."""
    by_name = {t.name: t for t in prepared.tables}
    for name in landing.data_tables:
        if (data := by_name.get(name)) is not None:
            yield from _of_table(landing, data, by_name)


def _of_table(landing: Landing, data: PreparedTable, by_name: Mapping[str, PreparedTable]) -> Iterator[str]:
    if not (other := differences(landing, data.name, data.table)):
        return
    yield f"{data.name} is not as `create` says; `create` applies only to a missing table: {'; '.join(other)}"
    if _rows(data.table) != "0":
        return
    dead = by_name.get(landing.dead_letter_table or "")
    if dead is None or _rows(dead.table) in (None, "0"):
        yield f"{data.name} has no rows yet: drop it, and the next run creates it as `create` states"
    else:
        yield f"{data.name} has no rows yet: {_both(landing, data, dead)}"


def _both(landing: Landing, data: PreparedTable, dead: PreparedTable) -> str:
    others = sorted({s.landing for s in dead.state.sections} - {landing.name})
    if others:
        return (
            f"drop it, and the next run reports the snapshot to roll {dead.name} back to: that table has its rejected "
            f"records and those of {', '.join(others)}"
        )
    return (
        f"drop it and {dead.name}, which has its rejected records; then `{RESET_OFFSETS} SPEC --from earliest` creates "
        "both, and the next run reads everything again as `create` states"
    )


def _rows(table: Table) -> str | None:
    """Return the row count by the newest snapshot."""
    head = table.current_snapshot()
    return head.summary.additional_properties.get("total-records") if head and head.summary else None
