# SPDX-License-Identifier: Apache-2.0
"""Ledgers and summaries that an earlier commit left in tables are read as what they said then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.control.packed_text import unpack
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, read_ledger
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, record_of, sections_of, to_summary
from tests.fixtures.recorded import differences, table_metadata, told

TABLES = {name: TableMetadataUtil.parse_raw(text) for name, text in table_metadata().items()}
SNAPSHOTS = [(name, snapshot) for name, metadata in TABLES.items() for snapshot in metadata.snapshots]


def plain(properties: Mapping[str, str]) -> dict[str, Any]:
    """Envelopes as what is in them."""
    ours = {key: value for key, value in properties.items() if key.startswith("lakecommit.")}
    return {key: unpack(v, what=key) if v.startswith(("{", "z:")) else v for key, v in ours.items()}


@pytest.mark.parametrize(("table", "snapshot"), SNAPSHOTS, ids=[f"{t}-{s.sequence_number}" for t, s in SNAPSHOTS])
def test_a_summary_is_read_as_what_it_reported(table: str, snapshot: Snapshot) -> None:
    record = record_of(snapshot)
    assert record is not None
    assert set(record.extra) <= {"files"}, "a key that is not known would be carried on unread"
    assert snapshot.summary is not None
    then = plain(snapshot.summary.additional_properties)
    now = plain(to_summary(record, sections_of(snapshot)))
    for values in (then, now):
        for envelope in values.values():
            if isinstance(envelope, dict):
                envelope.pop("v")
    assert list(differences(then, now)) == []


@pytest.mark.parametrize("table", TABLES)
def test_the_ledger_of_a_table_is_read_as_it_was_reported(table: str) -> None:
    recorded = [each for landing in told()["landings"].values() for each in landing["ledger"]]
    then = next(each for each in recorded if each["table"] == f"shop.{table}")
    state = read_ledger(TABLES[table], "main")
    assert state.condition is Condition.PRESENT
    assert state.snapshot_id == then["snapshot_id"]
    ends = {(s.landing, str(p)): s.end(p) for s in state.sections for p in s.starts}
    for section in then["sections"]:
        for partition, start in section["starts"].items():
            covered = section["covered"].get(partition)
            assert ends[section["landing"], partition] == (covered[0][1] if covered else start)


def test_snapshots_of_all_kinds_that_a_story_makes_were_recorded() -> None:
    kinds = {record.kind for _, snapshot in SNAPSHOTS if (record := record_of(snapshot)) is not None}
    assert {SnapshotKind.ORIGIN, SnapshotKind.APPEND, SnapshotKind.INIT, SnapshotKind.EPOCH} <= kinds
    assert max(len(sections_of(snapshot)) for _, snapshot in SNAPSHOTS) == 2
