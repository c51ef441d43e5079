# SPDX-License-Identifier: Apache-2.0
"""What is reported and the source no longer has: no epoch change, no void and no person's word loses it unsaid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.commit.drain import drain
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg.ledger.ledger import tag_name
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.signing import KEY
from tests.fakes.kafka import FakeSource
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding
from tests.support.declared import changed_landing

REFUNDS = SourcePartition("refunds", 0, "topic-2")


def ends(landing: FakeLanding) -> tuple[int, int]:
    table = prepare_table(landing.session, DATA)
    assert table is not None
    return table.ledger.section.end(P0), table.ledger.section.end(P1)


def epoch(landing: FakeLanding) -> UUID:
    table = prepare_table(landing.session, DATA)
    assert table is not None
    return table.ledger.section.epoch


def reported_and_cut(landing: FakeLanding, log_start: int = 60) -> None:
    """[0, 20) is landed, [20, 40) is reported, the source begins later and has more."""
    landing.cycle("before")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("pending"))
    landing.source.ends = {P0: 80, P1: 10}
    landing.source.starts = {P0: log_start}


def rows(landing: FakeLanding) -> int:
    return sum(int(s.get("lakecommit.rows", 0)) for s in landing.snapshots())


def test_a_plan_that_cannot_be_made_leaves_what_is_reported_to_be_drained(landing: FakeLanding) -> None:
    reported_and_cut(landing)
    with pytest.raises(SourceError, match=r"orders\[0\] \[40, 60\).*LC1303"):
        landing.open("b")
    drained = drain(landing.session, landing.run_identity("b"), "offsets are gone")
    assert drained is not None
    assert drained[1].rows == 20
    assert ends(landing) == (40, 10)
    assert drain(landing.session, landing.run_identity("c"), "offsets are gone") is None


def test_init_publishes_first_what_the_source_has_no_more(landing: FakeLanding) -> None:
    reported_and_cut(landing)
    (previewed,) = init_preview(landing.session, "earliest").tables
    assert str(previewed.published) == "orders[0] [20, 40)"
    assert str(previewed.given_up) == "orders[0] [40, 60)"
    assert ends(landing) == (20, 10), "a preview writes nothing"
    ledger_init(landing.session, "earliest")
    assert (ends(landing), rows(landing)) == ((60, 10), 50)


def test_init_over_a_hole_gives_up_the_hole_only(landing: FakeLanding) -> None:
    landing.cycle("before")
    landing.source.ends = {P0: 50, P1: 10}
    opened = landing.open("pending")
    landing.report(opened, lambda s: s.spans[0].range.start != 20)
    landing.close("pending", opened)
    landing.source.starts = {P0: 50}
    (previewed,) = init_preview(landing.session, "earliest").tables
    assert (str(previewed.published), str(previewed.given_up)) == ("orders[0] [30, 50)", "orders[0] [20, 30)")
    ledger_init(landing.session, "earliest")
    assert (ends(landing), rows(landing)) == ((50, 10), 50)


def test_what_cannot_be_published_is_not_given_up_without_a_decision_of_its_own(landing: FakeLanding) -> None:
    reported_and_cut(landing)
    with landing.session.tables.load(DATA).update_schema(allow_incompatible_changes=True) as change:
        change.add_column("new", StringType(), required=True)
    before = epoch(landing)
    with pytest.raises(LedgerError, match=r"orders\[0\] \[20, 40\) \(20 records\).*LC7019"):
        ledger_init(landing.session, "earliest")
    assert epoch(landing) == before
    ledger_init(landing.session, "earliest", give_up_reported=True)
    assert ends(landing) == (60, 10)


def test_a_topic_made_anew_does_not_take_what_is_reported_of_the_old_one(landing: FakeLanding) -> None:
    landing.report(landing.open("pending"))
    landing.source.ends = {SourcePartition("orders", 0, "topic-2"): 5}
    ledger_init(landing.session, "earliest")
    assert rows(landing) == 30


def test_the_preview_that_a_user_agreed_to_is_the_most_that_is_given_up(landing: FakeLanding) -> None:
    landing.cycle("before")
    landing.source.ends = {P0: 80, P1: 10}
    landing.source.starts = {P0: 30}
    previewed = init_preview(landing.session, "earliest")
    landing.source.starts = {P0: 60}
    with pytest.raises(LedgerError, match=r"orders\[0\] \[30, 60\).*LC7021"):
        ledger_init(landing.session, "earliest", agreed=previewed)


class TestSpecOfTheTable:
    @staticmethod
    def repartition(landing: FakeLanding) -> None:
        with landing.session.tables.load(DATA).update_spec() as change:
            change.add_field("id", IdentityTransform(), "by_id")

    def test_what_can_be_read_again_is_voided(self, landing: FakeLanding) -> None:
        reported_and_cut(landing, log_start=20)
        self.repartition(landing)
        landing.source.ends = {P0: 40, P1: 10}
        closed = landing.close("c", landing.open("c"))
        assert [v.endswith("its range is read again") for v in closed.voided] == [True, True]

    def test_what_cannot_is_published_under_its_own_spec(self, landing: FakeLanding) -> None:
        reported_and_cut(landing)
        self.repartition(landing)
        drained = drain(landing.session, landing.run_identity("b"), "offsets are gone")
        assert drained is not None
        assert (drained[1].rows, drained[1].voided) == (20, ())
        table = landing.session.tables.load(DATA)
        head = table.metadata.current_snapshot()
        assert head is not None
        specs = {m.partition_spec_id for m in head.manifests(table.io) if m.added_snapshot_id == head.snapshot_id}
        assert specs == {0}
        assert table.metadata.default_spec_id == 1


def test_a_missing_file_of_a_slice_that_cannot_be_read_again_is_named_and_nothing_is_voided(
    landing: FakeLanding,
) -> None:
    reported_and_cut(landing)
    landing.clock.passes(timedelta(days=2))
    with pytest.raises(SourceError, match=r"lose orders\[0\] \[20, 30\) \(10 records\).*LC6203"):
        drain(landing.session, landing.run_identity("b"), "offsets are gone")
    assert ends(landing) == (20, 10)
    assert landing.session.read_state([prepare_table(landing.session, DATA).ledger]).state.accepted[DATA]  # type: ignore[union-attr]


class TestTag:
    @staticmethod
    def drop_tag(landing: FakeLanding) -> None:
        table = landing.session.tables.load(DATA)
        landing.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name=tag_name("main")),))

    def test_it_is_made_again_where_nothing_newer_is_known(self, landing: FakeLanding) -> None:
        reported_and_cut(landing)
        before = epoch(landing)
        self.drop_tag(landing)
        drained = drain(landing.session, landing.run_identity("b"), "offsets are gone")
        assert drained is not None
        assert drained[1].rows == 20
        assert epoch(landing) == before

    def test_where_all_can_be_read_again_a_new_epoch_is_given_as_before(self, landing: FakeLanding) -> None:
        reported_and_cut(landing, log_start=20)
        before = epoch(landing)
        self.drop_tag(landing)
        assert epoch(landing) != before

    @pytest.mark.heavy
    def test_a_rollback_under_it_is_no_such_case(self, landing: FakeLanding) -> None:
        landing.cycle("first")
        first = landing.session.tables.load(DATA).metadata.current_snapshot_id
        landing.source.ends = {P0: 40, P1: 10}
        landing.cycle("second")
        landing.source.starts = {P0: 40}
        table = landing.session.tables.load(DATA)
        assert first is not None
        table.manage_snapshots().rollback_to_snapshot(first).commit()
        self.drop_tag(landing)
        with pytest.raises(LedgerError, match=r"orders\[0\] \[20, 40\) \(20 records\).*LC6001"):
            prepare_table(landing.session, DATA)


def test_a_spec_change_that_voids_waits_for_what_cannot_be_read_again(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing(slice_records=10, dead_letter_table=DEAD, on_spec_change="void")
    reported_and_cut(landing, log_start=40)
    before = epoch(landing)
    landing.session.landing = changed_landing(landing.session.landing, unknown_fields="dead_letter")
    opened = landing.open("b")
    assert epoch(landing) == before
    assert landing.printed("orders[0] [20, 40) (20 records) is published with its old spec")
    landing.report(opened)
    assert landing.close("b", opened).rows == 60
    landing.open("c")
    assert epoch(landing) != before


def test_what_is_left_of_a_control_log_that_was_cut_is_published_first(landing: FakeLanding) -> None:
    landing.cycle("before")
    landing.source.ends = {P0: 50, P1: 10}
    opened = landing.open("pending")
    landing.report(opened, lambda s: s.spans[0].range.start != 30)
    landing.close("pending", opened)
    partition = landing.control.partition_for("lakecommit-rows")
    cut = landing.control.read(partition).end
    landing.report(landing.open("again"), lambda s: s.spans[0].range.start == 30)
    landing.source.starts = {P0: 40}
    before = epoch(landing)
    landing.control.cut(partition, cut)
    drained = drain(landing.session, landing.run_identity("b"), "offsets are gone")
    assert drained is not None
    assert drained[1].rows == 10
    assert landing.printed("the new epoch waits until orders[0] [30, 40) (10 records) is published")
    opened = landing.open("c")
    assert [str(s) for s in opened.slices] == ["orders[0][40, 50)"]
    landing.report(opened)
    landing.close("c", opened)
    assert (ends(landing), rows(landing)) == ((50, 10), 60)
    assert before


class TestNotTaken:
    """A table that does not take a slice decides that for itself alone."""

    @staticmethod
    def in_mid_commit(landing: FakeLanding, act: Callable[[], None]) -> None:
        def once() -> None:
            landing.catalog.before_commit = lambda: None
            act()

        landing.catalog.before_commit = once

    def test_a_rollback_in_mid_commit_costs_nothing_that_the_source_has_no_more(
        self, make_landing: Callable[..., FakeLanding]
    ) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD)
        reported_and_cut(landing)
        metadata = landing.session.tables.load(DATA).metadata
        head, first = metadata.current_snapshot_id, metadata.snapshots[0].snapshot_id
        assert head is not None

        def set_to(snapshot: int) -> None:
            landing.session.tables.load(DATA).manage_snapshots().set_current_snapshot(snapshot).commit()

        self.in_mid_commit(landing, lambda: set_to(first))
        drained = drain(landing.session, landing.run_identity("b"), "offsets are gone")
        assert drained is not None
        assert drained[1].rows == 0
        assert all("shop.rows rejects slice" in reason for reason in drained[1].voided)
        # It is named, with the way on; and that way still leads to all rows.
        with pytest.raises(LedgerError, match="LC6001"):
            landing.open("c")
        set_to(head)
        drained = drain(landing.session, landing.run_identity("d"), "offsets are gone")
        assert drained is not None
        assert drained[1].rows == 20
        assert rows(landing) == 50

    @pytest.mark.heavy
    def test_the_other_tables_of_the_landing_take_the_slice(self, make_landing: Callable[..., FakeLanding]) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD)
        reported_and_cut(landing, log_start=0)
        first = landing.session.tables.load(DATA).metadata.snapshots[0].snapshot_id
        self.in_mid_commit(
            landing, lambda: landing.session.tables.load(DATA).manage_snapshots().set_current_snapshot(first).commit()
        )
        drained = drain(landing.session, landing.run_identity("b"), "asked for")
        assert drained is not None
        assert all("shop.rows rejects slice" in reason for reason in drained[1].voided)
        ledgers = [t.ledger for name in (DATA, DEAD) if (t := prepare_table(landing.session, name)) is not None]
        accepted = landing.session.read_state(ledgers).state.accepted
        assert accepted[DATA] == ()
        assert str(accepted[DEAD][-1].coverage) == "orders[0] [30, 40)"


class TestBehindABlock:
    """Two partitions share slices; the older slice failed in one of them, the newer one is reported."""

    @pytest.fixture
    def blocked_by_another(self, make_landing: Callable[..., FakeLanding]) -> FakeLanding:
        landing = make_landing(slice_records=30)
        landing.source.ends = {P0: 5, P1: 5}
        older = landing.open("older")
        landing.source.ends = {P0: 10, P1: 10}
        newer = landing.open("newer")
        assert [str(s) for s in newer.slices] == ["orders[0][5, 10) orders[1][5, 10)"]
        landing.report(newer)
        landing.close("newer", newer)
        (work,) = older.slices
        for span, problem in zip(work.spans, ({}, {"failed": "boom"}), strict=True):
            own = slice_id(older.plan.window_id, (span,), work.tables)
            landing.report(replace(older, slices=(replace(work, spans=(span,), slice_id=own),)), **problem)
        landing.close("older", older)
        return landing

    def test_what_the_source_has_no_more_waits_and_lands(self, blocked_by_another: FakeLanding) -> None:
        blocked_by_another.source.starts = {P0: 8}
        opened = blocked_by_another.open("next")
        assert [str(s) for s in opened.slices] == ["orders[1][0, 5)"]
        blocked_by_another.report(opened)
        closed = blocked_by_another.close("next", opened)
        assert (rows(blocked_by_another), closed.waiting, ends(blocked_by_another)) == (20, (), (10, 10))

    @pytest.mark.heavy
    def test_what_can_be_read_again_is_voided_and_its_other_partition_goes_on(
        self, blocked_by_another: FakeLanding
    ) -> None:
        opened = blocked_by_another.open("next")
        assert {str(s) for s in opened.slices} == {"orders[0][5, 10)", "orders[1][0, 5)", "orders[1][5, 10)"}
        assert blocked_by_another.printed(
            "waits for a blocked or failing range of orders[1]; its ranges are read again separately"
        )
        blocked_by_another.report(opened, lambda s: s.spans[0].partition == P0)
        blocked_by_another.close("next", opened)
        assert ends(blocked_by_another) == (10, 0)
        blocked_by_another.cycle("last")
        assert (rows(blocked_by_another), ends(blocked_by_another)) == (20, (10, 10))

    def test_nothing_is_voided_by_a_preview(self, blocked_by_another: FakeLanding) -> None:
        before = blocked_by_another.kinds()
        assert len(preview(blocked_by_another.session).slices) == 3
        assert blocked_by_another.kinds() == before


class TestOtherLandings:
    """A rollback of a table ends the epochs of all landings that it has rows of."""

    @pytest.fixture
    def shared(self, landing: FakeLanding) -> FakeLanding:
        """Landing refunds has landed [0, 20) last and reported [20, 40); then the table lost its last commit."""
        landing.cycle("before")
        own, landing.session = landing.session, landing.connect(name="refunds", topics="refunds")
        source = landing.session.source = FakeSource({REFUNDS: 20}, clock=landing.clock)
        landing.cycle("refunds")
        source.ends = {REFUNDS: 40}
        landing.report(landing.open("more refunds"))
        landing.session.close()
        landing.session = own
        landing.source.others.append(FakeSource({REFUNDS: 80}, clock=landing.clock))
        table = landing.session.tables.load(DATA)
        before = table.metadata.snapshots[-2].snapshot_id
        table.manage_snapshots().set_current_snapshot(before).commit()
        return landing

    def test_what_one_of_them_has_reported_and_its_source_has_no_more_is_named(self, shared: FakeLanding) -> None:
        shared.source.others[-1].starts = {REFUNDS: 60}
        lost = r"of landing refunds refunds\[0\] \[0, 40\) \(40 records\)"
        with pytest.raises(LedgerError, match=rf"{lost}.*LC6001"):
            shared.open("b")
        with pytest.raises(LedgerError, match=rf"{lost}.*LC7019"):
            ledger_init(shared.session, "earliest")
        ledger_init(shared.session, "earliest", give_up_reported=True)
        shared.open("c")

    def test_what_can_be_read_again_is_void_as_before(self, shared: FakeLanding) -> None:
        shared.open("b")
        assert shared.printed("pending slices were voided and are read again")

    @pytest.mark.heavy
    def test_of_a_topic_that_its_source_does_not_report_nothing_is_void(self, shared: FakeLanding) -> None:
        shared.source.others.clear()
        with pytest.raises(LedgerError, match="LC6001"):
            shared.open("b")


class TestUnsigned:
    """A signing key that is new, changed or gone too early, with slices pending."""

    @staticmethod
    def doubt(landing: FakeLanding, why: str | None) -> None:
        landing.session.kafka = {KEY: "k" * 32}
        logs = landing.control.logs
        for partition, log in logs.items():
            logs[partition] = [r and replace(r, doubt=why) for r in log]

    def test_what_the_source_has_no_more_is_not_given_up_before_a_user_was_requested(
        self, landing: FakeLanding
    ) -> None:
        reported_and_cut(landing)
        self.doubt(landing, "it is not signed")
        message = r"unverified records of \S+ report orders\[0\] \[20, 40\).*unsigned\.below: control-1/\d:\d+`"
        with pytest.raises(SourceError, match=rf"{message}.*LC6019"):
            landing.open("b")
        with pytest.raises(LedgerError, match="LC7020"):
            ledger_init(landing.session, "earliest")
        self.doubt(landing, None)
        drained = drain(landing.session, landing.run_identity("c"), "they are believed")
        assert drained is not None
        assert drained[1].rows == 20

    def test_it_is_given_up_by_a_decision(self, landing: FakeLanding) -> None:
        reported_and_cut(landing)
        self.doubt(landing, "it is not signed")
        ledger_init(landing.session, "earliest", give_up_reported=True)
        assert ends(landing) == (60, 10)

    @pytest.mark.heavy
    def test_what_was_read_again_meanwhile_is_there_once_when_both_are_verified(self, landing: FakeLanding) -> None:
        reported_and_cut(landing, log_start=20)
        self.doubt(landing, "it is not signed")
        landing.cycle("again")
        self.doubt(landing, None)
        landing.session.kafka = {}
        assert drain(landing.session, landing.run_identity("c"), "asked for") is None
        assert landing.cycle("d").published == ()
        assert rows(landing) == 90

    def test_what_is_read_again_and_pending_twice_is_published_once(self, landing: FakeLanding) -> None:
        reported_and_cut(landing, log_start=20)
        self.doubt(landing, "it is not signed")
        landing.report(landing.open("again"))
        self.doubt(landing, None)
        landing.session.kafka = {}
        landing.cycle("d")
        assert rows(landing) == 90
        assert ends(landing) == (80, 10)
