# SPDX-License-Identifier: Apache-2.0
"""A new epoch voids what is reported. Whoever gives one asks first what nobody could read again: of the landing, of the
others in its table, and of the control topic that it had before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType

from airflow_provider_lakecommit.control.control_topic import partition_of
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError, TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, read_ledger, tag_name
from airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand import OtherSections
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets, from_snapshot
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.prune import Prunable, prune
from tests.fakes.kafka import FakeControl, FakeSource
from tests.fakes.session import CREATE, DATA, DEAD, P0, P1, FakeLanding

PAID = SourcePartition("payments", 0, "topic-2")
OLD = SourcePartition("old", 0, "topic-3")
TAG = tag_name("main")
Make = Callable[..., FakeLanding]


@pytest.fixture
def tenants(make_landing: Make) -> tuple[FakeLanding, FakeLanding]:
    """Two landings of two topics in one table. The second has reported twenty records that its topic has no more."""
    one, other = make_landing(), make_landing(name="paid", topics="payments")
    other.control, other.catalog = one.control, one.catalog
    other.source = FakeSource({PAID: 20}, clock=one.clock, others=[one.source])
    one.source.others.append(other.source)
    other.session = other.connect()
    one.cycle()
    other.cycle()
    other.source.ends = {PAID: 40}
    other.report(other.open("late"))
    other.source.starts = {PAID: 40}
    return one, other


def table(landing: FakeLanding, name: str = DATA) -> Table:
    return landing.session.tables.load(name)


def section(landing: FakeLanding) -> LedgerSection:
    found = read_ledger(table(landing).metadata).section(landing.session.landing.name, "live")
    assert found is not None
    return found


def roll_back(landing: FakeLanding) -> int:
    """By the newest snapshot, whose id is given back."""
    found = table(landing)
    head = found.current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is not None
    found.manage_snapshots().set_current_snapshot(head.parent_snapshot_id).commit()
    return head.snapshot_id


def cut(landing: FakeLanding) -> int:
    """Others append, and all but heads and tags expires; the snapshot under the tag."""
    for n in (900, 901):
        found = table(landing)
        found.append(pa.Table.from_pylist([{"id": n}], schema=found.schema().as_arrow()))
    found = table(landing)
    pinned = {ref.snapshot_id for ref in found.refs().values()}
    expired = [s.snapshot_id for s in found.snapshots() if s.snapshot_id not in pinned]
    found.maintenance.expire_snapshots().by_ids(expired).commit()
    assert read_ledger(table(landing).metadata).condition is Condition.CUT
    return found.refs()[TAG].snapshot_id


def rows(landing: FakeLanding) -> int:
    head = table(landing).current_snapshot()
    assert head is not None
    assert head.summary is not None
    return int(head.summary.additional_properties["total-records"])


class TestAnotherLandingOfTheTable:
    def test_a_tag_that_is_missing_takes_nothing_from_it(self, tenants: tuple[FakeLanding, FakeLanding]) -> None:
        one, other = tenants
        table(one).manage_snapshots().remove_tag(TAG).commit()
        one.source.ends = {P0: 40, P1: 20}
        one.cycle("after")
        other.cycle("after")
        assert section(other).end(PAID) == 40
        assert rows(other) == 30 + 30 + 20 + 20

    def test_a_rollback_is_not_settled_over_its_head(self, tenants: tuple[FakeLanding, FakeLanding]) -> None:
        one, other = tenants
        head, before = roll_back(one), len(one.snapshots())
        with pytest.raises(LedgerError, match=r"payments\[0\] \[0, ?40\) \(40.*LC6001") as raised:
            one.open("after")
        assert len(one.snapshots()) == before
        assert f"put the branch back on snapshot {head}" in str(raised.value)
        table(one).manage_snapshots().set_current_snapshot(head).commit()
        one.cycle("put back")
        other.cycle("put back")
        assert rows(other) == 30 + 20 + 20

    def test_a_rollback_is_settled_by_a_decision_that_gives_it_up(
        self, tenants: tuple[FakeLanding, FakeLanding]
    ) -> None:
        one, other = tenants
        roll_back(one)
        with pytest.raises(LedgerError, match="LC7019"):
            ledger_init(one.session, "earliest")
        ledger_init(one.session, "earliest", give_up_reported=True)
        one.cycle("after")
        with pytest.raises(SourceError, match="LC1303"):
            other.open("after")

    @pytest.mark.heavy
    def test_a_rollback_is_settled_as_ever_where_its_source_has_all(
        self, tenants: tuple[FakeLanding, FakeLanding]
    ) -> None:
        one, other = tenants
        other.source.starts = {}
        roll_back(one)
        one.cycle("after")
        other.cycle("after")
        assert rows(other) == 30 + 40

    @pytest.mark.heavy(but=("init",))
    @pytest.mark.parametrize("operation", ["attest", "init"])
    def test_a_ledger_that_was_cut_comes_back_with_what_it_has_pending(
        self, tenants: tuple[FakeLanding, FakeLanding], operation: str
    ) -> None:
        one, other = tenants
        snapshot_id = cut(one)
        if operation == "attest":
            assert_tables(one.session, from_snapshot(one.session, snapshot_id))
        else:
            ledger_init(one.session, {("orders", 0): 20, ("orders", 1): 10})
        other.cycle("after")
        assert section(other).end(PAID) == 40
        assert rows(other) == 2 + 30 + 20 + 20

    @pytest.mark.heavy
    def test_one_that_lost_the_ledger_reports_that_its_rows_are_there(
        self, tenants: tuple[FakeLanding, FakeLanding]
    ) -> None:
        one, _ = tenants
        before = section(tenants[1]).epoch
        cut(one)
        asserted = from_snapshot(one.session, table(one).refs()[TAG].snapshot_id)
        assert_tables(one.session, asserted, rows_of_others=OtherSections.PRESENT)
        assert section(tenants[1]).epoch == before

    def test_a_source_that_may_not_be_checked_reports_nothing_that_could_be_read_again(
        self, tenants: tuple[FakeLanding, FakeLanding]
    ) -> None:
        one, other = tenants
        other.source.starts = {}
        one.source.others.clear()
        roll_back(one)
        with pytest.raises(LedgerError, match="LC6001"):
            one.open("after")


class TestPruning:
    @pytest.fixture
    def landing(self, make_landing: Make) -> FakeLanding:
        """One of its two topics is missing; of the other one ten records are reported, which it has no more."""
        landing = make_landing(topics=["orders", "old"])
        landing.source.ends[OLD] = 10
        landing.cycle()
        del landing.source.ends[OLD]
        landing.session = landing.connect(topics="orders")
        landing.source.ends = {P0: 30, P1: 10}
        landing.report(landing.open("late"))
        landing.source.starts = {P0: 30}
        return landing

    def prunable(self, landing: FakeLanding) -> Prunable:
        ids = {"orders": "topic-1", "old": None}
        state = read_ledger(table(landing).metadata)
        return Prunable(
            table=DATA, state=state, removed={("rows", "live"): frozenset({OLD})}, cluster_id="cluster", ids=ids
        )

    def test_what_cannot_be_read_again_is_published_first(self, landing: FakeLanding) -> None:
        with pytest.raises(LedgerError, match=r"orders\[0\] \[20, ?30\).*`lakecommit land`.*LC7022"):
            prune(landing.session, self.prunable(landing))
        landing.cycle("publishes")
        prune(landing.session, self.prunable(landing))
        assert section(landing).end(P0) == 30
        assert OLD not in section(landing).covered.parts
        assert rows(landing) == 50

    def test_what_can_be_read_again_stops_nothing(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        prune(landing.session, self.prunable(landing))
        landing.cycle("reads again")
        assert rows(landing) == 50


class TestAnotherControlTopic:
    @pytest.fixture
    def landing(self, landing: FakeLanding) -> FakeLanding:
        """Ten records are reported in the control topic that it had before, and its source has them no more."""
        landing.cycle()
        landing.source.ends = {P0: 30, P1: 10}
        landing.report(landing.open("late"))
        landing.source.starts = {P0: 30}
        self.before = landing.control
        landing.control = FakeControl(name="teams", topic_id="t", clock=landing.clock, others={"control": self.before})
        landing.session = landing.connect()
        return landing

    def test_what_the_former_one_holds_is_published_first(self, landing: FakeLanding) -> None:
        epoch = section(landing).epoch
        for step in (lambda: landing.open("moved"), lambda: landing.close("moved")):
            with pytest.raises(LedgerError, match=r"orders\[0\] \[20, ?30\) \(10 records\).*LC6002"):
                step()
        assert section(landing).epoch == epoch
        now, landing.control = landing.control, self.before
        landing.session = landing.connect()
        landing.cycle("as before")
        landing.control = now
        landing.session = landing.connect()
        landing.source.ends = {P0: 40, P1: 10}
        landing.cycle("moved for good")
        assert section(landing).control.topic == "teams"
        assert rows(landing) == 50

    def test_a_user_may_give_it_up(self, landing: FakeLanding) -> None:
        with pytest.raises(LedgerError, match="LC7019"):
            ledger_init(landing.session, "earliest")
        ledger_init(landing.session, "earliest", give_up_reported=True)
        landing.cycle("after")
        assert section(landing).end(P0) == 30

    def test_one_that_is_missing_knows_nothing(self, landing: FakeLanding) -> None:
        landing.control.others.clear()
        with pytest.raises(SourceError, match="LC1303"):
            landing.open("moved")
        assert section(landing).control.topic == "teams"


class TestAnotherTable:
    @pytest.fixture
    def landing(self, landing: FakeLanding) -> FakeLanding:
        """Ten records are reported for a table that it names no more, and its source has them no more."""
        landing.cycle()
        landing.source.ends = {P0: 30, P1: 10}
        landing.report(landing.open("late"))
        landing.source.starts = {P0: 30}
        landing.session = landing.connect(table="shop.moved")
        return landing

    def test_the_former_one_gets_what_is_reported_for_it(self, landing: FakeLanding) -> None:
        with pytest.raises(
            LedgerError, match=rf"reported slices for {DATA}, .*\[20, ?30\) \(10 records\).*name {DATA} until.*LC6007"
        ):
            landing.open("moved")
        landing.session = landing.connect()
        landing.cycle("as before")
        landing.session = landing.connect(table="shop.moved")
        with pytest.raises(TableError, match="LC6008"):
            landing.open("moved")
        assert rows(landing) == 40

    def test_it_is_refused_while_the_former_one_has_a_ledger(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        for step in (landing.open, lambda _: preview(landing.session)):
            with pytest.raises(TableError, match="LC6008"):
                step("moved")
        assert landing.session.tables.find("shop.moved") is None

    def test_it_is_refused_where_the_former_one_got_no_row(self, make_landing: Make) -> None:
        landing = make_landing()
        opened = landing.open()
        landing.report(opened, files=False)
        landing.close("a", opened)
        landing.session = landing.connect(table="shop.moved")
        with pytest.raises(TableError, match="LC6008"):
            landing.open("moved")

    @pytest.mark.parametrize(("start", "records"), [("earliest", 40), ("latest", 0)])
    def test_a_user_may_decide_that_it_goes_on_there(self, landing: FakeLanding, start: str, records: int) -> None:
        landing.source.starts = {}
        ledger_init(landing.session, start)
        assert sum(len(s) for s in landing.open("moved").slices) == records

    @pytest.mark.heavy
    def test_a_new_name_may_land_there(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        landing.session = landing.connect(name="moved", table="shop.moved")
        assert sum(len(s) for s in landing.open("moved").slices) == 40

    @pytest.mark.heavy
    def test_a_former_one_that_was_dropped_refuses_nothing(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        landing.catalog.drop_table(DATA)
        assert sum(len(s) for s in landing.open("moved").slices) == 40

    def test_a_table_that_was_renamed_takes_its_ledger_along(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        landing.catalog.rename_table(DATA, "shop.moved")
        assert sum(len(s) for s in landing.open("moved").slices) == 10

    def test_a_route_may_add_a_table(self, landing: FakeLanding) -> None:
        landing.source.starts = {}
        route = {"field": "kind", "tables": {"row": DATA, "other": "shop.moved"}, "create": {"shop.moved": CREATE}}
        landing.session = landing.connect(route=route)
        landing.open("routed")
        assert landing.session.tables.find("shop.moved") is not None


def test_another_cluster_changes_no_ledger(landing: FakeLanding) -> None:
    landing.cycle()
    landing.source.ends = {P0: 30, P1: 10}
    landing.report(landing.open("late"))
    landing.source.starts = {P0: 30}
    before, home = section(landing), landing.control
    landing.control = FakeControl(cluster_id="mirror", topic_id="m", clock=landing.clock)
    landing.source.cluster_id = "mirror"
    landing.session = landing.connect()
    for step in (lambda: landing.open("astray"), lambda: landing.close("astray")):
        with pytest.raises(SourceError, match="LC6012"):
            step()
    assert section(landing) == before
    landing.control, landing.source.cluster_id = home, "cluster"
    landing.session = landing.connect()
    landing.cycle("pointed back")
    assert rows(landing) == 40


@pytest.mark.heavy(but=("attest",))
@pytest.mark.parametrize("operation", ["attest", "init"])
def test_a_decision_leaves_all_tables_in_one_control_partition(make_landing: Make, operation: str) -> None:
    landing = make_landing(dead_letter_table=DEAD, on_spec_change="void")
    landing.cycle()
    before = section(landing).control.partition
    landing.control.partitions = next(n for n in range(4, 99) if partition_of("lakecommit-rows", n) != before)
    if operation == "attest":
        asserted = from_offsets(landing.session, {("orders", 0): 20, ("orders", 1): 10}, [DEAD])
        assert_tables(landing.session, asserted)
    else:
        ledger_init(landing.session, "earliest")
    positions = [read_ledger(table(landing, name).metadata).sections[0].control.partition for name in (DATA, DEAD)]
    assert positions == [before, before]
    landing.source.ends = {P0: 40, P1: 20}
    landing.cycle("b")
    epoch = read_ledger(table(landing, DEAD).metadata).sections[0].epoch
    landing.source.ends = {P0: 50, P1: 20}
    landing.cycle("c")
    assert read_ledger(table(landing, DEAD).metadata).sections[0].epoch == epoch


class TestALogThatLostItsEnd:
    @pytest.fixture
    def landing(self, landing: FakeLanding) -> FakeLanding:
        landing.leader_epoch = 0
        landing.cycle()
        return landing

    @pytest.mark.heavy(but=("init",))
    @pytest.mark.parametrize("operation", ["attest", "init"])
    def test_a_decision_on_a_ledger_that_was_cut_does_not_hide_it(self, landing: FakeLanding, operation: str) -> None:
        snapshot_id = cut(landing)
        landing.source.ends, landing.source.epochs = {P0: 30, P1: 10}, {P0: [0, 12]}
        if operation == "attest":
            assert_tables(landing.session, from_snapshot(landing.session, snapshot_id))
        else:
            ledger_init(landing.session, {("orders", 0): 20, ("orders", 1): 10})
        assert re.search("another log from offset 12 on.*--from orders:0=12", landing.open("after").plan.stopped)
        ledger_init(landing.session, {("orders", 0): 12})
        landing.leader_epoch = 1
        assert sum(len(s) for s in landing.open("told").slices) == 18

    @pytest.mark.heavy
    def test_an_asserted_offset_is_where_the_log_is_requested(self, landing: FakeLanding) -> None:
        snapshot_id = cut(landing)
        landing.source.ends, landing.source.epochs = {P0: 30, P1: 10}, {P0: [0, 20]}
        assert_tables(landing.session, from_snapshot(landing.session, snapshot_id))
        assert sum(len(s) for s in landing.open("after").slices) == 10

    def test_what_retention_has_removed_of_it_is_not_voided(self, landing: FakeLanding) -> None:
        landing.source.ends = {P0: 40, P1: 10}
        opened = landing.open("late")
        landing.report(opened, lambda s: s.spans[0].range.start == 20)
        landing.leader_epoch = 1
        landing.report(opened, lambda s: s.spans[0].range.start == 30)
        landing.source.epochs, landing.source.starts = {P0: [0, 25]}, {P0: 22}
        with pytest.raises(SourceError, match=r"orders\[0\] \[20, ?22\).*LC6203"):
            landing.close("late", opened)
        assert not landing.printed("its range is read again")
        with pytest.raises(LedgerError, match="LC7019"):
            ledger_init(landing.session, "earliest")
        ledger_init(landing.session, "earliest", give_up_reported=True)
        assert section(landing).end(P0) == 22


class TestDecisionsOnOneDisposition:
    """The columns of the data table have changed, and it was rolled back: the dead-letter table has what it lacks."""

    def refused(self, landing: FakeLanding, back_to: int = 0) -> str:
        with table(landing).update_schema() as change:
            change.add_column("more", LongType())
        found = table(landing)
        found.manage_snapshots().set_current_snapshot(found.metadata.snapshots[back_to].snapshot_id).commit()
        with pytest.raises(LedgerError) as raised:
            landing.open("after")
        assert "undo the change" in str(raised.value)
        return str(raised.value)

    @pytest.fixture
    def level(self, make_landing: Make) -> FakeLanding:
        landing = make_landing(dead_letter_table=DEAD, on_spec_change="void")
        landing.cycle()
        assert read_ledger(table(landing, DEAD).metadata).sections[0].end(P0) == 20
        return landing

    @pytest.mark.heavy
    def test_both_are_rolled_back_where_nothing_is_lost_by_it(self, level: FakeLanding) -> None:
        first = table(level, DEAD).metadata.snapshots[0].snapshot_id
        assert f"roll {DEAD} back to snapshot {first}" in self.refused(level)
        table(level, DEAD).manage_snapshots().set_current_snapshot(first).commit()
        assert sum(len(s) for s in level.open("again").slices) == 30

    @pytest.mark.heavy
    def test_not_under_rows_of_others(self, level: FakeLanding) -> None:
        dead = table(level, DEAD)
        row = {"topic": "t", "partition": 0, "offset": 0, "kind": "not_json", "reason": "r", "landing": "theirs"}
        dead.append(pa.Table.from_pylist([row], schema=dead.schema().as_arrow()))
        assert "roll " not in self.refused(level)

    def test_not_over_what_the_source_has_no_more(self, make_landing: Make) -> None:
        landing = make_landing(dead_letter_table=DEAD)
        landing.cycle()
        landing.source.ends = {P0: 30, P1: 10}
        landing.clock.passes(timedelta(days=8))
        landing.cycle("b")
        assert read_ledger(table(landing, DEAD).metadata).sections[0].end(P0) == 30
        landing.source.starts = {P0: 15}
        assert "roll " not in self.refused(landing, back_to=1)
