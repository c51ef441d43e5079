# SPDX-License-Identifier: Apache-2.0
"""Admission: which states refuse a window, what clears each, and how much is admitted before that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.debt import TableDebt
from airflow_provider_lakecommit.core.log import CommitFailed, Directives
from airflow_provider_lakecommit.core.planning.admission import (
    REASON_LENGTH,
    Admit,
    Pressure,
    Refuse,
    Terms,
    admit,
    catalog_away,
    only_holes,
    pressure_of,
    refusals,
)
from airflow_provider_lakecommit.core.planning.missing import Missing, Watermark, find_missing
from airflow_provider_lakecommit.core.state import LandingState, TableLedger
from tests.support.story import DEAD, ORDERS, P0, P1, P2, STEADY, TIMEOUT, Story, coverage, ledger

A, B, C = [(P0, 0, 10)], [(P0, 10, 20)], [(P0, 20, 30)]
BOTH = (ledger(ORDERS), ledger(DEAD))
BUDGET = PendingBudget(open_cycles=2, slices=10, files=20, bytes=1000)
TERMS = Terms(budget=BUDGET)


def pressure(story: Story, *ledgers: TableLedger, **more: Any) -> Pressure:
    return pressure_of(story.landing_state(*ledgers), story.now, **more)


def failed(n: int, table: str = ORDERS, reason: str = "away") -> tuple[CommitFailed, ...]:
    story = Story()
    one = CommitFailed(
        offset=1, at=story.now, commit_id=story.id("a"), reason=reason, task_attempt="1", tables=(table,)
    )
    return (one,) * n


def debt(share: float, compacted: bool = True) -> TableDebt:
    return TableDebt(files=1100, bytes=10**9, needed=100, compacted=compacted, share=share)


def refused(decision: Admit | Refuse) -> Refuse:
    assert isinstance(decision, Refuse)
    return decision


def admitted(decision: Admit | Refuse) -> Admit:
    assert isinstance(decision, Admit)
    return decision


def fail(story: Story, *runs: str, tables: tuple[str, ...] = ()) -> None:
    for run in runs:
        story.opens(run)
        story.fails_to_commit(run, tables=tables)


class TestFailuresInARow:
    def test_cycles_are_counted_however_many_attempts_each_had(self) -> None:
        story = Story()
        story.opens("a")
        story.fails_to_commit("a", "1")
        story.fails_to_commit("a", "2")
        fail(story, "b")
        assert pressure(story).failures == 2

    def test_one_complete_clears_them_whichever_cycle_it_is_of(self) -> None:
        story = Story()
        story.opens("a", [A])
        fail(story, "b", "c")
        story.closes("a")
        assert pressure(story).failures == 0

    def test_a_failed_cycle_that_a_complete_leaves_open_counts_no_more(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.fails_to_commit("a")
        story.opens("b")
        story.closes("b")
        assert not story.landing_state().cycles[story.id("a")].over
        assert pressure(story).failures == 0

    def test_a_table_fails_alone(self) -> None:
        story = Story()
        fail(story, "a", "b", "c", tables=(DEAD,))
        found = pressure(story, *BOTH)
        assert {t: len(row) for t, row in found.failed.items()} == {ORDERS: 0, DEAD: 3}
        assert found.failures == 0

    def test_a_cycle_that_does_not_name_a_table_ends_its_row(self) -> None:
        story = Story()
        fail(story, "a", "b", tables=(ORDERS, DEAD))
        fail(story, "c", tables=(DEAD,))
        fail(story, "d", tables=(ORDERS, DEAD))
        found = pressure(story, *BOTH)
        assert {t: len(row) for t, row in found.failed.items()} == {ORDERS: 1, DEAD: 4}

    def test_a_failure_of_no_table_alone_is_of_all(self) -> None:
        story = Story()
        fail(story, "a")
        assert pressure(story, *BOTH).failures == 1

    def test_evidence_of_a_cycle_whose_start_is_cut_off_counts(self) -> None:
        story = Story()
        fail(story, "a", "b")
        landing_state = story.landing_state(since=1)
        assert pressure_of(landing_state, story.now).failures == 2


class TestPending:
    def test_slices_with_files_are_pending_until_they_are_published(self) -> None:
        story = Story()
        story.opens("a", [A, B, C])
        story.reports("a", A, files={ORDERS: 3})
        story.reports("a", B, files={ORDERS: 0})
        story.reports("a", C, files={ORDERS: 4})
        found = pressure(story).pending[ORDERS]
        assert (found["slices"], found["files"]) == (2, 7)
        assert pressure(story, ledger(covered=[(P0, 0, 20)])).pending[ORDERS]["files"] == 4

    def test_what_an_open_window_is_at_is_estimated_by_what_was_reported(self) -> None:
        story = Story()
        story.opens("a", [A, B, C])
        story.reports("a", A, files={ORDERS: 3})
        found = pressure(story, record_bytes=7)
        assert found.slice_files == 3
        assert found.pending[ORDERS] == Counter(slices=3, files=9, bytes=20 * 7)
        assert found.open_cycles == 1
        assert found.deadline == story.landing_state().cycles[story.id("a")].ends(story.now)

    def test_published_reports_still_report_how_many_files_a_slice_has(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, files={ORDERS: 5})
        assert pressure(story, ledger(covered=A)).slice_files == 5

    def test_the_work_of_a_cycle_that_is_released_closed_or_overdue_is_not_pending(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B])
        assert pressure(story).open_cycles == 2
        assert pressure(story, released=[story.id("a")]).open_cycles == 1
        story.closes("b")
        assert pressure(story).open_cycles == 1
        story.passes(TIMEOUT + timedelta(seconds=1))
        assert pressure(story) == replace(pressure(story), open_cycles=0, pending={ORDERS: Counter()})

    def test_a_window_that_is_written_is_no_open_cycle(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert pressure(story).open_cycles == 0

    def test_windows_that_failed_and_cycles_since_the_last_one(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.fails_to_commit("a")
        fail(story, "b", "c")
        found = pressure(story)
        assert (found.windows_failed, found.since_window) == (1, 2)


FULL_CASES = {
    "stalled": Pressure(failed={ORDERS: failed(3)}),
    "open cycles": Pressure(failed={}, open_cycles=2),
    "pending slices": Pressure(failed={}, pending={DEAD: Counter(), ORDERS: Counter(slices=10, files=10)}),
    "pending files": Pressure(failed={}, pending={ORDERS: Counter(slices=6, files=18)}, slice_files=3),
    "pending bytes": Pressure(failed={}, pending={ORDERS: Counter(slices=1, bytes=901)}, record_bytes=100),
    "compaction debt": Pressure(failed={}, debts={ORDERS: debt(2.0)}),
    "slowing": Pressure(failed={ORDERS: failed(2)}, windows_failed=2, since_window=1),
}


LATER = ("compaction debt", "slowing")


class TestRefusals:
    def test_the_first_of_several_reasons_decides(self) -> None:
        everything = Pressure(
            failed={ORDERS: failed(3)},
            open_cycles=2,
            pending={ORDERS: Counter(slices=10, files=18, bytes=901)},
            slice_files=3,
            record_bytes=100,
            windows_failed=2,
            since_window=1,
            debts={ORDERS: debt(2.0)},
        )
        terms = replace(TERMS, slow_down=True, suspended="ann")
        assert [one.state for one in refusals(everything, terms)] == ["suspended", *FULL_CASES]

    def test_the_user_of_a_suspension_is_reported_before_anything_else(self) -> None:
        refused = admit(FULL_CASES["stalled"], Terms(suspended="ann on here: moved"))
        assert isinstance(refused, Refuse)
        cleared = "cleared by `lakecommit resume`, or PauseLandingOperator(action='resume')"
        assert str(refused) == f"suspended: by ann on here: moved; {cleared}"

    @pytest.mark.parametrize("state", FULL_CASES)
    def test_each_state_names_what_clears_it(self, state: str) -> None:
        found = refused(admit(FULL_CASES[state], replace(TERMS, slow_down=True)))
        assert found.state == state
        assert found.reason
        assert found.clears
        assert str(found) == f"{state}: {found.reason}; cleared by {found.clears}"

    @pytest.mark.parametrize("state", FULL_CASES)
    def test_one_less_is_admitted(self, state: str) -> None:
        less = {
            "stalled": Pressure(failed={ORDERS: failed(2)}),
            "open cycles": Pressure(failed={}, open_cycles=1),
            "pending slices": Pressure(failed={}, pending={ORDERS: Counter(slices=9, files=9)}),
            "pending files": Pressure(failed={}, pending={ORDERS: Counter(slices=6, files=17)}, slice_files=3),
            "pending bytes": Pressure(failed={}, pending={ORDERS: Counter(slices=1, bytes=900)}, record_bytes=100),
            "compaction debt": Pressure(failed={}, debts={ORDERS: debt(1.9)}),
            "slowing": Pressure(failed={ORDERS: failed(2)}, windows_failed=2, since_window=2),
        }[state]
        admitted(admit(less, replace(TERMS, slow_down=True)))

    def test_without_limits_only_a_stall_refuses(self) -> None:
        free = Terms()
        for state, case in FULL_CASES.items():
            assert isinstance(admit(case, free), Refuse) is (state in ("stalled", "compaction debt"))

    def test_debt_is_distinguished_from_its_limit_on_and_never_defers_where_nothing_compacts(self) -> None:
        assert admitted(admit(Pressure(failed={}, debts={ORDERS: debt(0.9)}), TERMS)).notes == ()
        [note] = admitted(admit(Pressure(failed={}, debts={ORDERS: debt(1.0), DEAD: debt(0.1)}), TERMS)).notes
        assert note.startswith(f"WARNING: {ORDERS} has 1100 data files")
        assert "maintain.compact" not in note
        [note] = admitted(admit(Pressure(failed={}, debts={ORDERS: debt(9.0, compacted=False)}), TERMS)).notes
        assert "maintain.compact" in note

    def test_a_table_that_fails_alone_is_named_and_stops_no_other(self) -> None:
        found = admitted(admit(Pressure(failed={ORDERS: (), DEAD: failed(9, DEAD, "gone")}), TERMS))
        [note] = found.notes
        assert note == f"{DEAD}: commits failed in 9 cycles in a row, other tables go on; the last one: gone"

    def test_its_full_budget_stops_the_landing_and_reports_why(self) -> None:
        held = {ORDERS: Counter(), DEAD: Counter(slices=10)}
        found = refused(admit(Pressure(failed={ORDERS: (), DEAD: failed(9, DEAD, "gone")}, pending=held), TERMS))
        assert found.state == "pending slices"
        assert found.reason == (
            f"10 slices are pending in {DEAD}, backpressure.max_pending_slices is 10; "
            "its commits failed in 9 cycles in a row: gone"
        )

    def test_where_nothing_is_pending_something_is_admitted_however_large_slices_are(self) -> None:
        huge = Pressure(failed={}, pending={ORDERS: Counter()}, slice_files=999, record_bytes=10**6)
        assert admitted(admit(huge, TERMS)) == Admit(slices=1, records=1)

    @pytest.mark.parametrize(
        "state", ["pending slices", "pending files", "pending bytes", "compaction debt", "slowing"]
    )
    def test_what_pending_slices_wait_for_is_planned_all_the_same(self, state: str) -> None:
        found = admitted(admit(replace(FULL_CASES[state], holes=5), replace(TERMS, slow_down=True)))
        assert found.holes_only
        assert state in found.notes[0]

    @pytest.mark.parametrize("state", ["stalled", "open cycles"])
    def test_but_not_while_nothing_can_be_committed_or_enough_is_under_way(self, state: str) -> None:
        assert refused(admit(replace(FULL_CASES[state], holes=5), TERMS)).state == state

    def test_the_error_of_a_catalog_does_not_swell_a_plan(self) -> None:
        assert len(str(catalog_away(ValueError("x" * 100_000)))) < REASON_LENGTH + 200
        long = Pressure(failed={ORDERS: failed(3, reason="x" * 100_000)})
        assert len(str(refused(admit(long, TERMS)))) < REASON_LENGTH + 300


class TestWhatIsAdmitted:
    def test_a_window_takes_what_is_left_of_the_fullest_tables_budget(self) -> None:
        held = {ORDERS: Counter(slices=4, files=12, bytes=400), DEAD: Counter(slices=1)}
        found = admitted(admit(Pressure(failed={}, pending=held, slice_files=2, record_bytes=10), TERMS))
        assert found == Admit(slices=4, records=60)

    def test_slowing_down_halves_the_window_with_each_that_failed_and_waits_longer(self) -> None:
        slow = Terms(stalled_cycles=99, slow_down=True)
        planned: list[float] = []
        gaps: list[int] = []
        since = 0
        for cycles in range(12):
            row = failed(cycles)
            decision = admit(Pressure(failed={ORDERS: row}, windows_failed=len(planned), since_window=since), slow)
            if isinstance(decision, Admit):
                planned.append(decision.share)
                gaps.append(since)
            since = 0 if isinstance(decision, Admit) else since + 1
        assert planned == [1.0, 0.5, 0.25, 0.125]
        assert gaps == [0, 1, 2, 3]

    def test_without_the_option_windows_stay_complete_up_to_the_stall(self) -> None:
        found = admitted(admit(Pressure(failed={ORDERS: failed(2)}, windows_failed=2), TERMS))
        assert found.share == 1.0

    @STEADY
    @given(
        st.builds(Counter, slices=st.integers(0, 30), files=st.integers(0, 300), bytes=st.integers(0, 10_000)),
        st.integers(1, 9),
        st.integers(1, 99),
        st.booleans(),
    )
    def test_a_window_never_takes_a_landing_over_its_budgets(
        self, held: Counter[str], slice_files: int, record_bytes: int, slow: bool
    ) -> None:
        budget = PendingBudget(slices=20, files=100, bytes=5000)
        found = admit(
            Pressure(failed={}, pending={ORDERS: held}, slice_files=slice_files, record_bytes=record_bytes),
            Terms(budget=budget, slow_down=slow),
        )
        if isinstance(found, Refuse) or not held["slices"]:
            return
        assert found.slices is not None
        assert found.records is not None
        assert held["slices"] + found.slices <= 20
        assert held["files"] + found.slices * slice_files <= 100
        assert held["bytes"] + found.records * record_bytes <= 5000


class TestHoles:
    def missing(self, landing_state: LandingState) -> Missing:
        return find_missing(
            landing_state, {p: Watermark(start=0, stable=30, high=30) for p in (P0, P1, P2)}, coverage([])
        )

    def test_they_are_what_lies_before_a_pending_slice_of_the_same_partition(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", B)
        landing_state = story.landing_state()
        found = only_holes(self.missing(landing_state), landing_state)
        assert found.ranges == {(ORDERS,): coverage(A)}
        assert len(found) == 10

    def test_a_slice_without_files_for_a_table_waits_for_nothing_there(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", B, files={})
        landing_state = story.landing_state()
        assert not len(only_holes(self.missing(landing_state), landing_state))

    def test_a_range_that_one_table_lacks_is_a_hole_of_that_table(self) -> None:
        story = Story()
        story.opens("a", [A, B], tables=(ORDERS, DEAD))
        story.reports("a", B)
        ledgers = (ledger(ORDERS, covered=A), ledger(DEAD))
        landing_state = story.landing_state(*ledgers)
        assert only_holes(self.missing(landing_state), landing_state).ranges == {(DEAD,): coverage(A)}

    def test_a_landing_with_a_full_budget_and_a_hole_gets_over_it(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", B)
        story.closes("a", Directives())
        landing_state = story.landing_state()
        holes = only_holes(self.missing(landing_state), landing_state)
        terms = Terms(budget=PendingBudget(slices=1))
        assert admitted(admit(pressure_of(landing_state, story.now, holes=len(holes)), terms)).holes_only
        assert refused(admit(pressure_of(landing_state, story.now), terms)).state == "pending slices"
