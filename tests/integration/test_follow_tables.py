# SPDX-License-Identifier: Apache-2.0
"""The tables of a follow stay small: snapshots of its own go, manifests are merged, and what tells the truth stays."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition
from airflow_provider_lakecommit.iceberg.ledger.manifests import TIER
from airflow_provider_lakecommit.iceberg.ledger.trim import expire_older
from tests.fakes.lake import Lake, coverage, staged

pytestmark = pytest.mark.integration


def landed(path: Path, commits: int, **properties: str) -> Lake:
    path.mkdir(exist_ok=True)
    lake = Lake(path, properties=properties)
    lake.create()
    ours = lake.join()
    for n in range(commits):
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch)))
    return lake


def soon() -> int:
    return int(time.time() * 1000) + 1000


def expire(lake: Lake, landing: str = "orders", before_ms: int | None = None) -> int:
    return expire_older(
        lake.tables, lake.name, "main", landing=landing, before_ms=soon() if before_ms is None else before_ms
    )


def entries(lake: Lake) -> list[tuple[str, int, int]]:
    """Path, snapshot and sequence number of each file of the head."""
    table = lake.load()
    head = table.current_snapshot()
    assert head is not None
    return sorted(
        (e.data_file.file_path, e.snapshot_id or 0, e.sequence_number or 0)
        for m in head.manifests(table.io)
        for e in m.fetch_manifest_entry(table.io, discard_deleted=True)
    )


def manifests(lake: Lake) -> int:
    table = lake.load()
    head = table.current_snapshot()
    return len(head.manifests(table.io)) if head else 0


@pytest.mark.heavy
def test_manifests_are_merged_and_every_entry_keeps_what_it_was(tmp_path: Path) -> None:
    merged = landed(tmp_path / "merged", 2 * TIER + 3)
    plain = landed(tmp_path / "plain", 2 * TIER + 3, **{"commit.manifest-merge.enabled": "false"})
    assert manifests(plain) == 2 * TIER + 3
    assert manifests(merged) <= TIER
    assert sorted(e[2] for e in entries(merged)) == sorted(e[2] for e in entries(plain))
    assert len({e[1] for e in entries(merged)}) == 2 * TIER + 3
    assert merged.rows() == 2 * TIER + 3
    assert merged.state().covered() == coverage((0, 0, 2 * TIER + 3))


def test_own_snapshots_go_with_what_only_they_list(tmp_path: Path) -> None:
    lake = landed(tmp_path, TIER + 8)
    before = entries(lake)
    assert expire(lake) == TIER + 8
    assert len(lake.load().metadata.snapshots) == 1
    assert len(lake.metadata_files("snap-*.avro")) == 1
    assert len(lake.metadata_files("*-m*.avro")) == manifests(lake)
    assert entries(lake) == before
    assert lake.rows() == TIER + 8
    assert lake.state().condition is Condition.PRESENT
    lake.publish(lake.request(staged((0, TIER + 8, TIER + 9), epoch=lake.state().sections[0].epoch)))
    assert lake.rows() == TIER + 9


def test_young_snapshots_those_of_others_and_referred_ones_stay(tmp_path: Path) -> None:
    lake = landed(tmp_path, 6)
    assert expire(lake, before_ms=0) == 0
    assert expire(lake, landing="another") == 0
    line = sorted(lake.load().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    lake.load().manage_snapshots().create_tag(line[2].snapshot_id, "kept").create_branch(
        line[4].snapshot_id, "audit"
    ).commit()
    # A branch keeps its whole past.
    assert expire(lake) == 1
    left = {s.snapshot_id for s in lake.load().metadata.snapshots}
    assert left == {s.snapshot_id for s in line} - {line[5].snapshot_id}
    assert lake.rows() == 6


@pytest.mark.heavy(but=("3",))
@pytest.mark.parametrize("back", [3, TIER])
def test_a_rollback_is_observed_over_merged_manifests(tmp_path: Path, back: int) -> None:
    lake = landed(tmp_path, TIER + 6)
    line = sorted(lake.load().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    lake.load().manage_snapshots().rollback_to_snapshot(line[-1 - back].snapshot_id).commit()
    state = lake.state()
    assert state.condition is Condition.ROLLED_BACK
    assert lake.rows() == TIER + 6 - back
    # Of the line that is left; what was rolled back is next to it, and is nobody's to expire here.
    expire(lake)
    assert lake.rows() == TIER + 6 - back
    assert lake.state().condition is Condition.ROLLED_BACK
