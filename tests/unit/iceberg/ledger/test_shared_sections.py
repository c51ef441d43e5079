# SPDX-License-Identifier: Apache-2.0
"""A user's decision on one landing, in a table of several whose ledger is missing: the sections of the others stay."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.log import MOST_DECISIONS, Decision
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, tag_name
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import OtherSections, assert_section, set_section
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import refresh_ledger, restore_tag
from tests.fakes.lake import Lake, coverage, section, staged

THEIRS = "returns"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table in which two landings have rows, after an append of another writer."""
    made = Lake(tmp_path)
    made.create()
    made.append_foreign()
    ours, theirs = made.join(), made.join(section(THEIRS))
    made.publish(made.request(staged((0, 0, 10), epoch=ours.epoch)))
    made.publish(made.request(staged((0, 0, 20), epoch=theirs.epoch, topic_id="b"), landing=THEIRS))
    return made


def cut(lake: Lake) -> None:
    expired = lake.append_foreign()
    lake.append_foreign()
    lake.load().maintenance.expire_snapshots().by_id(expired).commit()
    assert lake.state().condition is Condition.CUT


def lose(lake: Lake) -> None:
    metadata = lake.load().metadata
    lake.load().manage_snapshots().set_current_snapshot(metadata.snapshots[0].snapshot_id).commit()
    assert lake.state().condition is Condition.LOST


def decide(lake: Lake, others: OtherSections = OtherSections.ASK, decision: Decision | None = None) -> None:
    def make(_: LedgerSection | None) -> LedgerSection:
        return section(covered=coverage((0, 0, 10)))

    set_section(lake.tables, lake.name, "orders", "live", make, others=others, decision=decision)


def theirs(lake: Lake) -> LedgerSection | None:
    return lake.state().section(THEIRS, "live")


@pytest.mark.heavy(but=("True",))
@pytest.mark.parametrize("tagged", [True, False])
def test_a_cut_ledger_brings_the_others_back_under_new_epochs(lake: Lake, tagged: bool) -> None:
    before = theirs(lake)
    cut(lake)
    if not tagged:
        lake.load().manage_snapshots().remove_tag(tag_name("main")).commit()
    decide(lake)
    after = theirs(lake)
    assert before is not None
    assert after is not None
    assert (after.covered, after.starts) == (before.covered, before.starts)
    assert after.epoch != before.epoch


def test_asserting_one_landing_brings_the_others_of_a_cut_ledger_back_too(lake: Lake) -> None:
    cut(lake)
    assert_section(lake.tables, lake.name, section(covered=coverage((0, 0, 10))), known=lake.state(), source="a user")
    after = theirs(lake)
    assert after is not None
    assert after.covered == coverage((0, 0, 20), topic_id="b")


def test_where_a_ledger_is_lost_the_others_are_unknown(lake: Lake) -> None:
    lose(lake)
    head = lake.load().metadata.current_snapshot_id
    with pytest.raises(LedgerError, match="LC3014"):
        decide(lake)
    with pytest.raises(LedgerError, match="LC3014"):
        assert_section(lake.tables, lake.name, section(), known=lake.state(), source="a user")
    assert lake.load().metadata.current_snapshot_id == head


@pytest.mark.parametrize(("others", "there"), [(OtherSections.PRESENT, True), (OtherSections.MISSING, False)])
def test_until_a_user_decides(lake: Lake, others: OtherSections, there: bool) -> None:
    lose(lake)
    decide(lake, others)
    assert (theirs(lake) is not None) is there
    assert lake.state().section("orders", "live") is not None


def decision(n: int = 0, reason: str = "a test") -> Decision:
    return Decision(
        command="reset offsets", actor="ann", host="h", at=f"t{n}", landing="orders", reason=reason, what="x"
    )


def test_what_a_user_decided_outlives_the_snapshot_that_it_was_made_with(lake: Lake) -> None:
    decide(lake, decision=decision())
    ours = lake.state().section("orders", "live")
    assert ours is not None
    made = lake.load().metadata.current_snapshot_id
    lake.publish(lake.request(staged((0, 10, 20), epoch=ours.epoch)))
    lake.load().maintenance.expire_snapshots().by_id(made or 0).commit()
    assert lake.state().decisions == (decision(),)
    cut(lake)
    decide(lake, decision=decision(1))
    assert lake.state().decisions == (decision(), decision(1))


@pytest.mark.heavy
def test_decisions_are_bounded_and_never_keep_a_commit_from_being_made(lake: Lake) -> None:
    for n in range(3):
        refresh_ledger(lake.tables, lake.name, "orders", "live", decision=decision(n, reason=str(uuid4()) * 1000))
    assert [d.at for d in lake.state().decisions] == ["t0", "t1", "t2"]
    assert MOST_DECISIONS >= 3
    assert all(len(d.reason) <= 300 for d in lake.state().decisions)


def test_a_tag_is_made_again_for_the_newest_ledger_only(lake: Lake) -> None:
    newest = lake.state()
    lake.load().manage_snapshots().remove_tag(tag_name("main")).commit()
    assert lake.state().newest
    with pytest.raises(LedgerError, match="LC3015"):
        restore_tag(lake.tables, lake.name, "orders", "live", snapshot_id=5)
    after = restore_tag(lake.tables, lake.name, "orders", "live", snapshot_id=newest.snapshot_id)
    assert (after.condition, after.sections) == (Condition.PRESENT, newest.sections)
    line = lake.load().metadata.snapshots
    lake.load().manage_snapshots().rollback_to_snapshot(line[-3].snapshot_id).remove_tag(tag_name("main")).commit()
    assert not lake.state().newest
