# SPDX-License-Identifier: Apache-2.0
"""What a guard makes of a verdict: table by table, and by properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent, StallRules, State
from airflow_provider_lakecommit.stall.guard import MOST_CYCLES, STALE, Guard, GuardAnswer, rule
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate

NOON = 1_800_000_000.0
GUARD = Guard()


def after(
    *events: tuple[EventKind, float, int], rules: StallRules | None = None, through: float | None = None
) -> State:
    """What is remembered after events: kind, seconds after noon, number of the cycle."""
    state = State()
    for kind, at, cycle in events:
        answered = ObservedEvent(EventKind.ANSWERED, NOON + at, b"%d" % cycle, partitions=frozenset({("orders", 0)}))
        if kind is EventKind.COMPLETED:
            state = observe(state, answered, rules or StallRules())
        event = ObservedEvent(kind, NOON + at, b"%d" % cycle, b"one", valid_through=through)
        state = observe(state, event, rules or StallRules())
    return state


def cycle(number: int, at: float) -> tuple[tuple[EventKind, float, int], ...]:
    return ((EventKind.START, at, number), (EventKind.COMPLETED, at + 1, number))


HEALTHY = after(*cycle(1, 0), *cycle(2, 60), *cycle(3, 120))
STALLED = after(*cycle(1, 0), *((EventKind.START, 60.0 * n, n) for n in range(2, 5)))
STARTED = after((EventKind.START, 0, 1))


@pytest.mark.parametrize(
    ("state", "at", "guard", "answer", "verdict"),
    [
        (HEALTHY, 130, GUARD, GuardAnswer.GO, "healthy"),
        (State(), 0, GUARD, GuardAnswer.GO, "unknown"),
        (STARTED, 1, replace(GUARD, unknown_holds=True), GuardAnswer.HOLD, "unknown"),
        (STALLED, 241, GUARD, GuardAnswer.HOLD, "stalled"),
        (STALLED, 241, replace(GUARD, hold=frozenset({Verdict.DEAD})), GuardAnswer.GO, "stalled"),
        (STALLED, 9000, GUARD, GuardAnswer.HOLD, "dead"),
        (STALLED, 9000, replace(GUARD, rules=StallRules(only_cycles=True)), GuardAnswer.HOLD, "stalled"),
        (STALLED, 241, replace(GUARD, rules=StallRules(stalled_cycles=4)), GuardAnswer.GO, "slowing"),
        (STALLED, 241, replace(GUARD, fail_after=120.0), GuardAnswer.FAIL, "stalled"),
        (STALLED, 241, replace(GUARD, fail_after=121.0), GuardAnswer.HOLD, "stalled"),
    ],
)
def test_what_a_guard_does(state: State, at: float, guard: Guard, answer: GuardAnswer, verdict: str) -> None:
    ruling = rule(state, NOON + at, guard)
    assert (ruling.answer, ruling.verdict) == (answer, verdict)
    assert ("cleared by" in str(ruling)) is (answer is not GuardAnswer.GO)


def test_a_table_that_is_too_old_is_kept_though_commits_come_through() -> None:
    state = after(*cycle(1, 0), *cycle(2, 60), *cycle(3, 120), through=NOON)
    aged = replace(GUARD, max_age=600.0)
    assert rule(state, NOON + 130, aged).answer is GuardAnswer.GO
    assert rule(state, NOON + 600, replace(aged, rules=StallRules(only_cycles=True))).answer is GuardAnswer.GO
    found = rule(state, NOON + 601, replace(aged, rules=StallRules(only_cycles=True)))
    assert (found.answer, found.verdict, found.since) == (GuardAnswer.HOLD, STALE, NOON + 600)
    assert "later valid-through time" in found.clears
    later = replace(aged, rules=StallRules(only_cycles=True), fail_after=60.0)
    assert rule(state, NOON + 661, later).answer is GuardAnswer.FAIL


def test_a_time_that_is_yet_to_come_holds_since_it_would_hide_years_of_silence() -> None:
    guard = replace(GUARD, max_age=600.0, rules=StallRules(only_cycles=True))
    ahead = after(*cycle(1, 0), *cycle(2, 60), *cycle(3, 120), through=NOON + 3650 * 86400)
    found = rule(ahead, NOON + 130, guard)
    assert (found.answer, found.verdict) == (GuardAnswer.HOLD, STALE)
    assert "which is in the future: the clock here or of the planner is wrong" in found.reason
    a_little = after(*cycle(1, 0), *cycle(2, 60), *cycle(3, 120), through=NOON + 400)
    assert rule(a_little, NOON + 130, guard).answer is GuardAnswer.GO


@pytest.mark.parametrize("state", [HEALTHY, STARTED, State()])
@pytest.mark.parametrize("unknown_holds", [False, True])
def test_an_age_that_is_not_known_holds(state: State, unknown_holds: bool) -> None:
    found = rule(state, NOON + 130, replace(GUARD, max_age=600.0, unknown_holds=unknown_holds))
    assert found.answer is GuardAnswer.HOLD
    assert "cleared by" in str(found)
    assert found.verdict == (Verdict.UNKNOWN if unknown_holds and state is not HEALTHY else STALE)


@pytest.mark.parametrize(
    ("waits_since", "answer", "message"),
    [
        (NOON - 60, GuardAnswer.HOLD, "the table's valid-through time is unknown"),
        (NOON - 61, GuardAnswer.FAIL, "for 61 s, longer than the allowed 60 s"),
        (None, GuardAnswer.FAIL, "for an unknown time, longer than the allowed 60 s"),
    ],
)
@pytest.mark.parametrize("unknown_holds", [False, True])
def test_an_age_that_is_not_known_is_as_old_as_the_wait_for_it(
    waits_since: float | None, answer: GuardAnswer, message: str, unknown_holds: bool
) -> None:
    guard = replace(GUARD, max_age=600.0, fail_after=60.0, waits_since=waits_since, unknown_holds=unknown_holds)
    found = rule(State(), NOON, guard)
    assert found.answer is answer
    assert message in found.reason or (unknown_holds and answer is GuardAnswer.HOLD)


def test_what_is_known_to_have_begun_before_the_wait_is_older_than_it() -> None:
    guard = replace(GUARD, fail_after=120.0, waits_since=NOON + 240)
    assert rule(STALLED, NOON + 241, guard).answer is GuardAnswer.FAIL


def test_a_long_stall_is_as_old_as_the_last_complete_cycle() -> None:
    rules = StallRules(only_cycles=True)
    state = after(*cycle(1, 0), *((EventKind.START, 60.0 * n, n) for n in range(2, 100)), rules=rules)
    found = rule(state, NOON + 6000, Guard(rules=rules))
    assert found.since == NOON + 1
    assert evaluate(state, NOON + 6000, rules).since != NOON + 1


@given(stalled_cycles=st.integers(1, MOST_CYCLES), answers=st.lists(st.booleans(), max_size=120))
def test_one_fold_serves_guards_of_any_number_of_cycles(stalled_cycles: int, answers: list[bool]) -> None:
    own, most = StallRules(stalled_cycles=stalled_cycles, only_cycles=True), StallRules(stalled_cycles=MOST_CYCLES)
    events = [
        event
        for n, completes in enumerate(answers)
        for event in ((EventKind.START, 60.0 * n, n), *([(EventKind.COMPLETED, 60.0 * n + 1, n)] if completes else []))
    ]
    guard, at = Guard(rules=own), NOON + 60.0 * len(answers)
    shared, alone = rule(after(*events, rules=most), at, guard), rule(after(*events, rules=own), at, guard)
    assert (shared.answer, shared.verdict) == (alone.answer, alone.verdict)
