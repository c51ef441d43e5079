# SPDX-License-Identifier: Apache-2.0
"""The ledger as tables tell it, over the metadata that a real catalog holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import (
    Condition,
    landing_snapshots,
    needs_refresh,
    read_ledger,
    require_ledger,
    tag_name,
    unannounced,
)
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import set_section
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import refresh_ledger, renew_epochs
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint, SnapshotKind, SnapshotRecord
from tests.fakes.lake import Lake, at, coverage, section, staged

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.create()
    return made


def test_a_new_table_has_no_ledger_and_may_have_a_first_run(lake: Lake) -> None:
    assert lake.state().condition is Condition.ABSENT
    lake.append_foreign()
    assert lake.state().condition is Condition.ABSENT


def test_the_newest_landing_snapshot_is_the_ledger(lake: Lake) -> None:
    ours = lake.join()
    first = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.append_foreign()
    head = lake.append_foreign()
    state = lake.state()
    assert state.condition is Condition.PRESENT
    assert (state.snapshot_id, state.head_id, state.foreign_since) == (first.snapshot_id, head, 2)
    assert state.tag_id == first.snapshot_id
    found = state.section("orders", "live")
    assert found is not None
    assert found.covered == coverage((0, 0, 10))


def test_the_tag_is_kept_for_ever(lake: Lake) -> None:
    lake.join()
    assert lake.load().metadata.refs[tag_name("main")].max_ref_age_ms == 2**63 - 1


def test_a_rollback_shows_with_the_older_ledger(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    keep = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 10, 20), epoch=ours.epoch)))
    lake.load().manage_snapshots().rollback_to_snapshot(keep).commit()
    state = lake.state()
    assert state.condition is Condition.ROLLED_BACK
    assert state.covered() == coverage((0, 0, 10))
    assert "rolled back from snapshot" in state.reason
    lake.append_foreign()
    assert lake.state().condition is Condition.ROLLED_BACK
    require_ledger(lake.state(), lake.name)


def test_a_ledger_whose_tag_was_removed_is_not_trusted_to_be_the_newest(lake: Lake) -> None:
    lake.join()
    lake.load().manage_snapshots().remove_tag(tag_name("main")).commit()
    assert lake.state().condition is Condition.ROLLED_BACK
    assert tag_name("main") in lake.state().reason


def test_a_rollback_past_the_initial_entry_names_the_command(lake: Lake) -> None:
    before = lake.append_foreign()
    lake.join()
    lake.load().manage_snapshots().set_current_snapshot(before).commit()
    lake.append_foreign()
    state = lake.state()
    assert state.condition is Condition.LOST
    with pytest.raises(
        LedgerError, match=r"lost.*lakecommit reset offsets SPEC --from.*" + str(state.tag_id) + ".*LC3008"
    ):
        require_ledger(state, lake.name)


def test_a_rollback_past_the_initial_entry_shows_without_its_tag_too(lake: Lake) -> None:
    before = lake.append_foreign()
    lake.join()
    lake.load().manage_snapshots().set_current_snapshot(before).commit()
    lake.load().manage_snapshots().remove_tag(tag_name("main")).commit()
    assert lake.state().condition is Condition.LOST


def test_an_ancestry_that_was_cut_after_the_ledger_names_the_command(lake: Lake) -> None:
    lake.append_foreign()
    lake.join()
    cut = lake.append_foreign()
    lake.append_foreign()
    lake.load().maintenance.expire_snapshots().by_id(cut).commit()
    state = lake.state()
    assert state.condition is Condition.CUT
    with pytest.raises(LedgerError, match="LC3008"):
        require_ledger(state, lake.name)


def test_a_parent_that_is_missing_is_a_cut(lake: Lake) -> None:
    lake.append_foreign()
    lake.join()
    cut = lake.append_foreign()
    lake.append_foreign()
    metadata = lake.load().metadata
    left = [s for s in metadata.snapshots if s.snapshot_id != cut]
    assert read_ledger(metadata.model_copy(update={"snapshots": left})).condition is Condition.CUT


def test_expiring_what_lies_before_the_ledger_does_no_harm(lake: Lake) -> None:
    old = lake.append_foreign()
    lake.join()
    lake.append_foreign()
    lake.load().maintenance.expire_snapshots().by_id(old).commit()
    assert lake.state().condition is Condition.PRESENT


def test_a_branch_is_its_own_ledger(lake: Lake) -> None:
    before = lake.append_foreign()
    lake.load().manage_snapshots().create_branch(before, "audit").commit()
    lake.join()
    assert lake.state("audit").condition is Condition.ABSENT
    lake.load().manage_snapshots().create_branch(lake.state().head_id or 0, "late").commit()
    assert lake.state("late").condition is Condition.ROLLED_BACK
    assert lake.state("main").condition is Condition.PRESENT


def test_a_branch_must_exist_and_be_one(lake: Lake) -> None:
    lake.join()
    with pytest.raises(TableError, match="LC3009"):
        lake.state("nope")
    with pytest.raises(TableError, match="LC3010"):
        lake.state(tag_name("main"))


@pytest.mark.heavy
def test_the_ledger_is_carried_when_foreign_snapshots_pile_up(lake: Lake) -> None:
    lake.join()
    metadata, state = lake.load().metadata, lake.state()
    late = state.at_ms + 2 * DAY_MS
    assert not needs_refresh(state, metadata, late)
    lake.append_foreign()
    metadata, state = lake.load().metadata, lake.state()
    assert not needs_refresh(state, metadata, state.at_ms + DAY_MS)
    assert needs_refresh(state, metadata, late)
    short = metadata.model_copy(update={"properties": {"history.expire.max-snapshot-age-ms": "4000"}})
    assert needs_refresh(state, short, state.at_ms + 1000)
    for _ in range(19):
        lake.append_foreign()
    assert needs_refresh(lake.state(), lake.load().metadata, lake.state().at_ms)


def test_landing_snapshots_are_reported_newest_first_without_foreign_ones(lake: Lake) -> None:
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    lake.append_foreign()
    lake.join(section("returns"))
    lake.publish(lake.request(staged((0, 10, 12), epoch=ours.epoch)))
    snapshots = list(landing_snapshots(lake.load().metadata, landing="orders", lane="live"))
    assert [(r.kind, r.rows) for r in snapshots] == [
        (SnapshotKind.APPEND, 2),
        (SnapshotKind.APPEND, 10),
        (SnapshotKind.ORIGIN, 0),
    ]
    assert [r.landing for r in landing_snapshots(lake.load().metadata)] == ["orders", "returns", "orders", "orders"]


def appended(end: int | None, *, topic_id: str = "log", kind: SnapshotKind = SnapshotKind.APPEND) -> SnapshotRecord:
    point = None if end is None else LogPoint(topic_id=topic_id, partition=0, offset=end)
    return SnapshotRecord(kind=kind, branch="main", landing="orders", lane="live", token=uuid4(), control_end=point)


def test_snapshots_that_were_never_announced_are_reported_oldest_first() -> None:
    begin = LogPoint(topic_id="log", partition=0, offset=50)
    newest, announced, older, beyond = appended(90), appended(80), appended(50), appended(49)
    records = iter([newest, announced, appended(70, kind=SnapshotKind.EPOCH), older, beyond])
    assert unannounced(records, {announced.token}, begin) == (older, newest)


def test_a_replacement_is_announced_if_it_brings_rows() -> None:
    """One that only takes ranges out has nothing to announce, and keeps nothing before it from being."""
    begin = LogPoint(topic_id="log", partition=0, offset=0)
    anew = replace(appended(9, kind=SnapshotKind.REPLACE), slices=2)
    deleted = appended(None, kind=SnapshotKind.REPLACE)
    before = appended(5)
    assert unannounced(iter([deleted, anew, before]), set(), begin) == (before, anew)


def test_snapshots_of_another_log_cannot_be_evaluated() -> None:
    begin = LogPoint(topic_id="log", partition=0, offset=0)
    records = [appended(9), appended(8, topic_id="old log"), appended(7)]
    assert unannounced(iter(records), set(), begin) == (records[0],)


def picked_over_others(lake: Lake) -> tuple[int, int]:
    """A bad snapshot of a user's was taken out: rolled back to before it, and the landing's that came after it picked
    again. Returns that one and the pick.
    """
    ours = lake.join()
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    good = lake.load().metadata.current_snapshot_id
    assert good is not None
    lake.append_foreign()
    later = lake.publish(lake.request(staged((0, 10, 20), epoch=ours.epoch))).snapshot_id
    assert later is not None
    lake.roll_back(good)
    return later, lake.cherry_pick(later)


@pytest.mark.heavy
def test_rows_that_were_cherry_picked_without_their_ledger_name_the_command(lake: Lake) -> None:
    later, pick = picked_over_others(lake)
    state = lake.state()
    assert (state.condition, state.picked_id, lake.rows()) == (Condition.PICKED, later, 20)
    assert f"snapshot {pick} of another writer brought back the rows of snapshot {later}" in state.reason
    with pytest.raises(LedgerError, match="LC3008"):
        require_ledger(state, lake.name)


def test_nothing_is_appended_nor_given_a_new_epoch_under_a_cherry_pick(lake: Lake) -> None:
    picked_over_others(lake)
    ours = lake.state().section("orders", "live")
    assert ours is not None
    head = lake.state().head_id
    for change in (
        lambda: lake.publish(lake.request(staged((0, 10, 20), epoch=ours.epoch))),
        lambda: renew_epochs(lake.tables, lake.name, "orders", "live"),
        lambda: lake.join(section("returns")),
        lambda: refresh_ledger(lake.tables, lake.name, "orders", "live"),
    ):
        with pytest.raises(LedgerError, match="LC3008"):
            change()
    assert (lake.state().head_id, lake.rows()) == (head, 20)


@pytest.mark.heavy
def test_a_user_states_what_a_landing_has_after_a_cherry_pick_and_each_landing_for_itself(lake: Lake) -> None:
    lake.join(section("returns", starts={at(5): 0}))
    picked_over_others(lake)
    before = {s.landing: s for s in lake.state().sections}
    asserted = replace(before["returns"], epoch=uuid4())
    state = set_section(lake.tables, lake.name, "returns", "live", lambda _: asserted)
    assert state.condition is Condition.PICKED, "the rows are those of orders"
    whole = replace(before["orders"], epoch=uuid4(), covered=coverage((0, 0, 20)))
    state = set_section(lake.tables, lake.name, "orders", "live", lambda _: whole)
    assert (state.condition, state.picked_id) == (Condition.PRESENT, None)
    assert {s.landing for s in state.sections} == {"orders", "returns"}
    again = lake.publish(lake.request(staged((0, 10, 20), epoch=whole.epoch)))
    assert (again.published, lake.rows()) == ((), 20)


def test_the_same_snapshot_picked_again_or_one_without_rows_of_a_landing_is_no_matter(lake: Lake) -> None:
    ours = lake.join()
    first = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch)))
    assert first is not None
    lake.cherry_pick(lake.append_foreign())
    lake.cherry_pick(first)
    assert lake.state().condition is Condition.PRESENT


def test_a_pick_of_rows_that_are_landed_anew_stops_the_landing_too(lake: Lake) -> None:
    """Rolled back, dealt with by a new epoch, and only then is the old snapshot picked."""
    ours = lake.join()
    first = lake.load().metadata.current_snapshot_id
    assert first is not None
    expired = lake.publish(lake.request(staged((0, 0, 10), epoch=ours.epoch))).snapshot_id
    assert expired is not None
    lake.roll_back(first)
    renew_epochs(lake.tables, lake.name, "orders", "live")
    assert lake.state().condition is Condition.PRESENT
    lake.cherry_pick(expired)
    assert lake.state().condition is Condition.PICKED
