# SPDX-License-Identifier: Apache-2.0
"""Publishing into tables of a real catalog: what a commit leaves in the table, and what it refuses."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core.identity import token
from airflow_provider_lakecommit.core.model import ControlPosition, Counts
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, landing_snapshots, tag_name
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import set_section
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import (
    change_section,
    join_table,
    refresh_ledger,
    renew_epochs,
)
from airflow_provider_lakecommit.iceberg.ledger.manifests import TIER
from airflow_provider_lakecommit.iceberg.ledger.overwrite import OverwritingFiles, Rewrite
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import Grounds
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint, SnapshotKind
from tests.fakes.lake import CONTROL, Lake, at, coverage, data_file, section, spans, staged
from tests.fakes.position_deletes import delete_equal

pytestmark = pytest.mark.integration

OURS = ("orders", "live")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create()
    return made


def test_the_first_commit_of_a_landing_is_an_initial_entry_without_files(lake: Lake) -> None:
    stated = section(starts={at(0): 40})
    assert lake.join(stated) == stated
    head = lake.load().current_snapshot()
    assert head is not None
    assert [(r.kind, r.landing, r.lane) for r in landing_snapshots(lake.load().metadata)] == [
        (SnapshotKind.ORIGIN, "orders", "live")
    ]
    assert lake.rows() == 0


def test_slices_become_one_snapshot_that_reports_its_story(lake: Lake) -> None:
    ours = lake.join()
    a, b = staged((0, 0, 10), epoch=ours.epoch), staged((0, 10, 12), (1, 0, 4), epoch=ours.epoch)
    end = LogPoint(topic_id="log", partition=2, offset=17)
    moved = replace(CONTROL, read_from=9)
    request = lake.request(a, b, control=moved, control_end=end, record_bytes=260, extra={"valid-through": "now"})
    outcome = lake.publish(request)
    table_uuid = lake.load().metadata.table_uuid
    assert outcome.published == (a, b)
    assert (outcome.already, outcome.refused, outcome.requests_sent) == ((), (), 1)
    assert outcome.token == token(request.commit_id, table_uuid, [a.slice_id, b.slice_id])
    record = next(landing_snapshots(lake.load().metadata))
    assert record.snapshot_id == outcome.snapshot_id == lake.load().metadata.current_snapshot_id
    assert (record.kind, record.token, record.commit_id) == (SnapshotKind.APPEND, outcome.token, request.commit_id)
    assert record.ranges == coverage((0, 0, 12), (1, 0, 4))
    assert record.accounting == {at(0): Counts(landed=12), at(1): Counts(landed=4)}
    assert (record.rows, record.control_end, record.extra) == (16, end, {"valid-through": "now"})
    assert lake.rows() == 16
    found = outcome.state.section("orders", "live")
    assert found == replace(ours, covered=record.ranges, control=moved, record_bytes=260)
    assert found == lake.state().section("orders", "live")


def test_a_retry_of_the_same_commit_sends_nothing(lake: Lake) -> None:
    ours = lake.join()
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch), staged((1, 0, 5), epoch=ours.epoch))
    lake.publish(request)
    again = lake.publish(request)
    assert again.already == request.slices
    assert (again.published, again.snapshot_id, again.token, again.requests_sent) == ((), None, None, 0)
    assert lake.rows() == 15


def test_a_retry_with_more_appends_only_what_is_new(lake: Lake) -> None:
    ours = lake.join()
    old, new = staged((0, 0, 10), epoch=ours.epoch), staged((0, 10, 12), epoch=ours.epoch)
    lake.publish(lake.request(old))
    outcome = lake.publish(lake.request(old, new))
    assert (outcome.published, outcome.already) == ((new,), (old,))
    assert lake.rows() == 12


def test_a_slice_without_rows_counts_as_passed(lake: Lake) -> None:
    ours = lake.join()
    empty = staged((0, 0, 10), epoch=ours.epoch, files=(), rows=0)
    outcome = lake.publish(lake.request(empty))
    assert outcome.published == (empty,)
    assert outcome.state.covered() == coverage((0, 0, 10))
    assert lake.rows() == 0


def test_the_control_position_stays_while_a_slice_is_refused(lake: Lake) -> None:
    ours = lake.join()
    moved = replace(CONTROL, read_from=50)
    good, waits = staged((0, 0, 10), epoch=ours.epoch), staged((0, 20, 30), epoch=ours.epoch)
    outcome = lake.publish(lake.request(good, waits, control=moved))
    assert [r.grounds for r in outcome.refused] == [Grounds.HOLE]
    found = outcome.state.section("orders", "live")
    assert found is not None
    assert found.control == CONTROL


def test_the_ledgers_of_two_landings_are_carried_in_one_table(lake: Lake) -> None:
    ours = lake.join()
    theirs = lake.join(section("returns", starts={at(5): 0}))
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    outcome = lake.publish(lake.request(staged((5, 0, 3), epoch=theirs.epoch), landing="returns"))
    assert {s.landing: s.covered for s in outcome.state.sections} == {
        "orders": coverage((0, 0, 10)),
        "returns": coverage((5, 0, 3)),
    }
    taken = lake.publish(lake.request(staged((0, 0, 4), epoch=theirs.epoch), landing="returns"))
    assert [r.grounds for r in taken.refused] == [Grounds.OVERLAP]
    assert taken.requests_sent == 0


def test_appends_deletes_and_overwrites_of_others_do_not_disturb(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.append_foreign(rows=3)
    lake.publish(lake.request(staged((0, 10, 20), epoch=ours.epoch)))
    assert lake.rows() == 23
    lake.load().delete("id is not null")
    outcome = lake.publish(lake.request(staged((0, 20, 25), epoch=ours.epoch)))
    assert outcome.state.covered() == coverage((0, 0, 25))
    assert lake.rows() == 5


def test_a_table_without_a_section_of_the_landing_is_refused(lake: Lake) -> None:
    with pytest.raises(LedgerError, match=r"stream live of landing orders.*LC3005"):
        lake.publish(lake.request(staged((0, 0, 10), epoch=uuid4())))


def test_a_missing_table_is_refused(lake: Lake) -> None:
    ours = lake.join()
    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.drop_table(lake.name)
    with pytest.raises(TableError, match=r"there is no table shop\.orders.*LC3304"):
        lake.publish(request)


def test_a_table_that_was_dropped_and_made_anew_is_another_table(lake: Lake) -> None:
    ours = lake.join()
    before = lake.load().metadata.table_uuid
    lake.catalog.drop_table(lake.name)
    lake.create()
    with pytest.raises(LedgerError, match=f"{before}.*LC3004"):
        lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch), table_uuid=before))
    with pytest.raises(LedgerError, match=f"{before}.*LC3017"):
        join_table(lake.tables, lake.name, section(), table_uuid=before)
    assert lake.load().current_snapshot() is None


def test_a_rolled_back_slice_is_never_committed_again(lake: Lake) -> None:
    ours = lake.join()
    keep = lake.load().metadata.current_snapshot_id
    missing = staged((0, 0, 10), epoch=ours.epoch)
    lake.publish(lake.request(missing))
    lake.load().manage_snapshots().rollback_to_snapshot(keep).commit()
    refused = lake.publish(lake.request(missing))
    assert [r.grounds for r in refused.refused] == [Grounds.EPOCH]
    assert refused.state.condition is Condition.ROLLED_BACK

    state = renew_epochs(lake.tables, lake.name, "orders", "live")
    renewed = state.section("orders", "live")
    assert state.condition is Condition.PRESENT
    assert renewed is not None
    assert renewed.epoch != ours.epoch
    assert [r.grounds for r in lake.publish(lake.request(missing)).refused] == [Grounds.EPOCH]
    assert lake.publish(lake.request(staged((0, 0, 10), epoch=renewed.epoch))).published
    assert lake.rows() == 10


def test_a_new_epoch_is_for_all_sections_and_made_once(lake: Lake) -> None:
    ours, theirs = lake.join(), lake.join(section("returns"))
    assert renew_epochs(lake.tables, lake.name, "orders", "live").sections == lake.state().sections
    assert lake.state().section("orders", "live") == ours
    head = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.roll_back(head)
    state = renew_epochs(lake.tables, lake.name, "orders", "live")
    assert renew_epochs(lake.tables, lake.name, "orders", "live").sections == state.sections
    assert {s.epoch for s in state.sections}.isdisjoint({ours.epoch, theirs.epoch})
    assert [r.kind for r in landing_snapshots(lake.load().metadata)] == [
        SnapshotKind.EPOCH,
        SnapshotKind.ORIGIN,
        SnapshotKind.ORIGIN,
    ]


@pytest.mark.parametrize("kind", [SnapshotKind.CARRY, SnapshotKind.EPOCH])
def test_a_section_that_is_not_there_is_not_changed(lake: Lake, kind: SnapshotKind) -> None:
    lake.join()
    head = lake.state().head_id
    with pytest.raises(LedgerError, match=r"stream live of landing returns.*LC3016"):
        change_section(lake.tables, lake.name, "returns", "live", kind, lambda now: now)
    assert lake.state().head_id == head


def test_no_landing_joins_a_table_whose_rollback_was_not_dealt_with(lake: Lake) -> None:
    keep = lake.append_foreign()
    lake.join()
    middle = lake.load().metadata.current_snapshot_id
    refresh_ledger(lake.tables, lake.name, "orders", "live")
    lake.load().manage_snapshots().rollback_to_snapshot(middle).commit()
    with pytest.raises(LedgerError, match=r"the epochs of orders \(live\) .*LC3037"):
        lake.join(section("returns"))
    with pytest.raises(LedgerError, match="LC3037"):
        refresh_ledger(lake.tables, lake.name, "orders", "live")
    lake.load().manage_snapshots().rollback_to_snapshot(keep).commit()
    with pytest.raises(LedgerError, match=r"lakecommit reset offsets.*LC3008"):
        lake.join(section("returns"))


def test_a_user_sets_a_ledger_that_was_lost(lake: Lake) -> None:
    keep = lake.append_foreign()
    ours = lake.join()
    lake.load().manage_snapshots().set_current_snapshot(keep).commit()
    stated = section(covered=coverage((0, 0, 7)))
    assert set_section(lake.tables, lake.name, *OURS, lambda _: stated).section(*OURS) == stated
    head = lake.load().metadata.current_snapshot_id
    assert set_section(lake.tables, lake.name, *OURS, lambda _: stated).head_id == head
    assert lake.state().condition is Condition.PRESENT
    assert [r.grounds for r in lake.publish(lake.request(staged((0, 7, 9), epoch=ours.epoch))).refused] == [
        Grounds.EPOCH
    ]
    assert lake.publish(lake.request(staged((0, 7, 9), epoch=stated.epoch))).published


def test_a_ledger_set_by_hand_needs_a_new_epoch(lake: Lake) -> None:
    ours = lake.join()
    with pytest.raises(LedgerError, match="LC3012"):
        set_section(lake.tables, lake.name, *OURS, lambda _: replace(ours, covered=coverage((0, 0, 7))))


def test_a_joining_landing_finds_its_section_again(lake: Lake) -> None:
    ours = lake.join()
    assert lake.join(section()) == ours
    assert lake.state().head_id == lake.state().snapshot_id


def test_carrying_the_ledger_moves_nothing_but_the_position(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.append_foreign()
    moved = ControlPosition(cluster_id="c", topic="t", topic_id="i", partition=1, read_from=5, low=4)
    state = refresh_ledger(lake.tables, lake.name, "orders", "live", control=moved)
    assert state.sections == (replace(ours, covered=coverage((0, 0, 10)), control=moved),)
    assert state.foreign_since == 0
    assert lake.rows() == 11


def test_a_slice_written_before_the_partitioning_changed_is_void(lake: Lake) -> None:
    ours = lake.join()
    late = staged((0, 0, 10), epoch=ours.epoch)
    with lake.load().update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    outcome = lake.publish(lake.request(late))
    assert [r.grounds for r in outcome.refused] == [Grounds.SPEC]
    spec_id = lake.load().metadata.default_spec_id
    files = (data_file("file:///data/new.parquet", 10, spec_id=spec_id, partition=[3]),)
    assert lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch, files=files, spec_id=spec_id))).published
    assert lake.rows() == 10


@pytest.mark.heavy
def test_many_manifests_of_a_partitioning_whose_column_is_missing_are_merged(tmp_path: Path) -> None:
    """The current schema does not say any more of which type their partition values are."""
    lake = Lake(tmp_path)
    lake.create(PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "of_note")))
    ours = lake.join()
    for n in range(TIER):
        files = (data_file(f"file:///data/{n}.parquet", 1, partition=["x"]),)
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch, files=files)))
    with lake.load().update_spec() as spec:
        spec.remove_field("of_note")
    with lake.load().update_schema() as schema:
        schema.delete_column("note")
    now = lake.load().metadata
    files = (data_file("file:///data/later.parquet", 1, spec_id=now.default_spec_id),)
    later = staged((0, TIER, TIER + 1), epoch=ours.epoch, files=files, spec_id=now.default_spec_id)
    assert lake.publish(lake.request(later)).published
    head = lake.load().current_snapshot()
    assert head is not None
    assert sorted(m.existing_files_count for m in head.manifests(lake.load().io)) == [0, TIER]
    assert lake.rows() == TIER + 1


@pytest.mark.heavy
def test_a_manifest_with_equality_deletes_is_never_written_anew(tmp_path: Path) -> None:
    """pyiceberg writes their ids with a type that Spark cannot read."""
    lake = Lake(tmp_path)
    lake.create()
    ours = lake.join()
    odd = data_file("file:///data/odd.parquet", 1)
    (tmp_path / "warehouse" / "shop" / "orders" / "data").mkdir(parents=True)
    delete_equal(lake.load(), MAIN_BRANCH, odd, "id", 1, among=[odd])
    (mixed,) = (m.manifest_path for m in manifests(lake))
    for n in range(TIER + 1):
        files = (data_file(f"file:///data/{n}.parquet", 1),)
        assert lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch, files=files))).published
    found = manifests(lake)
    assert sorted(m.existing_files_count for m in found) == [0, 0, TIER]
    assert mixed in {m.manifest_path for m in found}
    rewrite = Rewrite(removed=frozenset({odd.file_path}))
    with pytest.raises(TableError, match="LC3021"):
        OverwritingFiles(lake.load().transaction(), rewrite, branch=MAIN_BRANCH)._manifests()


def manifests(lake: Lake) -> list[ManifestFile]:
    head = lake.load().current_snapshot()
    return [] if head is None else head.manifests(lake.load().io)


def test_partitioning_that_changes_between_check_and_request_is_noticed(lake: Lake) -> None:
    ours = lake.join()

    def evolve() -> None:
        lake.catalog.before_commit = lambda: None
        with lake.load().update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")

    request = lake.request(staged((0, 0, 10), epoch=ours.epoch))
    lake.catalog.before_commit = evolve
    outcome = lake.publish(request)
    assert [r.grounds for r in outcome.refused] == [Grounds.SPEC]
    assert outcome.requests_sent == 1
    assert lake.rows() == 0


def test_columns_may_be_added_between_write_and_commit(lake: Lake) -> None:
    ours = lake.join()
    older = staged((0, 0, 10), epoch=ours.epoch)

    def evolve() -> None:
        lake.catalog.before_commit = lambda: None
        with lake.load().update_schema() as update:
            update.add_column("later", StringType())

    request = lake.request(older)
    lake.catalog.before_commit = evolve
    outcome = lake.publish(request)
    assert outcome.published == (older,)
    assert outcome.requests_sent == 2
    assert lake.rows() == 10


def test_a_column_that_became_required_voids_what_may_hold_nulls(lake: Lake) -> None:
    ours = lake.join()
    older = staged((0, 0, 10), epoch=ours.epoch)
    with lake.load().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("note", required=True)
    outcome = lake.publish(lake.request(older))
    assert [r.grounds for r in outcome.refused] == [Grounds.SCHEMA]
    assert "allows nulls in note" in outcome.refused[0].reason


def test_a_branch_is_written_to_with_its_settings_kept(lake: Lake) -> None:
    base = lake.append_foreign()
    lake.load().manage_snapshots().create_branch(
        base, "audit", max_snapshot_age_ms=1000, min_snapshots_to_keep=3
    ).commit()
    ours = lake.join(branch="audit")
    outcome = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch), branch="audit"))
    metadata = lake.load().metadata
    assert metadata.current_snapshot_id == base
    assert metadata.refs["audit"].snapshot_id == outcome.snapshot_id == metadata.refs[tag_name("audit")].snapshot_id
    assert (metadata.refs["audit"].max_snapshot_age_ms, metadata.refs["audit"].min_snapshots_to_keep) == (1000, 3)
    assert (lake.rows("main"), lake.rows("audit")) == (1, 11)


def test_a_branch_that_does_not_exist_is_refused(lake: Lake) -> None:
    with pytest.raises(TableError, match=r"'nope'.*LC3009"):
        lake.publish(lake.request(staged((0, 0, 10), epoch=uuid4()), branch="nope"))


def test_expiring_all_that_can_be_expired_keeps_the_ledger(lake: Lake) -> None:
    ours = lake.join()
    for n in range(4):
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch)))
    table = lake.load()
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    outcome = lake.publish(lake.request(staged((0, 4, 6), epoch=ours.epoch)))
    assert outcome.state.covered() == coverage((0, 0, 6))
    assert lake.rows() == 6


def test_metadata_files_of_a_created_table_do_not_pile_up(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={"write.metadata.previous-versions-max": "3"})
    lake.create()
    ours = lake.join()
    for n in range(8):
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch)))
    assert len(lake.metadata_files("*.metadata.json")) == 4
    assert lake.rows() == 8


def test_ten_thousand_files_are_one_quick_commit(lake: Lake) -> None:
    ours = lake.join()
    files = tuple(data_file(f"file:///data/{n}.parquet", 1) for n in range(10_000))
    request = lake.request(staged((0, 0, 10_000), epoch=ours.epoch, files=files, spans=spans((0, 0, 10_000))))
    began = time.process_time()
    outcome = lake.publish(request)
    assert time.process_time() - began < 2
    assert outcome.published == request.slices
    assert lake.rows() == 10_000
