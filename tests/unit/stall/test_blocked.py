# SPDX-License-Identifier: Apache-2.0
"""Ranges that need a decision: over their budget, or failed in as many cycles as a plan tries them."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent, StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate
from tests.fakes.session import FakeLanding
from tests.support.story import P0, coverage

RULES = StallRules(landing=True)
RANGE = coverage([(P0, 0, 10)])


def tried(state: State, at: float, commit: bytes, covers: Coverage = RANGE, *, alone: bool = True) -> State:
    event = ObservedEvent(EventKind.ANSWERED, at, commit, tried="out of memory", covers=covers, alone=alone)
    return observe(state, event, RULES)


def failed_in(cycles: int, *, alone: bool = True) -> State:
    state = State(landing=True, completed=1)
    for n in range(cycles):
        # A slice, and its parts, may fail one after the other in one cycle.
        state = tried(tried(state, n, b"%d" % n, alone=alone), n, b"%d" % n, alone=alone)
    return state


def test_a_range_that_failed_in_three_cycles_is_blocked_since_the_third() -> None:
    assert evaluate(failed_in(2), 9.0, RULES).verdict is Verdict.HEALTHY
    found = evaluate(failed_in(3), 9.0, RULES)
    assert (found.verdict, found.since) == (Verdict.BLOCKED, 2.0)
    assert "failed in 3 cycles: out of memory" in found.reason


def test_what_failed_together_blocks_none_of_it() -> None:
    assert evaluate(failed_in(3, alone=False), 9.0, RULES).verdict is Verdict.HEALTHY


def test_a_range_that_is_published_or_read_again_starts_over() -> None:
    for kind in (EventKind.PUBLISHED, EventKind.START):
        again = observe(failed_in(3), ObservedEvent(kind, 5.0, b"next", covers=RANGE), RULES)
        assert again.blocked == ()
        assert tried(again, 6.0, b"next").blocked == ()


def seen(landing: FakeLanding) -> State:
    """As the page and the sensor see the control topic."""
    state = State(landing=True)
    for record in landing.session.control.read_all():
        if (found := observed_record(record.value, key=record.key, headers=record.headers)) is not None:
            state = observe(state, found[1], RULES)
    return state


def test_a_range_that_a_user_passed_is_blocked_until_the_next_plan_though_nothing_is_new(landing: FakeLanding) -> None:
    opened = landing.open("a")
    landing.report(opened, lambda s: str(s) == "orders[0][0, 10)", blocked="5 rejected records, 0 allowed")
    landing.report(opened, lambda s: str(s) == "orders[1][0, 10)")
    landing.close("a", opened)
    landing.clock.passes(timedelta(minutes=1))
    landing.cycle("b")
    assert [str(covers) for covers, _, _ in seen(landing).blocked] == ["orders[0] [0, 10)"]
    ledger_init(landing.session, "latest")
    closed = landing.cycle("c")
    assert closed.reason == "nothing new"
    assert seen(landing).blocked == ()


def test_a_range_counts_once_however_often_it_is_reported() -> None:
    state = failed_in(3)
    assert evaluate(state, 9.0, RULES) == evaluate(tried(state, 7.0, b"later"), 9.0, RULES)
