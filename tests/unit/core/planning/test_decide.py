# SPDX-License-Identifier: Apache-2.0
"""The one decision of a plan: what is taken, what is refused, and what the plan says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import LIVE, Plan, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.admission import Terms, catalog_away
from airflow_provider_lakecommit.core.planning.decide import PlanInputs, abandoned, decide_plan, empty_plan, free_slot
from airflow_provider_lakecommit.core.planning.missing import Watermark, WindowLimits, find_missing
from airflow_provider_lakecommit.exceptions import SpecError
from tests.support.story import NOON, ORDERS, P0, P1, P2, TIMEOUT, VOID_EPOCH, Story, coverage, ledger, target

A, B, C = [(P0, 0, 10)], [(P0, 10, 20)], [(P0, 20, 30)]
ENDS = {P0: 30, P1: 10, P2: 0}


def given(ends: Mapping[SourcePartition, int] | None = None, **changes: Any) -> PlanInputs:
    source = {
        p: Watermark(start=0, stable=end, high=end)
        for p, end in ({P0: 0, P1: 0, P2: 0, **(ENDS if ends is None else ends)}).items()
    }
    made = PlanInputs(
        landing="orders",
        lane=LIVE,
        spec_version="s1",
        source=source,
        requested_at=NOON,
        now=NOON,
        targets=(target(ORDERS),),
        vended={ORDERS: True},
        limits=WindowLimits(slice_records=10),
    )
    return replace(made, **changes)


def decide(story: Story, inputs: PlanInputs) -> tuple[Plan, tuple[str, ...]]:
    state, inputs = story.landing_state(), replace(inputs, now=story.now)
    return decide_plan(state, find_missing(state, inputs.source, state.claims(inputs.now, inputs.released)), inputs)


def stalled() -> Story:
    story = Story()
    for run in ("a", "b", "c"):
        story.opens(run)
        story.fails_to_commit(run)
    return story


@pytest.mark.parametrize(
    ("limits", "terms", "taken", "left"),
    [
        ({}, {}, 40, 0),
        ({"max_records": 20}, {}, 20, 20),
        ({"max_bytes": 2048}, {}, 2, 38),
        ({"max_bytes": 2000, "record_bytes": 100}, {}, 20, 20),
        ({"max_slices": 3}, {}, 30, 10),
        ({"max_slices": 3}, {"slices": 2}, 20, 20),
        ({"max_slices": 2}, {"slices": 3}, 20, 20),
        ({"record_bytes": 100}, {"bytes": 1500}, 15, 25),
    ],
)
def test_the_tightest_limit_of_landing_wire_and_admission_counts(
    limits: dict[str, Any], terms: dict[str, Any], taken: int, left: int
) -> None:
    inputs = given(limits=WindowLimits(slice_records=10, **limits), terms=Terms(budget=PendingBudget(**terms)))
    plan, _ = decide(Story(), inputs)
    assert (sum(len(s) for s in plan.slices), plan.left) == (taken, left)
    assert plan.reason is None
    assert not plan.deferred


@pytest.mark.parametrize(("most", "size", "refused"), [(99, 100, True), (100, 100, False), (99, 0, False)])
def test_a_window_that_holds_no_record_is_refused(most: int, size: int, refused: bool) -> None:
    inputs = given(limits=WindowLimits(slice_records=10, max_bytes=most, record_bytes=size))
    if not refused:
        assert decide(Story(), inputs)[0].slices
        return
    with pytest.raises(SpecError, match=r"window.max_bytes.*99,.*\(100.*LC1336") as raised:
        decide(Story(), inputs)
    assert raised.value.code == "LC1336"


def test_what_is_cut_off_is_the_newest_and_is_explained() -> None:
    plan, explain = decide(Story(), given({P0: 30}, limits=WindowLimits(slice_records=10, max_slices=2)))
    assert plan.coverage == coverage([(P0, 0, 20)])
    assert explain[-1] == "1 slices are left: 2 of 3 are admitted"


def test_sizes_that_were_requested_count_for_more_than_those_that_landed() -> None:
    limits = WindowLimits(slice_records=10, max_bytes=4000, record_bytes=1, sizes={P0: 400, P1: 400})
    plan, _ = decide(Story(), given(limits=limits))
    assert len(plan.coverage) == 10


def test_a_window_has_its_tables_the_ends_and_when_they_were_requested() -> None:
    plan, _ = decide(Story(), given())
    assert (plan.targets, plan.vended, dict(plan.ends)) == ((target(ORDERS),), {ORDERS: True}, ENDS)
    assert plan.requested_at == NOON


def test_the_same_inputs_make_the_same_window() -> None:
    assert decide(Story(), given()) == decide(Story(), given())


def test_a_refused_plan_takes_nothing_and_reports_how_much_there_is() -> None:
    plan, explain = decide(stalled(), given())
    assert (plan.slices, plan.targets, dict(plan.vended), explain) == ((), (), {}, ())
    assert (plan.refused, plan.left, dict(plan.ends)) == ("stalled", 40, ENDS)
    assert "cleared by one COMMIT_COMPLETE" in str(plan.reason)
    assert plan.deferred


def test_a_refused_plan_with_nothing_to_read_puts_nothing_off() -> None:
    plan, _ = decide(stalled(), given({P0: 0}))
    assert plan.refused == "stalled"
    assert not plan.deferred


def test_of_a_full_budget_only_what_pending_slices_wait_for_is_planned() -> None:
    story = Story()
    story.opens("a", [A, B])
    story.reports("a", B)
    story.closes("a")
    story.passes(TIMEOUT)
    terms = Terms(budget=PendingBudget(slices=1))
    plan, explain = decide(story, given({P0: 30}, terms=terms))
    assert plan.coverage == coverage(A)
    assert plan.left == len(coverage(C))
    assert any(line.startswith("Planned only what pending slices wait for. pending slices: ") for line in explain)


def test_a_slower_landing_takes_a_share_of_what_is_missing() -> None:
    story = Story()
    story.opens("a", [A])
    story.fails_to_commit("a")
    story.opens("b")
    terms = Terms(stalled_cycles=9, slow_down=True)
    plan, _ = decide(story, given({P0: 30}, terms=terms, released=(story.id("a"),)))
    assert len(plan.coverage) == 15


class TestNothingToRead:
    def test_it_is_reported(self) -> None:
        plan, _ = decide(Story(), given({P0: 0}))
        assert (plan.slices, plan.targets, plan.left, plan.reason) == ((), (), 0, "nothing new")

    def test_what_others_claim_is_named(self) -> None:
        story = Story()
        story.opens("a", [A])
        plan, _ = decide(story, given({P0: 10}))
        assert plan.reason == f"nothing new; other open cycles claim {coverage(A)}"

    def test_a_blocked_range_is_the_reason(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A, blocked="too many")
        story.closes("a")
        plan, _ = decide(story, given({P0: 10}))
        assert plan.reason == f"blocked: {coverage(A)}: too many"

    def test_an_open_transaction_is_the_reason(self) -> None:
        held = given({P0: 0}, source={p: Watermark(start=0, stable=0, high=5) for p in (P0, P1, P2)})
        plan, _ = decide(Story(), held)
        assert "an open transaction holds the last stable offset at 0" in str(plan.reason)


class TestAbandoned:
    def test_cycles_of_dead_processes_and_those_of_epochs_that_are_over(self) -> None:
        story = Story()
        for run, ranges_of in (("lives", A), ("dead", B), ("closed", C)):
            story.opens(run, [ranges_of])
        story.closes("closed")
        dead = {story.id("dead"), story.id("closed")}
        assert abandoned(story.landing_state(), dead) == (story.id("dead"),)
        renewed = story.landing_state(ledger(epoch=VOID_EPOCH))
        assert abandoned(renewed, ()) == (story.id("lives"), story.id("dead"))

    def test_without_ledgers_no_epoch_is_over(self) -> None:
        story = Story()
        story.opens("a", [A])
        state = replace(story.landing_state(), ledgers={})
        assert abandoned(state, ()) == ()
        assert abandoned(state, {story.id("a")}) == (story.id("a"),)

    def test_its_ranges_are_planned_again(self) -> None:
        story = Story()
        story.opens("dead", [A])
        assert not decide(story, given({P0: 10}))[0].slices
        plan, _ = decide(story, given({P0: 10}, released=(story.id("dead"),)))
        assert [s.spans for s in plan.slices] == [(Span(P0, OffsetRange(0, 10)),)]


class TestFreeSlot:
    def test_it_is_the_smallest_that_no_open_cycle_uses(self) -> None:
        story = Story()
        assert free_slot(story.landing_state()) == 0
        story.opens("a", [A])
        assert free_slot(story.landing_state()) == 1
        # So that whatever still writes for it is fenced.
        assert free_slot(story.landing_state(), {story.id("a")}) == 0

    def test_a_slot_is_free_when_its_cycle_is_closed_or_was_released(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.opens("b", log=Directives(released=(story.id("a"),)))
        story.closes("b")
        assert free_slot(story.landing_state()) == 0


def test_an_empty_plan_reports_which_state_refused_it() -> None:
    plan = empty_plan("orders", LIVE, "s1", NOON, "nobody asked")
    refused = empty_plan("orders", LIVE, "s1", NOON, catalog_away(ValueError("gone")))
    assert (plan.reason, plan.refused, plan.deferred) == ("nobody asked", None, False)
    assert (refused.refused, refused.deferred) == ("catalog away", True)
    assert plan.window_id == refused.window_id != UUID(int=0)
