# SPDX-License-Identifier: Apache-2.0
"""The fold: what is accepted, claimed, closed, blocked, and what of the log is still needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.blocks import FAILURES_TO_BLOCK
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.log import Directives, Entry, SliceReported
from airflow_provider_lakecommit.core.model import Budget, Counts, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import LandingState, TableLedger, granted
from tests.support.story import (
    DEAD,
    NOON,
    ORDERS,
    P0,
    P1,
    TIMEOUT,
    VOID_EPOCH,
    Ranges,
    Story,
    coverage,
    ledger,
    report_of,
    spans,
)

A, B = [(P0, 0, 10)], [(P0, 10, 20)]
RAISE_A = Directives(raised=((coverage(A), Budget(max_records=9, max_ratio=1.0)),))
BOTH = (ledger(ORDERS), ledger(DEAD))


def accepted(landing_state: LandingState, table: str = ORDERS) -> list[UUID]:
    return [a.report.attempt for a in landing_state.accepted[table]]


def reasons(landing_state: LandingState) -> list[str]:
    return [reason for _, reason in landing_state.redundant]


def filtered(ranges: Ranges) -> tuple[SpanReport, ...]:
    return tuple(SpanReport(span=s, counts=Counts(filtered=len(s))) for s in spans(ranges))


class TestAcceptance:
    def test_a_complete_report_of_the_current_epoch_is_accepted_with_its_files(self) -> None:
        story = Story()
        story.opens("a", [A])
        attempt = story.reports("a", A)
        landing_state = story.landing_state()
        assert accepted(landing_state) == [attempt]
        assert landing_state.accepted[ORDERS][0].files == {ORDERS: (b"shop.orders 0",)}
        assert landing_state.accepted_coverage(ORDERS) == coverage(A)

    def test_a_second_attempt_on_the_same_slice_is_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        first = story.reports("a", A)
        story.reports("a", A)
        assert accepted(story.landing_state()) == [first]
        assert reasons(story.landing_state()) == ["its ranges are in the ledger or accepted already"]

    @pytest.mark.parametrize("late", [[(P0, 9, 12)], [(P0, 0, 1)], [(P1, 0, 5), (P0, 5, 6)]])
    def test_one_shared_offset_makes_a_later_report_redundant(self, late: Ranges) -> None:
        story = Story()
        story.opens("a", [A])
        first = story.reports("a", A)
        story.opens("b", [late])
        story.reports("b", late)
        assert accepted(story.landing_state()) == [first]

    def test_what_the_ledger_holds_is_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert accepted(story.landing_state(ledger(covered=[(P0, 0, 1)]))) == []

    def test_what_another_landing_holds_in_the_table_is_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert accepted(story.landing_state(ledger(others=[(P0, 4, 5)]))) == []

    @pytest.mark.parametrize(
        ("now", "reason"),
        [
            (ledger(epoch=VOID_EPOCH), "its epoch is void"),
            (
                TableLedger(table=ORDERS, uuid=UUID(int=9), section=ledger().section),
                "it was written for a table of this name that is gone",
            ),
        ],
    )
    def test_a_report_for_what_the_table_was_before_is_redundant(self, now: TableLedger, reason: str) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert accepted(story.landing_state(now)) == []
        assert reasons(story.landing_state(now)) == [reason]

    def test_a_report_whose_files_are_not_all_in_the_log_is_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, drop_files=True)
        assert reasons(story.landing_state()) == ["0 of its 1 file lists are in the control log"]

    def test_a_log_that_is_cut_inside_a_report_makes_it_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert accepted(story.landing_state(since=2)) == []

    def test_acceptance_is_per_table(self) -> None:
        story = Story()
        story.opens("a", [A], tables=(ORDERS, DEAD))
        attempt = story.reports("a", A)
        landing_state = story.landing_state(ledger(ORDERS, covered=A), ledger(DEAD))
        assert accepted(landing_state, ORDERS) == []
        assert accepted(landing_state, DEAD) == [attempt]

    def test_a_report_without_files_for_a_table_is_accepted_there(self) -> None:
        story = Story()
        story.opens("a", [A], tables=(ORDERS, DEAD))
        attempt = story.reports("a", A, files={ORDERS: 1})
        landing_state = story.landing_state(*BOTH)
        assert accepted(landing_state, DEAD) == [attempt]
        assert landing_state.accepted[DEAD][0].file_count(DEAD) == 0

    def test_a_report_of_a_cycle_that_the_log_does_not_hold_is_not_accepted(self) -> None:
        """Nobody can tell whether it was requested. A log that is read for a slice is read from its plan on."""
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        assert accepted(story.landing_state(since=1)) == []
        assert reasons(story.landing_state(since=1)) == ["the plan of its cycle is not in the control log"]
        assert story.landing_state().low() == 0

    def test_a_report_after_its_cycle_was_closed_is_accepted(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.closes("a")
        attempt = story.reports("a", A)
        assert accepted(story.landing_state()) == [attempt]

    def test_folding_twice_gives_the_same_view(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", A)
        story.reports("a", B, failed="x")
        assert story.landing_state() == story.landing_state()


class TestNotRequested:
    """Reports that no plan in the log set out to make."""

    @staticmethod
    def reported_at(**changes: object) -> LandingState:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", A)
        last = story.entries[-1]
        assert isinstance(last, SliceReported)
        story.entries[-1] = replace(last, report=replace(last.report, **changes))  # type: ignore[arg-type]
        return story.landing_state()

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"window_id": UUID(int=8)}, "it is of window"),
            ({"slice_id": UUID(int=8)}, "its cycle planned no such slice"),
            ({"spans": filtered(A) * 2}, "its spans overlap each other"),
            ({"spans": filtered([(P0, 0, 20)])}, "planned no such slice"),
            ({"spans": filtered([(P1, 0, 10)])}, "planned no such slice"),
        ],
        ids=["window", "slice", "span twice", "more than planned", "another partition"],
    )
    def test_a_report_of_something_else_is_redundant(self, changes: dict[str, object], reason: str) -> None:
        landing_state = self.reported_at(**changes)
        assert accepted(landing_state) == []
        assert reason in reasons(landing_state)[0]
        (state,) = landing_state.cycles.values()
        assert state.finished == frozenset()

    @pytest.mark.parametrize("what", ["uuid", "epoch", "schema_id", "spec_id", "table"])
    def test_a_report_for_another_table_or_another_state_of_it_is_redundant(self, what: str) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        last = story.entries[-1]
        assert isinstance(last, SliceReported)
        other: dict[str, object] = {
            "uuid": UUID(int=9),
            "epoch": VOID_EPOCH,
            "schema_id": 7,
            "spec_id": 7,
            "table": DEAD,
        }
        of = replace(last.report.tables[0], **{what: other[what]})  # type: ignore[arg-type]
        story.entries[-1] = replace(last, report=replace(last.report, tables=(of,)))
        landing_state = story.landing_state(*BOTH)
        assert accepted(landing_state) == accepted(landing_state, DEAD) == []
        assert f"its cycle planned it otherwise for {of.table}" in reasons(landing_state)

    def test_an_attempt_reports_once(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        attempt = story.reports("a", A)
        story.reports("a", B)
        last = story.entries[-1]
        assert isinstance(last, SliceReported)
        story.entries[-1] = replace(last, report=replace(last.report, attempt=attempt))
        assert accepted(story.landing_state()) == [attempt]

    def test_what_a_user_gave_up_was_blocked_and_is_skipped_complete(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="too many")
        blocked = story.offset
        story.opens("hand")
        cut = story.slice("a", A)
        for n, (ranges, counts) in enumerate(
            [
                (A, Counts(filtered=10)),
                (B, Counts(skipped=10)),
                (A, Counts(skipped=9, landed=1)),
                (A, Counts(skipped=10)),
            ]
        ):
            report = replace(
                report_of(cut, attempt=UUID(int=90 + n), files={}),
                spans=tuple(SpanReport(span=s, counts=counts) for s in spans(ranges)),
            )
            entry = SliceReported(offset=story.offset, at=story.now, commit_id=story.id("hand"), report=report)
            story.entries.append(entry)
        landing_state = story.landing_state()
        assert accepted(landing_state) == [UUID(int=93)]
        assert {reason for _, reason in landing_state.redundant} == {
            "its cycle planned nothing, and no blocked range is given up by it"
        }
        assert landing_state.blocked == ()
        assert story.landing_state(since=blocked).accepted[ORDERS] == ()

    def skipped(self, story: Story, ranges: Ranges, tables: Iterable[str] = (ORDERS,)) -> UUID:
        """A user gives up what is blocked."""
        attempt = UUID(int=93)
        of = replace(story.slice("a", ranges), tables=tuple(tables))
        report = replace(
            report_of(of, attempt=attempt, files={}),
            spans=tuple(SpanReport(span=s, counts=Counts(skipped=len(s))) for s in spans(ranges)),
        )
        story.opens("hand")
        event = SliceReported(offset=story.offset, at=story.now, commit_id=story.id("hand"), report=report)
        story.entries.append(event)
        return attempt

    def test_what_a_user_gave_up_stays_so_while_it_waits_for_what_lies_before_it(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        story.reports("a", B, blocked="too many")
        story.closes("a")
        attempt = self.skipped(story, B)
        story.closes("hand")
        landing_state = story.landing_state()
        low = landing_state.low()
        assert accepted(landing_state) == [attempt]
        assert low is not None
        assert accepted(story.landing_state(since=low)) == [attempt]
        assert story.landing_state(ledger(covered=[*A, *B])).low() is None

    def test_what_a_user_gave_up_and_all_tables_have_is_no_record_to_be_named(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="too many")
        block = story.offset
        attempt = self.skipped(story, A, (ORDERS, DEAD))
        landed = (ledger(ORDERS, covered=A), ledger(DEAD, covered=A))
        for since in (0, block):
            landing_state = story.landing_state(*landed, since=since)
            assert landing_state.quarantined == ()
            assert set(reasons(landing_state)) == {"its ranges are in the ledger or accepted already"}
        half = story.landing_state(ledger(ORDERS, covered=A), ledger(DEAD))
        assert (accepted(half), accepted(half, DEAD)) == ([], [attempt])
        assert half.quarantined == ()


class TestAgain:
    """Records that are copied, word for word, and appended again by whoever may write."""

    @staticmethod
    def with_ids(story: Story) -> list[Entry]:
        return [replace(e, event=UUID(int=1000 + e.offset)) for e in story.entries]

    def test_a_copy_of_any_record_changes_nothing(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.fails_to_commit("a")
        story.opens("b", [B], log=Directives(released=(story.id("a"),)))
        attempt = story.reports("b", B)
        story.publishes("a", log=Directives(voided=(attempt,)))
        story.fails_to_commit("b", log=RAISE_A)
        story.closes("a")
        entries = self.with_ids(story)
        before = fold(entries, (ledger(),), TIMEOUT)
        for copied in entries:
            again = replace(copied, offset=len(entries), at=story.now + TIMEOUT)
            assert fold([*entries, again], (ledger(),), TIMEOUT) == before
        copies = [replace(e, offset=len(entries) + n) for n, e in enumerate(entries)]
        assert fold([*entries, *copies], (ledger(),), TIMEOUT) == before

    def test_a_voided_attempt_stays_void(self) -> None:
        story = Story()
        story.opens("a", [A])
        attempt = story.reports("a", A)
        story.closes("a", log=Directives(voided=(attempt,)))
        copies = [replace(e, offset=story.offset + n) for n, e in enumerate(story.entries[1:3])]
        assert accepted(fold([*story.entries, *copies], (ledger(),), TIMEOUT)) == []

    def test_a_start_of_long_ago_holds_nothing_up(self) -> None:
        story = Story()
        story.opens("old", [A])
        landing_state = story.landing_state(ledger(covered=A))
        assert [c.unfinished for c in landing_state.open_cycles()] == [()]

    def test_a_complete_of_long_ago_ends_no_row_of_failures(self) -> None:
        story = Story()
        story.opens("old")
        story.opens("a", [A])
        story.fails_to_commit("a")
        story.closes("old")
        assert len(story.landing_state(since=1).failing) == 1
        assert story.landing_state().failing == ()


class TestReportedTwice:
    """By replicas, or by an attempt that was thought dead."""

    @staticmethod
    def check(story: Story, taken: list[UUID], redundant: set[UUID], left: Ranges) -> None:
        cycle = story.landing_state().cycles[story.id("a")]
        assert accepted(story.landing_state()) == taken
        assert cycle.redundant == redundant
        assert Coverage.union(s.coverage for s in map(cycle.left_of, cycle.unfinished) if s) == coverage(left)
        # And when the table has what was taken, which every other report overlaps then.
        assert story.landing_state(ledger(covered=A)).cycles[story.id("a")].redundant == redundant

    def test_of_two_complete_reports_the_first_counts(self) -> None:
        story = Story()
        story.opens("a", [A])
        first, second = story.reports("a", A), story.reports("a", A)
        self.check(story, [first], {second}, [])

    @pytest.mark.parametrize("longer", [4, 8])
    def test_of_two_parts_that_overlap_the_first_counts_and_the_rest_is_left(self, longer: int) -> None:
        story = Story()
        story.opens("a", [A])
        first, second = story.reports("a", [(P0, 0, 6)]), story.reports("a", [(P0, 0, longer)])
        self.check(story, [first], {second}, [(P0, 6, 10)])

    def test_all_of_a_slice_after_a_part_of_it_finishes_nothing(self) -> None:
        story = Story()
        story.opens("a", [A])
        first, second = story.reports("a", [(P0, 0, 6)]), story.reports("a", A)
        self.check(story, [first], {second}, [(P0, 6, 10)])
        rest = story.reports("a", [(P0, 6, 10)])
        self.check(story, [first, rest], {second}, [])

    def test_a_part_of_a_slice_after_all_of_it_is_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        first, second = story.reports("a", A), story.reports("a", [(P0, 0, 6)])
        self.check(story, [first], {second}, [])

    def test_parts_that_do_not_overlap_all_count(self) -> None:
        story = Story()
        story.opens("a", [A])
        first, second = story.reports("a", [(P0, 4, 10)]), story.reports("a", [(P0, 0, 4)])
        self.check(story, [first, second], set(), [])

    def test_what_was_not_done_is_no_report_before_it(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, failed="boom")
        self.check(story, [story.reports("a", A)], set(), [])


class TestVoid:
    def test_a_voided_attempt_frees_its_range_for_the_next_report(self) -> None:
        story = Story()
        story.opens("a", [A])
        lost = story.reports("a", A)
        story.fails_to_commit("a", log=Directives(voided=(lost,)))
        assert accepted(story.landing_state()) == []
        assert "it was voided" in reasons(story.landing_state())
        again = story.reports("a", A)
        assert accepted(story.landing_state()) == [again]

    def test_void_does_not_bring_back_a_report_that_was_redundant(self) -> None:
        story = Story()
        story.opens("a", [A])
        lost = story.reports("a", A)
        story.reports("a", A)
        story.closes("a", log=Directives(voided=(lost,)))
        assert accepted(story.landing_state()) == []

    def test_void_does_not_touch_what_is_in_the_ledger(self) -> None:
        story = Story()
        story.opens("a", [A])
        landed = story.reports("a", A)
        story.closes("a", log=Directives(voided=(landed,)))
        story.reports("a", A)
        assert accepted(story.landing_state(ledger(covered=A))) == []


class TestClaims:
    def test_a_claim_is_the_plan(self) -> None:
        story = Story()
        story.opens("a", [A])
        assert story.landing_state().claims(story.now) == coverage(A)

    def test_the_later_of_two_planners_keeps_what_the_earlier_did_not_claim(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [[(P0, 5, 15)], [(P1, 0, 5)]])
        assert story.landing_state().cycles[story.id("b")].claim == coverage([(P0, 10, 15), (P1, 0, 5)])

    def test_a_claim_that_is_about_to_be_released_counts_no_more(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B])
        assert story.landing_state().claims(story.now, released=[story.id("a")]) == coverage(B)

    def test_a_claim_ends_with_its_deadline_and_no_sooner(self) -> None:
        story = Story()
        story.opens("a", [A])
        landing_state, at = story.landing_state(), story.entries[0].at
        assert landing_state.claims(at + TIMEOUT - timedelta(microseconds=1))
        assert not landing_state.claims(at + TIMEOUT)

    def test_a_claim_ends_with_its_complete(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.closes("a")
        assert not story.landing_state().claims(story.now)

    def test_a_claim_that_is_released_in_the_same_start_does_not_hold_the_plan_off(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [A], log=Directives(released=(story.id("a"),)))
        landing_state = story.landing_state()
        assert landing_state.cycles[story.id("b")].claim == coverage(A)
        assert landing_state.claims(story.now) == coverage(A)

    def test_a_claim_whose_deadline_passed_does_not_hold_a_later_plan_off(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.passes(TIMEOUT)
        story.opens("b", [A])
        assert story.landing_state().cycles[story.id("b")].claim == coverage(A)

    def test_a_start_that_is_sent_again_changes_nothing(self) -> None:
        story = Story()
        story.opens("a", [A])
        before = story.landing_state().cycles
        story.opens("a", [B])
        assert story.landing_state().cycles == before

    def test_claims_do_not_depend_on_the_ledgers(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.opens("b", [[(P0, 5, 15)]])
        with_ledger = story.landing_state(ledger(covered=A)).cycles[story.id("b")]
        assert (
            story.landing_state(ledger()).cycles[story.id("b")].claim == with_ledger.claim == coverage([(P0, 10, 15)])
        )


class TestGranted:
    def test_a_plan_that_lost_nothing_is_granted_as_it_is(self) -> None:
        story = Story()
        story.opens("a", [A, B])
        of = story.landing_state().cycles[story.id("a")]
        assert granted(of.plan, of.claim) == of.plan.slices

    def test_a_trimmed_slice_keeps_the_rest_under_an_id_of_its_own(self) -> None:
        story = Story()
        story.opens("a", [[(P0, 4, 6)]])
        story.opens("b", [A])
        of = story.landing_state().cycles[story.id("b")]
        (kept,) = granted(of.plan, of.claim)
        assert kept.spans == spans([(P0, 0, 4), (P0, 6, 10)])
        assert kept.slice_id != of.plan.slices[0].slice_id

    def test_a_slice_that_lost_all_is_not_granted(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [A, B])
        of = story.landing_state().cycles[story.id("b")]
        assert [s.spans for s in granted(of.plan, of.claim)] == [spans(B)]

    def test_a_retry_finds_the_report_of_a_trimmed_slice(self) -> None:
        story = Story()
        story.opens("a", [[(P0, 0, 4)]])
        story.opens("b", [A])
        of = story.landing_state().cycles[story.id("b")]
        (kept,) = granted(of.plan, of.claim)
        story.reports("b", [(P0, 4, 10)])
        again = story.landing_state().cycles[story.id("b")]
        assert again.finished == {kept.slice_id}
        assert again.unfinished == ()

    def test_the_log_that_is_needed_reaches_back_to_what_decided_an_open_claim(self) -> None:
        story = Story()
        story.opens("a", [[(P0, 0, 4)]])
        story.opens("b", [A])
        story.reports("a", [(P0, 0, 4)])
        story.closes("a")
        landing_state = story.landing_state(ledger(covered=[(P0, 0, 4)]))
        low = landing_state.low()
        assert low == 0
        later = story.landing_state(ledger(covered=[(P0, 0, 4)]), since=low)
        assert later.cycles[story.id("b")].claim == landing_state.cycles[story.id("b")].claim


class TestClosing:
    def test_complete_closes_its_cycle(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.closes("a")
        state = story.landing_state().cycles[story.id("a")]
        assert state.complete
        assert state.closed_at == 1

    def test_complete_closes_earlier_cycles_whose_slices_are_all_reported(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.opens("b", [B])
        story.closes("b")
        state = story.landing_state().cycles[story.id("a")]
        assert state.closed_at is not None
        assert not state.complete

    def test_complete_leaves_an_earlier_cycle_open_that_still_writes(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B])
        story.closes("b")
        assert [c.cycle.run for c in story.landing_state().open_cycles()] == ["a"]

    @pytest.mark.parametrize("how", ["deadline", "release"])
    def test_complete_closes_an_earlier_cycle_that_lost_its_claim(self, how: str) -> None:
        story = Story()
        story.opens("a", [A])
        if how == "deadline":
            story.passes(TIMEOUT)
        story.opens("b", [B])
        story.closes("b", log=Directives(released=(story.id("a"),) if how == "release" else ()))
        assert story.landing_state().open_cycles() == []

    def test_complete_closes_no_later_cycle(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b")
        story.closes("a")
        assert [c.cycle.run for c in story.landing_state().open_cycles()] == ["b"]

    def test_complete_of_a_cycle_that_another_one_closed_makes_it_complete(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.opens("b")
        story.closes("b")
        closed_at = story.landing_state().cycles[story.id("a")].closed_at
        story.closes("a")
        state = story.landing_state().cycles[story.id("a")]
        assert state.complete
        assert state.closed_at == closed_at

    def test_complete_of_a_cycle_whose_start_is_cut_off_closes_the_earlier_ones(self) -> None:
        story = Story()
        story.opens("b")
        story.opens("a")
        story.closes("b")
        assert story.landing_state(since=1).open_cycles() == []

    def test_a_failed_commit_is_kept_once_per_task_attempt(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.fails_to_commit("a", "1")
        story.fails_to_commit("a", "1")
        story.fails_to_commit("a", "2")
        state = story.landing_state().cycles[story.id("a")]
        assert state.failed == {"1": "catalog away", "2": "catalog away"}
        assert state.closed_at is None

    def test_announced_tokens_are_remembered(self) -> None:
        story = Story()
        story.closes("a")
        story.publishes("a", token=5)
        story.closes("b")
        assert story.landing_state().announced == {UUID(int=5)}


def fail(story: Story, runs: str, ranges: Ranges = A) -> None:
    for run in runs:
        story.opens(run, [ranges])
        story.reports(run, ranges, failed="boom")
        story.closes(run)


class TestFailures:
    def test_three_cycles_in_a_row_block_a_range_by_name(self) -> None:
        story = Story()
        fail(story, "ab")
        assert story.landing_state().blocked == ()
        fail(story, "c")
        (blocked,) = story.landing_state().blocked
        assert blocked.coverage == coverage(A)
        assert blocked.reason == f"failed in {FAILURES_TO_BLOCK} cycles: boom"

    def test_many_attempts_of_one_cycle_count_once(self) -> None:
        story = Story()
        story.opens("a", [A])
        for _ in range(5):
            story.reports("a", A, failed="boom")
        assert story.landing_state().blocked == ()

    def test_a_slice_and_parts_of_it_that_fail_in_one_cycle_count_once(self) -> None:
        """The first attempt fails as one, the retries find the record, each time under another slice id."""
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, failed="boom")
        story.reports("a", [(P0, 4, 8)], failed="boom")
        story.reports("a", [(P0, 5, 6)], failed="boom")
        assert story.landing_state().blocked == ()
        assert story.landing_state().failed == coverage(A)

    def test_a_part_that_fails_in_other_company_each_time_counts_each_time(self) -> None:
        story = Story()
        for run, ranges in (("a", A), ("b", [(P0, 4, 8)])):
            story.opens(run, [A])
            story.reports(run, ranges, failed="boom")
            story.closes(run)
        story.opens("c", [A])
        story.reports("c", [*A, (P1, 0, 5)], failed="boom")
        story.reports("c", [(P0, 5, 6)], failed="boom")
        assert story.landing_state().blocked_coverage == coverage([(P0, 5, 6)])

    def test_only_the_offsets_that_failed_every_time_are_blocked(self) -> None:
        story = Story()
        fail(story, "a", [(P0, 0, 10)])
        fail(story, "b", [(P0, 5, 15)])
        fail(story, "c", [(P0, 8, 20)])
        assert story.landing_state().blocked_coverage == coverage([(P0, 8, 10)])

    def test_what_several_ranges_failed_together_blocks_none_of_them_and_counts_for_the_one_that_fails_alone(
        self,
    ) -> None:
        story, together = Story(), [*A, (P1, 0, 5)]
        fail(story, "abc", together)
        assert story.landing_state().blocked == ()
        assert story.landing_state().suspects == coverage(together)
        fail(story, "d", A)
        assert story.landing_state().blocked_coverage == coverage(A)

    def test_a_slice_that_was_done_in_parts_is_finished_but_for_what_failed(self) -> None:
        story = Story()
        story.opens("a", [[*A, (P1, 0, 5)]])
        story.reports("a", [(P0, 0, 4), (P1, 0, 5)])
        story.reports("a", [(P0, 6, 10)])
        story.reports("a", [(P0, 4, 6)], failed="boom")
        (left,) = story.landing_state().cycles[story.id("a")].unfinished
        assert left.spans == spans([*A, (P1, 0, 5)])
        rest = story.landing_state().cycles[story.id("a")].left_of(left)
        assert rest is not None
        assert rest.spans == spans([(P0, 4, 6)])
        assert rest.slice_id == story.slice("a", [(P0, 4, 6)]).slice_id
        story.reports("a", [(P0, 4, 6)])
        assert story.landing_state().cycles[story.id("a")].unfinished == ()
        assert story.landing_state().failed == coverage([])

    def test_a_slice_that_has_what_failed_before_is_accepted(self) -> None:
        story, together = Story(), [*A, (P1, 0, 5)]
        story.opens("a", [together])
        story.reports("a", together, failed="boom")
        attempt = story.reports("a", together)
        assert accepted(story.landing_state()) == [attempt]

    def test_a_success_begins_the_count_anew(self) -> None:
        story = Story()
        fail(story, "ab")
        story.opens("c", [A])
        attempt = story.reports("c", A)
        story.closes("c", log=Directives(voided=(attempt,)))
        fail(story, "de")
        assert story.landing_state().blocked == ()
        fail(story, "f")
        assert story.landing_state().blocked_coverage == coverage(A)

    def test_a_failure_does_not_end_the_work_on_its_slice(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, failed="boom")
        assert [s.spans for s in story.landing_state().cycles[story.id("a")].unfinished] == [spans(A)]

    def test_the_log_is_needed_back_to_the_first_failure_so_that_the_third_one_blocks(self) -> None:
        story = Story()
        for run in "abc":
            low = story.landing_state().low(without=story.id(run)) or 0
            story.opens(run, [A])
            story.reports(run, A, failed="boom")
            story.closes(run)
        assert story.landing_state(since=low).blocked_coverage == coverage(A)

    def test_a_block_needs_all_the_failures_that_made_it(self) -> None:
        story = Story()
        fail(story, "abc")
        low = story.landing_state().low()
        assert low is not None
        assert story.landing_state(since=low).blocked == story.landing_state().blocked

    def test_a_block_is_missing_when_all_tables_have_its_range(self) -> None:
        story = Story()
        fail(story, "abc")
        assert story.landing_state(ledger(covered=A)).blocked == ()
        assert story.landing_state(ledger(ORDERS, covered=A), ledger(DEAD)).blocked != ()

    def test_failures_of_a_range_that_has_landed_need_no_log(self) -> None:
        story = Story()
        fail(story, "ab")
        assert story.landing_state(ledger(covered=A)).low() is None


class TestBudgets:
    def test_one_range_over_budget_is_blocked(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="7 rejected")
        (blocked,) = story.landing_state().blocked
        assert (blocked.coverage, blocked.reason) == (coverage(A), "7 rejected")

    def test_a_slice_of_several_ranges_over_budget_is_cut_again_before_anything_is_blocked(self) -> None:
        story, both = Story(), [*A, (P1, 0, 5)]
        story.opens("a", [both])
        story.reports("a", both, blocked="7 rejected")
        landing_state = story.landing_state()
        assert landing_state.blocked == ()
        assert landing_state.recut == coverage(both)

    def test_the_log_is_needed_back_to_a_recut(self) -> None:
        story, both = Story(), [*A, (P1, 0, 5)]
        story.opens("a", [both])
        story.reports("a", both, blocked="7 rejected")
        story.closes("a")
        low = story.landing_state().low()
        assert low is not None
        assert story.landing_state(since=low).recut == coverage(both)

    def test_a_recut_is_over_when_all_tables_have_its_ranges(self) -> None:
        story, both = Story(), [*A, (P1, 0, 5)]
        story.opens("a", [both])
        story.reports("a", both, blocked="7 rejected")
        assert story.landing_state(ledger(covered=A)).recut == coverage([(P1, 0, 5)])

    def test_a_raised_budget_unblocks_and_is_kept_for_the_next_plan(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="7 rejected")
        story.opens("hand", log=RAISE_A)
        landing_state = story.landing_state()
        assert landing_state.blocked == ()
        assert landing_state.raised == RAISE_A.raised

    def test_a_raised_budget_begins_the_count_of_failures_anew(self) -> None:
        story = Story()
        fail(story, "abc")
        story.opens("hand", log=RAISE_A)
        fail(story, "de")
        assert story.landing_state().blocked == ()

    def test_the_log_is_needed_back_to_a_raise_until_its_range_has_landed(self) -> None:
        story = Story()
        story.opens("hand", log=RAISE_A)
        story.closes("hand")
        assert story.landing_state().low() == 0
        assert story.landing_state(ledger(covered=A)).low() is None

    def test_a_late_report_that_evaluated_by_the_budget_before_the_raise_blocks_nothing(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="7 rejected")
        story.opens("hand", log=RAISE_A)
        story.reports("a", A, blocked="7 rejected")
        assert story.landing_state().blocked == ()

    def test_a_report_that_is_over_the_raised_budget_too_blocks_again(self) -> None:
        story = Story()
        story.opens("hand", log=RAISE_A)
        story.opens("b", [A])
        story.reports("b", A, blocked="70 rejected")
        assert story.landing_state().blocked_coverage == coverage(A)


class TestBehindABlock:
    """What is reported stays accepted: whether it can be read again, the log does not tell."""

    RESTS: Ranges = ((P0, 0, 3), (P1, 10, 13))
    BLOCKED: Ranges = ((P1, 0, 10),)

    @pytest.mark.parametrize("problem", ["blocked", "failed"])
    @pytest.mark.parametrize("first", [True, False])
    def test_a_slice_of_several_partitions_stays_accepted(self, problem: str, first: bool) -> None:
        story = Story()
        story.opens("a", [self.RESTS, self.BLOCKED], tables=(ORDERS, DEAD))
        if first:
            story.reports("a", self.BLOCKED, **{problem: "too many"})
        attempt = story.reports("a", self.RESTS)
        if not first:
            story.reports("a", self.BLOCKED, **{problem: "too many"})
        assert accepted(story.landing_state(*BOTH)) == accepted(story.landing_state(*BOTH), DEAD) == [attempt]

    def test_a_plan_that_gives_it_up_has_its_other_partitions_reported_again(self) -> None:
        story = Story()
        story.opens("a", [self.RESTS, self.BLOCKED])
        attempt = story.reports("a", self.RESTS)
        story.reports("a", self.BLOCKED, blocked="too many")
        story.opens("b", [[(P0, 0, 3)]], log=Directives(voided=(attempt,)))
        again = story.reports("b", [(P0, 0, 3)])
        assert accepted(story.landing_state()) == [again]


class TestLow:
    def test_nothing_open_needs_no_log(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.closes("a")
        assert story.landing_state(ledger(covered=A)).low() is None

    def test_an_accepted_slice_needs_its_files(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.closes("a")
        # From its plan on, without which nobody could tell that it was requested.
        assert story.landing_state().low() == 0

    def test_a_slice_that_one_table_lacks_is_needed(self) -> None:
        story = Story()
        story.opens("a", [A], tables=(ORDERS, DEAD))
        story.reports("a", A)
        story.closes("a")
        assert story.landing_state(ledger(ORDERS, covered=A), ledger(DEAD)).low() == 0

    def test_an_open_cycle_needs_its_start_unless_it_is_the_one_that_requests(self) -> None:
        story = Story()
        story.opens("a", [A])
        assert story.landing_state().low() == 0
        assert story.landing_state().low(without=story.id("a")) is None

    def test_a_slice_that_is_about_to_land_is_needed_only_where_it_does_not(self) -> None:
        story = Story()
        story.opens("a", [A], tables=(ORDERS, DEAD))
        attempt = story.reports("a", A)
        story.closes("a")
        landing_state = story.landing_state(*BOTH)
        assert landing_state.low(landed={(ORDERS, attempt)}) == 0
        assert landing_state.low(landed={(ORDERS, attempt), (DEAD, attempt)}) is None

    def test_reading_from_low_accepts_the_same(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        story.closes("a")
        story.opens("b", [B])
        story.reports("b", B)
        whole = story.landing_state(ledger(covered=A))
        low = whole.low()
        assert low is not None
        assert low > 0
        assert story.landing_state(ledger(covered=A), since=low).accepted == whole.accepted


class TestSlots:
    """Planners that did not see each other's STARTs wish for one slot; the log's order decides."""

    def slots(self, story: Story, since: int = 0) -> dict[str, int]:
        return {c.cycle.run: c.cycle.slot for c in story.landing_state(since=since).cycles.values()}

    def test_the_first_has_it_and_the_others_take_the_next(self) -> None:
        story = Story()
        for run in "abc":
            story.opens(run, [A])
        assert self.slots(story) == {"a": 0, "b": 1, "c": 2}

    def test_an_unopposed_wish_is_granted(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B], slot=1)
        story.opens("c", slot=1)
        assert self.slots(story) == {"a": 0, "b": 1, "c": 2}

    @pytest.mark.parametrize("end", ["closed", "released"])
    def test_the_slot_of_a_cycle_that_is_over_is_free_so_that_its_zombies_are_fenced(self, end: str) -> None:
        story = Story()
        story.opens("a", [A])
        if end == "closed":
            story.closes("a")
            story.opens("b", [A])
        else:
            story.opens("b", [A], log=Directives(released=(story.id("a"),)))
        assert self.slots(story) == {"a": 0, "b": 0}

    def test_any_reader_from_a_ledger_end_grants_the_same(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B])
        state = story.landing_state().cycles[story.id("b")]
        assert state.since == 0
        assert self.slots(story, since=state.since) == self.slots(story)

    def test_a_reader_that_was_kept_from_nothing_needs_nothing_before_its_own_start(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", [B], slot=1)
        assert story.landing_state().cycles[story.id("b")].since == 1


class TestWrongClocks:
    """A record's time is reported by whoever sent it."""

    LATE = NOON.replace(year=2100)

    def story(self) -> Story:
        story = Story()
        story.reported_at = self.LATE
        story.opens("a", [A])
        story.reported_at = None
        return story

    def claims(self, story: Story, passed: timedelta = timedelta(0)) -> bool:
        return bool(story.landing_state().claims(story.now + passed))

    def test_a_start_from_the_future_holds_its_claim_as_long_as_any_other(self) -> None:
        story = self.story()
        story.opens("b")
        assert self.claims(story, TIMEOUT - timedelta(seconds=5))
        assert not self.claims(story, TIMEOUT)

    def test_until_another_writer_has_reported_anything_it_is_as_if_it_began_now(self) -> None:
        story = self.story()
        assert self.claims(story, 5 * TIMEOUT)
        assert story.landing_state().cycles[story.id("a")].ends(story.now) == story.now + TIMEOUT

    def test_its_cycle_is_closed_by_a_later_one_when_its_time_is_over(self) -> None:
        story = self.story()
        story.opens("b", slot=1)
        story.passes(TIMEOUT)
        story.opens("c", slot=2)
        story.closes("c")
        assert story.landing_state().open_cycles() == []

    def test_a_clock_that_is_behind_ends_no_claim_of_one_that_is_right(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reported_at = NOON.replace(year=1990)
        story.opens("b")
        story.reported_at = None
        assert self.claims(story, TIMEOUT - timedelta(seconds=5))
        assert not self.claims(story, TIMEOUT)

    def test_a_slice_from_the_future_is_as_old_as_the_log_after_it(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reported_at = self.LATE
        story.reports("a", A)
        story.reported_at = None
        day = timedelta(days=1)
        (newest,) = story.landing_state().accepted[ORDERS]
        assert not newest.young(story.now, day)
        story.opens("b")
        (known,) = story.landing_state().accepted[ORDERS]
        assert not known.young(story.now + 2 * day, day)
        assert known.age(story.now + 2 * day) > day
