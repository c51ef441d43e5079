# SPDX-License-Identifier: Apache-2.0
"""A user's decisions: where a ledger goes on, and how a blocked range does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.exceptions import ForbiddenError

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SourceError
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.unblock import blocked_parts, unblock
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.verify import check_landing
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding


def ends(landing: FakeLanding) -> dict[str, int]:
    table = prepare_table(landing.session, DATA)
    assert table is not None
    return {str(p): table.ledger.section.end(p) for p in (P0, P1)}


DECISION = Decision(command="a command", actor="ann", host="here", at="now", landing="rows", reason="an outage")


def notes(landing: FakeLanding) -> list[str]:
    history = read_history(landing.session.tables, DATA, "main", progress=landing.lines.append)
    return [f.text for f in check_landing(landing.session.landing, [history])]


def block(landing: FakeLanding, rejected: int = 0) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].partition == P0, blocked="too many rejects", rejected=rejected)
    landing.report(opened, lambda s: s.spans[0].partition == P1)
    landing.close(opened=opened)


class TestResetOffsets:
    def test_it_goes_forward_under_a_new_epoch_and_voids_what_was_pending(self, landing: FakeLanding) -> None:
        landing.report(landing.open())
        assert ledger_init(landing.session, {("orders", 0): 15, ("orders", 1): 0}) == {
            "ledger": {DATA: {"orders[0]": 15, "orders[1]": 0}}
        }
        opened = landing.open("b", release=lambda cycle: cycle.run == "a")
        assert [str(s) for s in opened.slices] == ["orders[0][15, 20)", "orders[1][0, 10)"]
        assert landing.printed("gives up orders[0] [0, 15), which it has not landed")

    def test_it_never_goes_back_over_what_is_landed(self, landing: FakeLanding) -> None:
        landing.cycle()
        ledger_init(landing.session, {("orders", 0): 5})
        assert ends(landing) == {"orders[0]": 20, "orders[1]": 10}

        assert landing.printed("does not go back over orders[0] [5, 20), which it has")
        (previewed,) = init_preview(landing.session, {("orders", 0): 5}).tables
        assert str(previewed.behind) == "orders[0] [5, 20)"
        assert previewed.what == "gives up nothing"

    def test_verify_names_what_was_given_up_by_which_user_and_why(self, landing: FakeLanding) -> None:
        ledger_init(landing.session, {("orders", 0): 3, ("orders", 1): 0}, decision=DECISION)
        ledger_init(landing.session, {("orders", 0): 15}, decision=DECISION)
        lines = notes(landing)
        assert "a user set the ledger of landing 'rows'; it starts at orders[0]@3, orders[1]@0" in lines
        assert "a user set the ledger of landing 'rows'; gives up orders[0] [3, 15), 12 offsets" in lines
        assert "decision of a user: now ann on here, `a command` of landing rows: an outage; gives up nothing" in lines
        landing.cycle()
        assert lines[-1] in notes(landing)
        assert lines[-1].endswith("an outage; gives up orders[0] [3, 15)")

    @pytest.mark.heavy
    def test_what_a_table_has_passed_without_a_row_is_not_reported_as_given_up(
        self, make_landing: Callable[..., FakeLanding]
    ) -> None:
        """Good records leave no row in the dead-letter table, and its ledger is brought forward rarely."""
        landing = make_landing(dead_letter_table=DEAD)
        landing.cycle()
        ledger_init(landing.session, {("orders", 0): 20, ("orders", 1): 10}, decision=DECISION)
        history = read_history(landing.session.tables, DEAD, "main", progress=landing.lines.append)
        lines = [f.text for f in check_landing(landing.session.landing, [history])]
        assert "a user set the ledger of landing 'rows'; gives up nothing" in lines
        assert not any("gives up orders" in text for text in lines)

    def test_next_to_what_was_passed_it_names_what_is_given_up(self, make_landing: Callable[..., FakeLanding]) -> None:
        landing = make_landing(dead_letter_table=DEAD)
        opened = landing.open()
        landing.report(opened, lambda s: s.spans[0].partition == P1)
        landing.close(opened=opened)
        ledger_init(landing.session, {("orders", 0): 15, ("orders", 1): 10})
        history = read_history(landing.session.tables, DEAD, "main", progress=landing.lines.append)
        lines = [f.text for f in check_landing(landing.session.landing, [history])]
        assert "a user set the ledger of landing 'rows'; gives up orders[0] [0, 15), 15 offsets" in lines

    @pytest.mark.parametrize(
        ("start", "message"),
        [
            ({("orders", 7): 0}, r"orders\[7\]: the source has no such partition.*LC7046"),
            ({("orders", 0): 21}, r"orders\[0\] ends at 20, not at 21 or later: nothing is changed.*LC7045"),
        ],
    )
    def test_a_decision_that_cannot_be_changes_nothing(
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


class TestResetBlocked:
    def test_where_nothing_is_blocked_it_reports_it(self, landing: FakeLanding) -> None:
        landing.cycle()
        with pytest.raises(BlockedRangeError, match="LC7043"):
            unblock(landing.session)

    def test_a_raised_budget_goes_with_the_slices_that_read_it_again(self, landing: FakeLanding) -> None:
        block(landing)
        budget = Budget(max_records=5, max_ratio=1.0)
        assert (
            unblock(landing.session, ranges={("orders", 0): RangeSet.of((0, 20))}, raise_to=budget)["skipped"] is False
        )
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

    def test_it_is_complete_only_if_a_commit_comes_through(
        self, landing: FakeLanding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        block(landing)
        completed = landing.kinds().count("CycleClosed")
        with monkeypatch.context() as patch:
            patch.setattr(landing.catalog, "commit_table", refuse)
            assert unblock(landing.session, skip=True, decision=DECISION)["committed"] is False
        assert landing.kinds().count("CycleClosed") == completed
        assert landing.kinds().count("CommitFailed") == 1
        assert landing.printed("recorded the decision in the control log")
        landing.close("b", landing.open("b"))
        assert ends(landing)["orders[0]"] == 20
        (message,) = [text for text in notes(landing) if text.startswith("decision of a user")]
        assert message == f"decision of a user: {replace(DECISION, what='gives up orders[0] [0, 20)')}"

    def test_the_history_reports_once_which_user_had_a_range_read_again_also_where_the_commit_failed(
        self, landing: FakeLanding, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        block(landing)
        with monkeypatch.context() as patch:
            patch.setattr(landing.catalog, "commit_table", refuse)
            unblock(landing.session, raise_to=Budget(max_records=5, max_ratio=1.0), decision=DECISION)
        for run in ("b", "c"):
            landing.source.ends = {**landing.source.ends, P1: landing.source.ends[P1] + 1}
            landing.cycle(run)
        message = f"decision of a user: {replace(DECISION, what='reads orders[0] [0, 20) again')}"
        assert [text for text in notes(landing) if text.startswith("decision of a user")] == [message]
        (summary,) = {s["lakecommit.decisions"] for s in landing.snapshots() if "lakecommit.decisions" in s}
        assert summary.count("ann") == 1

    def test_only_the_ranges_that_are_named_are_taken(self, landing: FakeLanding) -> None:
        block(landing)
        named = {("orders", 0): RangeSet.of((0, 4))}
        assert unblock(landing.session, ranges=named, skip=True)["unblocked"] == {"orders[0]": [[0, 4]]}
        assert str(landing.open("b").plan.reason).startswith("blocked: orders[0] [4, 10)")

    def test_good_records_are_read_again_under_a_budget_of_the_bad_ones(self, landing: FakeLanding) -> None:
        block(landing, rejected=3)
        assert [(p.bad, p.good) for p in blocked_parts(landing.session)] == [(3, 7), (3, 7)]
        done = unblock(landing.session, skip=True, only_bad=True, decision=DECISION)
        assert done["read_again"] == {"orders[0]": [[0, 20]]}
        opened = landing.open("b")
        assert {s.budget for s in opened.slices} == {Budget(max_records=3, max_ratio=1.0)}
        assert any("reads orders[0] [0, 20) again" in text for text in notes(landing))

    def test_a_range_without_a_good_record_is_given_up_at_once(self, landing: FakeLanding) -> None:
        block(landing, rejected=10)
        unblock(landing.session, skip=True, only_bad=True)
        assert ends(landing)["orders[0]"] == 20

    def test_where_it_is_unknown_which_are_bad_the_complete_range_has_to_be_named(self, landing: FakeLanding) -> None:
        block(landing)
        with pytest.raises(BlockedRangeError, match="LC7042") as raised:
            unblock(landing.session, skip=True, only_bad=True)
        assert "`lakecommit reset blocked SPEC --skip --whole --range orders:0=0-10 " in str(raised.value)

    @pytest.mark.heavy
    def test_another_partition_stays_blocked(self, landing: FakeLanding) -> None:
        block(landing)
        with pytest.raises(BlockedRangeError):
            unblock(landing.session, ranges={("orders", 1): RangeSet.of((0, 10))}, skip=True)
        assert "needs a hand" not in landing.lines
        assert str(landing.open("b").plan.reason).startswith("blocked: orders[0]")


def refuse(*_: object, **__: object) -> None:
    raise ForbiddenError("no right to commit")


class TestTriedAgain:
    """Without a dead-letter table a record that is rejected again must block again."""

    def test_a_block_stays_while_nothing_has_changed(self, landing: FakeLanding) -> None:
        block(landing)
        assert landing.open("b").slices == ()

    def test_after_a_change_of_the_spec_it_is_tried_once(self, landing: FakeLanding) -> None:
        block(landing)
        landing.session = landing.connect(unknown_fields="dead_letter")
        opened = landing.open("b")
        assert [str(s) for s in opened.slices] == ["orders[0][0, 10)", "orders[0][10, 20)"]
        assert {s.budget for s in opened.slices} == {Budget(max_records=0, max_ratio=0.0)}
        again = ": the spec or the table changed since it was blocked"
        assert any(line.startswith("retrying ") and again in line for line in landing.lines)
        landing.report(opened, blocked="too many rejects still")
        assert "too many rejects still" in landing.close("b", opened).blocked[0]
        assert landing.open("c").slices == ()

    @pytest.mark.heavy
    def test_what_is_well_by_the_new_spec_is_landed(self, landing: FakeLanding) -> None:
        block(landing)
        landing.session = landing.connect(unknown_fields="dead_letter")
        assert landing.cycle("b").rows == 20
        assert ends(landing)["orders[0]"] == 20

    def test_a_preview_reports_it_and_lifts_nothing(self, landing: FakeLanding) -> None:
        block(landing)
        landing.session = landing.connect(unknown_fields="dead_letter")
        assert sum(len(s) for s in preview(landing.session).slices) == 20
        assert len(blocked_parts(landing.session)) == 2

    def test_of_a_range_that_was_read_in_part_all_bad_records_are_skipped(self, landing: FakeLanding) -> None:
        opened = landing.open()
        landing.report(opened, lambda s: str(s) == "orders[0][0, 10)", blocked="too many", rejected=4, partly=True)
        landing.report(opened, lambda s: str(s) != "orders[0][0, 10)")
        landing.close(opened=opened)
        (part,) = blocked_parts(landing.session)
        assert (part.bad, part.good, part.least_bad) == (None, None, 4)
        assert "at least 4 are bad" in str(part)
        unblock(landing.session, skip=True, only_bad=True)
        (again,) = landing.open("b").slices
        assert again.budget == Budget(max_records=10, max_ratio=1.0)
