# SPDX-License-Identifier: Apache-2.0
"""Publishing one table: in chunks, what is voided and why, what a table without rows costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleClosed, Directives
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.cycle.commit import refresh
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.commit.refresh import REFRESH_AGE
from airflow_provider_lakecommit.cycle.commit.reported import CHECK_AGE
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding


def test_more_files_than_a_commit_takes_are_published_in_order_by_several(
    make_landing: Callable[..., FakeLanding],
) -> None:
    landing = make_landing(slice_records=10, commit_files=1)
    closed = landing.cycle()
    assert [p.files for p in closed.published] == [1, 1, 1]
    assert closed.rows == 30
    assert landing.kinds().count("TablePublished") == 3


def test_files_that_a_user_removed_void_their_slice_and_its_range_is_read_again(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.clock.passes(CHECK_AGE + timedelta(seconds=1))
    closed = landing.close(opened=opened)
    assert closed.published == ()
    # The third one stands behind one of them.
    assert (len(closed.voided), len(closed.waiting)) == (2, 1)
    assert all("was deleted from storage" in reason for reason in closed.voided)
    # The voids are in the log, so no later commit takes the slices either.
    directives = [e.directives for e in landing.session.read_state(()).entries if isinstance(e, CycleClosed)]
    assert len(directives[-1].voided) == 2
    assert [str(s) for s in landing.open("b").slices] == ["orders[0][0, 10)", "orders[1][0, 10)"]


@pytest.mark.heavy
def test_files_of_young_slices_are_not_searched(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.clock.passes(CHECK_AGE - timedelta(seconds=1))
    assert landing.close(opened=opened).rows == 30


class TestTableWithoutRows:
    """The dead-letter table of a landing whose records are all good."""

    @pytest.fixture
    def quiet(self, make_landing: Callable[..., FakeLanding]) -> FakeLanding:
        return make_landing(slice_records=10, dead_letter_table=DEAD)

    def test_it_gets_no_snapshot_of_its_own(self, quiet: FakeLanding) -> None:
        closed = quiet.cycle()
        assert [p.table for p in closed.published] == [DATA]
        assert len(quiet.snapshots(DEAD)) == 1

    @pytest.mark.heavy(but=("age",))
    @pytest.mark.parametrize("by", ["cycles", "age"])
    def test_it_is_brought_forward_after_many_cycles_or_a_long_time(
        self, quiet: FakeLanding, by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        quiet.cycle("a")
        if by == "cycles":
            monkeypatch.setattr(refresh, "REFRESH_CYCLES", 1)
        else:
            quiet.clock.passes(REFRESH_AGE)
        closed = quiet.cycle("b")
        # No rows, so nothing is reported it.
        assert closed.published == ()
        assert len(quiet.snapshots(DEAD)) == 2

    @pytest.mark.heavy(but=("table",))
    @pytest.mark.parametrize("by", ["control topic", "table"])
    def test_it_is_brought_forward_before_what_it_relies_on_is_removed(self, quiet: FakeLanding, by: str) -> None:
        quiet.cycle("a")
        kept = timedelta(days=1)
        if by == "control topic":
            quiet.control.kept = kept
        else:
            age = {"history.expire.max-snapshot-age-ms": str(int(kept / timedelta(milliseconds=1)))}
            with quiet.session.tables.load(DEAD).transaction() as change:
                change.set_properties(age)
        quiet.clock.passes(kept / 4 - timedelta(minutes=1))
        quiet.cycle("b")
        assert len(quiet.snapshots(DEAD)) == 1
        quiet.clock.passes(timedelta(minutes=1))
        quiet.cycle("c")
        assert len(quiet.snapshots(DEAD)) == 2

    def test_where_a_spec_change_voids_it_is_never_behind(self, make_landing: Callable[..., FakeLanding]) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD, on_spec_change="void")
        landing.cycle()
        assert len(landing.snapshots(DEAD)) == 2


def test_files_of_a_slice_from_the_future_are_searched_for(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.clock.passes(timedelta(days=365))
    landing.report(opened)
    landing.clock.passes(timedelta(days=-365))
    assert landing.close(opened=opened).voided


class TestIdleAmongOthers:
    """A landing without anything new, in a partition that others fill."""

    @pytest.fixture
    def idle(self, make_landing: Callable[..., FakeLanding], monkeypatch: pytest.MonkeyPatch) -> FakeLanding:
        monkeypatch.setattr(refresh, "MOVE_AFTER", 50)
        landing = make_landing(slice_records=10, dead_letter_table=DEAD)
        landing.control.partitions = 1
        landing.cycle("first")
        return landing

    def others_send(self, landing: FakeLanding, records: int) -> None:
        other = landing.connect(name="others", table="shop.others")
        record = other.sender("commit", uuid4()).closed(uuid4(), landing.clock(), None, Directives())
        landing.send(0, [record] * records)

    def read_from(self, landing: FakeLanding) -> list[int]:
        found = []
        for table in (DATA, DEAD):
            metadata = landing.session.tables.load(table).metadata
            section = read_ledger(metadata).section("rows", "live")
            assert section is not None
            found.append(section.control.read_from)
        return found

    def test_its_position_is_moved_when_others_have_reported_much(self, idle: FakeLanding) -> None:
        self.others_send(idle, 100)
        before = len(idle.control.logs[0])
        closed = idle.cycle("idle")
        assert (closed.published, closed.reason) == ((), "nothing new")
        # The data table's turn was first, and the other one still lacked what both have now.
        idle.cycle("idle too")
        assert min(self.read_from(idle)) >= before
        assert idle.session.read_state(idle_ledgers(idle)).state.open_cycles() == []

    def test_and_only_then(self, idle: FakeLanding) -> None:
        before, snapshots = self.read_from(idle), len(idle.snapshots(DATA))
        self.others_send(idle, 20)
        idle.cycle("idle")
        assert (self.read_from(idle), len(idle.snapshots(DATA))) == (before, snapshots)

    @pytest.mark.heavy
    def test_not_past_what_a_user_still_needs(self, idle: FakeLanding) -> None:
        idle.source.ends = {P0: 40, P1: 10}
        opened = idle.open("slow")
        self.others_send(idle, 100)
        idle.cycle("idle")
        idle.report(opened)
        assert max(self.read_from(idle)) <= len(idle.control.logs[0]) - 100
        assert idle.close("slow", opened).rows == 20
        assert max(self.read_from(idle)) <= len(idle.control.logs[0])

    def test_what_it_lands_after_that_is_there_once(self, idle: FakeLanding) -> None:
        for n in range(3):
            self.others_send(idle, 100)
            idle.cycle(f"idle {n}")
        idle.source.ends = {P0: 40, P1: 10}
        assert idle.cycle("more").rows == 20
        assert idle.cycle("none").published == ()


def idle_ledgers(landing: FakeLanding) -> tuple[TableLedger, ...]:
    return prepare_for_commit(landing.session).ledgers


def test_a_report_of_another_epoch_is_never_published(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    # A lost control log: a new epoch, and what was pending is void.
    landing.control.topic_id = "control-2"
    landing.control.logs.clear()
    again = landing.open("b")
    landing.report(again)
    assert landing.close("b", again).rows == 30
    assert len([s for s in landing.snapshots() if int(s.get("added-records", 0))]) == 1


def test_a_slice_that_hides_a_record_is_voided_and_its_range_read_again(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, files=False)
    landing.source.values = lambda span: span.range.start + 3 if span.partition == P0 else None
    closed = landing.close(opened=opened)
    assert len(closed.voided) == 2
    assert all("there is one at offset" in reason for reason in closed.voided)
    assert {s.spans[0].partition for s in landing.open("b").slices} == {P0}


def test_a_slice_without_files_that_reports_it_landed_something_is_voided(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, only=lambda s: s.spans[0].partition == P1, files=False, landed=True)
    closed = landing.close(opened=opened)
    (reason,) = closed.voided
    assert "its report counts 0 rows for 10 landed records; its range is read again" in reason
