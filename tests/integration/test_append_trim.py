# SPDX-License-Identifier: Apache-2.0
"""Old snapshots of created tables are expired, and nothing that anybody needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.core import LIVE
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.trim import expire_older, trim_snapshots
from tests.fakes.catalog import Fault
from tests.fakes.lake import Lake, coverage, staged
from tests.support.upserts import UpsertLake

pytestmark = pytest.mark.integration


def landed(path: Path, commits: int, keep: str = "8") -> Lake:
    lake = Lake(path, properties={KEEP_SNAPSHOTS: keep})
    lake.create()
    ours = lake.join()
    for n in range(commits):
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch)))
    return lake


def test_old_snapshots_go_and_rows_and_ledger_stay(tmp_path: Path) -> None:
    lake = landed(tmp_path, 10)
    assert len(lake.load().metadata.snapshots) == 11
    assert trim_snapshots(lake.tables, lake.name) == 3
    assert len(lake.load().metadata.snapshots) == len(lake.metadata_files("snap-*.avro")) == 8
    assert lake.rows() == 10
    assert lake.state().condition is Condition.PRESENT
    assert lake.state().covered() == coverage((0, 0, 10))
    assert trim_snapshots(lake.tables, lake.name) == 0


def test_a_few_more_than_requested_are_left_for_later(tmp_path: Path) -> None:
    assert trim_snapshots(landed(tmp_path, 9).tables, "shop.orders") == 0


def test_a_table_without_the_setting_is_left_alone(tmp_path: Path) -> None:
    lake = landed(tmp_path, 4, keep="never")
    assert trim_snapshots(lake.tables, lake.name) == 0


def test_what_others_refer_to_stays(tmp_path: Path) -> None:
    lake = landed(tmp_path, 10)
    line = sorted(lake.load().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    lake.load().manage_snapshots().create_tag(line[0].snapshot_id, "first").create_branch(
        line[1].snapshot_id, "audit"
    ).commit()
    assert trim_snapshots(lake.tables, lake.name) == 1
    left = {s.snapshot_id for s in lake.load().metadata.snapshots}
    assert {line[0].snapshot_id, line[1].snapshot_id} <= left


def test_the_way_to_the_ledger_is_never_cut(tmp_path: Path) -> None:
    lake = landed(tmp_path, 2)
    for _ in range(12):
        lake.append_foreign()
    assert trim_snapshots(lake.tables, lake.name) == 2
    assert lake.state().condition is Condition.PRESENT


def test_a_failure_leaves_all_as_it_was(tmp_path: Path) -> None:
    lake = landed(tmp_path, 10)
    lake.catalog.faults.append(Fault.NOT_APPLIED)
    assert trim_snapshots(lake.tables, lake.name) == 0
    assert len(lake.load().metadata.snapshots) == len(lake.metadata_files("snap-*.avro")) == 11


def test_a_user_expires_what_is_old_whoever_made_it_and_never_the_ledger(tmp_path: Path) -> None:
    lake = landed(tmp_path, 10, keep="never")
    now = lake.load().metadata.snapshots[-1].timestamp_ms + 1
    line = sorted(lake.load().metadata.snapshots, key=lambda s: s.sequence_number or 0)
    half = line[5].timestamp_ms
    older = [s for s in line if s.timestamp_ms < half]
    assert expire_older(lake.tables, lake.name, "main", before_ms=half) == len(older)
    assert len(lake.load().metadata.snapshots) == 11 - len(older)
    assert expire_older(lake.tables, lake.name, "main", before_ms=now, keep=4) == 11 - len(older) - 4
    assert expire_older(lake.tables, lake.name, "main", before_ms=now, landing="nobody") == 0
    assert expire_older(lake.tables, lake.name, "main", before_ms=now) == 3
    assert [s.snapshot_id for s in lake.load().metadata.snapshots] == [line[-1].snapshot_id]
    assert (lake.rows(), lake.state().condition) == (10, Condition.PRESENT)
    assert lake.state().covered() == coverage((0, 0, 10))


def test_the_way_from_the_head_to_the_ledger_stays_when_a_user_expires(tmp_path: Path) -> None:
    lake = landed(tmp_path, 3, keep="never")
    for _ in range(3):
        lake.append_foreign()
    now = max(s.timestamp_ms for s in lake.load().metadata.snapshots) + 1
    assert expire_older(lake.tables, lake.name, "main", before_ms=now) == 3
    assert lake.state().condition is Condition.PRESENT
    assert lake.state().foreign_since == 3


def test_the_first_snapshot_after_a_rollback_keeps_its_manifests(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(1, 1)])
    before = lake.land([(2, 1)]).snapshot_id
    undone = lake.land([(1, 2)]).snapshot_id
    lake.loaded.manage_snapshots().rollback_to_snapshot(before).commit()
    state = renew_epochs(lake.tables, lake.name, "accounts", LIVE)
    (lake.sections[LIVE],), lake.at[LIVE, lake.places[0]] = state.sections, 2
    renewed = lake.loaded.current_snapshot()
    lake.land([(1, 3)])
    assert expire_older(lake.tables, lake.name, "main", before_ms=renewed.timestamp_ms) == 3
    assert {s.snapshot_id for s in lake.loaded.metadata.snapshots} >= {undone, renewed.snapshot_id}
    assert len(lake.loaded.scan(snapshot_id=renewed.snapshot_id).to_arrow()) == 2
    assert lake.content() == {1: 3, 2: 1}
