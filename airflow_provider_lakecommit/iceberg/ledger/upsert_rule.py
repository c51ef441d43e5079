# SPDX-License-Identifier: Apache-2.0
"""The unique key of a table's rows, by its ledger, and whether the key's columns are still the same, by its history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.core import RESET_KEY, LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState, landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import SUPERSEDED


class UpsertRule(NamedTuple):
    """The key columns of a table, and the column that orders the changes of a key before their offsets."""

    key: tuple[str, ...]
    order: str | None = None


def check_key(table: str, landing: str, key: Iterable[str], sections: Iterable[LedgerSection]) -> None:
    """Check that everything in a table was landed by the key of a landing, also rows to be read again.

    :param key: no columns: it appends
    :raises LedgerError: some of it was not
    """
    declared = (*key,)
    for s in sections:
        if s.upsert_key == declared or not (s.covered or any(e.rows for e in s.provenance)):
            continue
        if s.landing == landing:
            raise LedgerError(
                "LC3055",
                f"landing {landing} declares {key_text(declared)}, but {table} has {key_text(s.upsert_key)}. "
                f"`{RESET_KEY} SPEC` shows which rows have to go, and changes the table with `--yes`; or change "
                "`upsert.key` back",
            )
        raise LedgerError(
            "LC3056",
            f"landing {landing} declares {key_text(declared)}, but landing {s.landing} lands {key_text(s.upsert_key)} "
            f"in {table}: give one of them another table, or declare the same `upsert.key` in both",
        )


def key_text(key: Iterable[str]) -> str:
    return f"one row per {', '.join(key)}" if key else "one row per record"


def check_key_columns(table: str, metadata: TableMetadata, state: LedgerState, key: Sequence[str]) -> None:
    """Check that the columns of a key are those of the newest snapshot that looked for keys; if that has expired, those
    of the oldest landing snapshot since.

    :raises LedgerError: another column has the name of one of them now
    """
    last = _last_look(metadata, state, key)
    snapshot = None if last is None else metadata.snapshot_by_id(last.snapshot_id)
    before = None if snapshot is None or snapshot.schema_id is None else metadata.schema_by_id(snapshot.schema_id)
    if before is None:
        return
    then, now = (_ids(schema, key) for schema in (before, metadata.schema()))
    if others := [name for name in key if name in then and now.get(name, then[name]) != then[name]]:
        raise LedgerError(
            "LC3058",
            f"{table}: column {', '.join(others)} of the key was replaced by another column of this name, in which the "
            f"rows have other values, or none. `{RESET_KEY} SPEC` makes them unique by the new column; or rename the "
            "columns back",
        )


def _last_look(metadata: TableMetadata, state: LedgerState, key: Sequence[str]) -> SnapshotRecord | None:
    oldest = None
    for oldest in landing_snapshots(metadata, state.branch):
        if SUPERSEDED in oldest.extra:
            return oldest
    return oldest if any(s.covered and s.upsert_key == (*key,) for s in state.sections) else None


def _ids(schema: Schema, names: Sequence[str]) -> dict[str, int]:
    return {f.name: f.field_id for f in schema.fields if f.name in names}
