# SPDX-License-Identifier: Apache-2.0
"""What a ledger needs before anything is planned: which finding gives a new epoch, and which waits."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.commit import commit
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import CatalogError
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding
from tests.support.declared import changed_landing

OTHER = SourcePartition("refunds", 0, "topic-2")


def epoch(landing: FakeLanding, name: str = DATA, session: LandingSession | None = None) -> UUID:
    table = prepare_table(session or landing.session, name)
    assert table is not None
    return table.ledger.section.epoch


def test_a_ledger_in_order_keeps_its_epoch(landing: FakeLanding) -> None:
    landing.cycle()
    before = epoch(landing)
    landing.open("b")
    assert epoch(landing) == before


@pytest.mark.heavy(but=("cut",))
@pytest.mark.parametrize(
    ("lose", "why"),
    [
        (lambda c: setattr(c, "topic_id", "control-2"), "was recreated or is in another cluster"),
        (lambda c: c.logs.clear(), "before the position"),
        (lambda c: c.cut(c.partition_for("lakecommit-rows"), 99), "retention cut control topic"),
    ],
    ids=["made anew", "too short", "cut"],
)
def test_a_lost_control_log_gives_one_new_epoch(landing: FakeLanding, lose: Callable[[object], None], why: str) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 20}
    opened = landing.open("b")
    # One slice is published, and one waits: the log is needed from its report on.
    landing.report(opened, lambda s: s.spans[0].range.start != 20)
    landing.close("b", opened)
    before = epoch(landing)
    lose(landing.control)
    after = epoch(landing)
    assert after != before
    assert landing.printed(why)
    assert epoch(landing) == after


def test_a_rollback_gives_a_new_epoch_and_the_rest_is_read_again(landing: FakeLanding) -> None:
    landing.cycle()
    table = landing.session.tables.load(DATA)
    before, first = epoch(landing), table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    opened = landing.open("b")
    assert epoch(landing) != before
    assert sum(len(s) for s in opened.slices) == 30


def test_a_topic_that_is_added_joins_where_the_landing_starts(landing: FakeLanding) -> None:
    landing.cycle()
    before = epoch(landing)
    landing.source.ends = {P0: 20, P1: 10, OTHER: 5}
    opened = landing.open("b")
    assert [s.spans[0].partition for s in opened.slices] == [OTHER]
    assert epoch(landing) == before
    assert landing.printed("added a topic from refunds[0]@0")


class TestSpecChange:
    @staticmethod
    def pending_then_changed(landing: FakeLanding) -> UUID:
        """A slice is reported and not published, then the spec changes; the epoch before."""
        landing.report(landing.open("a"))
        before = epoch(landing)
        landing.session.landing = changed_landing(landing.session.landing, unknown_fields="dead_letter")
        return before

    def test_by_default_what_is_pending_is_published(self, make_landing: Callable[..., FakeLanding]) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD)
        before = self.pending_then_changed(landing)
        opened = landing.open("b")
        assert (opened.slices, epoch(landing)) == ((), before)
        assert landing.close("b", opened).rows == 30

    def test_where_it_voids_what_is_pending_is_read_again(self, make_landing: Callable[..., FakeLanding]) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD, on_spec_change="void")
        before = self.pending_then_changed(landing)
        opened = landing.open("b")
        assert sum(len(s) for s in opened.slices) == 30
        assert epoch(landing) != before
        assert landing.printed("the spec changed from ")

    def test_it_waits_for_a_table_that_lags_behind_the_data_table(
        self, make_landing: Callable[..., FakeLanding], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        landing = make_landing(slice_records=10, dead_letter_table=DEAD, on_spec_change="void")
        opened = landing.open("a")
        landing.report(opened)

        def away_for_one(session: LandingSession, name: str) -> PreparedTable | None:
            if name == DEAD:
                raise CatalogError("LC9999", "away")
            return prepare_table(session, name)

        with monkeypatch.context() as patch:
            patch.setattr(commit, "prepare_table", away_for_one)
            with pytest.raises(CatalogError, match="LC9999"):
                landing.close("a", opened)
        before = epoch(landing)
        landing.session.landing = changed_landing(landing.session.landing, unknown_fields="dead_letter")
        waiting = landing.open("b")
        assert (waiting.plan.refused, epoch(landing)) == ("spec change", before)
        assert "a snapshot of shop.dead, by this run's commit" in str(waiting.plan.reason)
        landing.close("b", waiting)
        landing.open("c")
        assert epoch(landing) != before
