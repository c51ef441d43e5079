# SPDX-License-Identifier: Apache-2.0
"""A person's decisions: where a ledger goes on, and how a blocked range does."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.cycle.prepare import prepare_table
from airflow_provider_lakecommit.cycle.repair import ledger_init, unblock
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SourceError
from tests.fakes.session import DATA, P0, P1, FakeLanding


def ends(landing: FakeLanding) -> dict[str, int]:
    table = prepare_table(landing.session, DATA)
    assert table is not None
    return {str(p): table.ledger.section.end(p) for p in (P0, P1)}


def block(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].partition == P0, blocked="too many rejects")
    landing.report(opened, lambda s: s.spans[0].partition == P1)
    landing.close(opened=opened)


class TestLedgerInit:
    def test_it_goes_forward_under_a_new_epoch_and_voids_what_was_pending(self, landing: FakeLanding) -> None:
        landing.report(landing.open())
        assert ledger_init(landing.session, {("orders", 0): 15, ("orders", 1): 0}) == {
            "ledger": {DATA: {"orders[0]": 15, "orders[1]": 0}}
        }
        opened = landing.open("b", release=lambda cycle: cycle.run == "a")
        assert [str(s) for s in opened.slices] == ["orders[0][15, 20)", "orders[1][0, 10)"]
        assert landing.said("gives up orders[0] [0, 15), which it has not landed")

    def test_it_never_goes_back_over_what_is_landed(self, landing: FakeLanding) -> None:
        landing.cycle()
        ledger_init(landing.session, {("orders", 0): 5})
        assert ends(landing) == {"orders[0]": 20, "orders[1]": 10}

    @pytest.mark.parametrize(
        ("start", "message"),
        [
            ({("orders", 7): 0}, r"orders\[7\]: the source has no such partition"),
            ({("orders", 0): 21}, r"orders\[0\] ends at 20, and not at 21 or later: nothing is changed"),
        ],
    )
    def test_a_word_that_cannot_be_changes_nothing(
        self, landing: FakeLanding, start: dict[tuple[str, int], int], message: str
    ) -> None:
        landing.cycle()
        before = landing.snapshots()
        with pytest.raises(SourceError, match=message):
            ledger_init(landing.session, start)
        assert landing.snapshots() == before

    def test_latest_skips_to_the_end(self, landing: FakeLanding) -> None:
        ledger_init(landing.session, "latest")
        assert ends(landing) == {"orders[0]": 20, "orders[1]": 10}
        assert landing.open().plan.reason == "nothing new"


class TestUnblock:
    def test_where_nothing_is_blocked_it_says_so(self, landing: FakeLanding) -> None:
        landing.cycle()
        with pytest.raises(BlockedRangeError, match="nothing is blocked there"):
            unblock(landing.session)

    def test_a_raised_budget_goes_with_the_slices_that_read_it_again(self, landing: FakeLanding) -> None:
        block(landing)
        budget = Budget(max_records=5, max_ratio=1.0)
        assert unblock(landing.session, [("orders", 0)], raise_to=budget)["skipped"] is False
        opened = landing.open("b")
        assert {s.budget for s in opened.slices} == {budget}
        assert sum(len(s) for s in opened.slices) == 20

    def test_a_range_that_is_skipped_is_in_the_ledger_and_accounted_for(self, landing: FakeLanding) -> None:
        block(landing)
        assert unblock(landing.session, skip=True)["unblocked"] == {"orders[0]": [[0, 20]]}
        opened = landing.open("b")
        assert opened.slices == ()
        closed = landing.close("b", opened)
        assert ends(landing)["orders[0]"] == 20
        assert closed.blocked == ()

    def test_another_partition_stays_blocked(self, landing: FakeLanding) -> None:
        block(landing)
        with pytest.raises(BlockedRangeError):
            unblock(landing.session, [("orders", 1)], skip=True)
        assert "needs a hand" not in landing.lines
        assert str(landing.open("b").plan.reason).startswith("blocked: orders[0]")
