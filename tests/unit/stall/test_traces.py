# SPDX-License-Identifier: Apache-2.0
"""The verdict next to the truth, event by event, on recordings of real connectors (versions 1.12 and 1.10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent, StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate
from tests.fixtures.traces import SCENES, Trace, read_trace

HEALTHY, UNKNOWN, SLOWING = Verdict.HEALTHY, Verdict.UNKNOWN, Verdict.SLOWING
STALLED, LOSING, DEAD, SPLIT = Verdict.STALLED, Verdict.LOSING, Verdict.DEAD, Verdict.SPLIT

#: Per scene and mark: the verdicts after each event until the next mark, in the order in which they come. What was done
#: to the connector says which; how soon is said by the tests below. The first entry is the start-up.
TRUTH: dict[str, list[tuple[Verdict, ...]]] = {
    "outage_with_retries": [(UNKNOWN, HEALTHY), (), (HEALTHY, SLOWING, STALLED), (STALLED, HEALTHY)],
    # The first coordinator dies, a rebalance makes a second one, which dies as well; a user restarts the task.
    "outage_at_defaults": [(UNKNOWN, HEALTHY), (), (HEALTHY,), (SLOWING,), (), (STALLED, HEALTHY)],
    "dropped_table": [(UNKNOWN, HEALTHY), (), (HEALTHY, LOSING), (), (LOSING, HEALTHY)],
    "idle": [(UNKNOWN, HEALTHY), (), (HEALTHY,), (HEALTHY,), (HEALTHY,)],
    "half_silent": [(UNKNOWN, HEALTHY), (), (HEALTHY, LOSING), (LOSING, HEALTHY)],
    "late_answers": [(UNKNOWN, HEALTHY), (), *[(HEALTHY,)] * 8],
    # Nothing is heard while it stands still; that is for the clock, below.
    "silent_coordinator": [(UNKNOWN, HEALTHY), (), (HEALTHY,), (HEALTHY,)],
    # A paused connector goes on with its cycles: they take what was written before, and then nothing.
    "paused": [(UNKNOWN, HEALTHY), (), (HEALTHY,), (HEALTHY,)],
    "paused_in_an_outage": [
        (UNKNOWN, HEALTHY),
        (),
        (HEALTHY, SLOWING, STALLED),
        (STALLED,),
        (STALLED, HEALTHY),
        (HEALTHY,),
    ],
    # The next coordinator completes cycles that take nothing: the frozen one still holds the control topic. When that
    # comes back both have a say; only a third one commits what waits.
    "zombie_coordinator": [(UNKNOWN, HEALTHY), (), (HEALTHY, LOSING), (LOSING, SPLIT, LOSING, HEALTHY)],
    # Answers are late in every cycle, and no partition is in step with another.
    "three_control_partitions": [
        (UNKNOWN, HEALTHY),
        (SLOWING, STALLED),
        (STALLED, HEALTHY),
        (HEALTHY, LOSING),
        (LOSING, HEALTHY),
    ],
    # Tasks took five cycles to start; then there were two coordinators, and nothing was committed to the end.
    "split_by_1_10": [(UNKNOWN, HEALTHY), (HEALTHY, SPLIT, LOSING, SPLIT)],
    # Idle cycles complete while the catalog is away: they have nothing to commit.
    "idle_in_an_outage": [
        (UNKNOWN, HEALTHY),
        (),
        (HEALTHY,),
        (HEALTHY,),
        (HEALTHY,),
        (HEALTHY,),
        (HEALTHY, SLOWING, STALLED),
        (STALLED, HEALTHY),
        (HEALTHY,),
        (HEALTHY,),
    ],
    # One of four tables takes no commits for two cycles, another is dropped and made anew. A rebalance makes a
    # coordinator that passes over what the one before it had left; the new table gets a snapshot later.
    "several_tables": [
        (UNKNOWN, HEALTHY),
        (),
        (HEALTHY, SLOWING),
        (SLOWING, HEALTHY),
        (),
        (HEALTHY, SLOWING, LOSING),
        (LOSING,),
        (LOSING, HEALTHY),
    ],
    # Two of the four partitions are no more; nobody waits for them.
    "shrunk_topic": [(UNKNOWN, HEALTHY), (), (HEALTHY,), (HEALTHY,)],
}


@dataclass(frozen=True, slots=True)
class Step:
    """An event, and the verdict right before and after it."""

    seen: ObservedEvent
    before: Verdict
    after: Verdict


def replay(trace: Trace, rules: StallRules | None = None, *, bodies: bool = True) -> list[Step]:
    events = []
    for line in trace.lines:
        found = observed_record(line.value, key=line.key, headers=line.headers, group=trace.group, bodies=bodies)
        assert found is not None
        events.append(found[1])
    return follow(events, rules or StallRules())


def follow(events: list[ObservedEvent], rules: StallRules) -> list[Step]:
    state, steps = State(), []
    for event in events:
        before = evaluate(state, event.at, rules).verdict
        state = observe(state, event, rules)
        steps.append(Step(event, before, evaluate(state, event.at, rules).verdict))
    return steps


def spans(trace: Trace, steps: list[Step]) -> Iterator[tuple[Verdict, ...]]:
    """The verdicts from mark to mark, those that are the same in a row told once."""
    borders = [0.0, *(at for at, what in trace.marks if what != "end"), float("inf")]
    for begin, end in pairwise(borders):
        verdicts = [s.after for s in steps if begin <= s.seen.at < end]
        yield tuple(v for n, v in enumerate(verdicts) if n == 0 or v is not verdicts[n - 1])


def test_every_recording_has_its_truth() -> None:
    assert set(TRUTH) == set(SCENES)


@pytest.mark.parametrize("scene", SCENES)
def test_the_verdict_after_each_event_is_the_truth(scene: str) -> None:
    trace = read_trace(scene)
    assert list(spans(trace, replay(trace))) == TRUTH[scene]


@pytest.mark.parametrize("scene", ["outage_with_retries", "paused_in_an_outage"])
def test_an_outage_is_stalled_from_the_third_start_to_the_first_complete(scene: str) -> None:
    trace = read_trace(scene)
    away, starts = trace.at("catalog away"), 0
    for step in replay(trace):
        if step.seen.at < away:
            continue
        starts += step.seen.kind is EventKind.START
        if step.seen.kind is EventKind.COMPLETED:
            assert (step.before, step.after) == (STALLED, HEALTHY)
            break
        assert (step.after is STALLED) == (starts >= 3)


def test_a_table_is_lost_with_the_first_cycle_that_passes_over_it() -> None:
    trace = read_trace("dropped_table")
    first = next(s for s in replay(trace) if s.after is LOSING)
    assert first.seen.kind is EventKind.COMPLETED
    assert not [
        s
        for s in replay(trace)
        if s.seen.kind is EventKind.COMPLETED and trace.at("table dropped") < s.seen.at < first.seen.at
    ]


def test_a_table_made_anew_is_lost_until_the_first_cycle_that_commits_to_it() -> None:
    trace = read_trace("several_tables")
    steps = replay(trace)
    (lost,) = {
        s.seen.table for s in steps if s.seen.kind is EventKind.WRITTEN and s.seen.at < trace.at("t3 dropped")
    } - {
        s.seen.table
        for s in steps
        if s.seen.kind is EventKind.PUBLISHED and trace.at("t3 dropped") < s.seen.at < trace.at("t3 replaced")
    }
    first = next(
        n
        for n, s in enumerate(steps)
        if s.seen.kind is EventKind.PUBLISHED and s.seen.table == lost and s.seen.at > trace.at("t3 replaced")
    )
    complete = next(s for s in steps[first:] if s.seen.kind is EventKind.COMPLETED)
    assert (complete.before, complete.after) == (LOSING, HEALTHY)


@pytest.mark.parametrize("scene", SCENES)
def test_a_topic_that_was_cut_raises_no_alarm_of_its_own(scene: str) -> None:
    """Whichever event retention has left as the first one."""
    whole = replay(read_trace(scene))
    alarms = {STALLED, LOSING, DEAD, SPLIT}
    for first in range(1, len(whole), 5):
        rest = follow([s.seen for s in whole[first:]], StallRules())
        assert not [n for n, s in enumerate(rest, first) if s.after in alarms and whole[n].after not in alarms]


@pytest.mark.parametrize(
    ("scene", "ended"),
    [("outage_at_defaults", "catalog back"), ("dropped_table", "table replaced"), ("silent_coordinator", "it goes on")],
)
def test_a_coordinator_that_has_ended_is_dead_by_the_clock(scene: str, ended: str) -> None:
    trace = read_trace(scene)
    state, rules = State(), StallRules(interval=trace.interval)
    for line in (line for line in trace.lines if line.at < trace.at(ended)):
        found = observed_record(line.value, key=line.key, headers=(), group=trace.group)
        assert found is not None
        state = observe(state, found[1], rules)
    assert state.last is not None
    for known, limit in ((rules, 3 * trace.interval), (StallRules(), max(6.0, 3 * (state.interval or 0)))):
        assert evaluate(state, state.last + 0.97 * limit, known).verdict is not DEAD
        assert evaluate(state, state.last + 1.03 * limit, known).verdict is DEAD


@pytest.mark.parametrize("scene", SCENES)
def test_heads_alone_report_a_stall_just_the_same(scene: str) -> None:
    trace = read_trace(scene)
    full, heads = replay(trace), replay(trace, bodies=False)
    assert all((f.after is not STALLED) or h.after is STALLED for f, h in zip(full, heads, strict=True))
    assert LOSING not in {h.after for h in heads}


@pytest.mark.parametrize("scene", ["idle", "late_answers", "paused", "half_silent", "dropped_table"])
def test_the_rule_of_cycles_alone_is_blind_to_all_but_a_stall(scene: str) -> None:
    assert {s.after for s in replay(read_trace(scene), StallRules(only_cycles=True))} <= {UNKNOWN, HEALTHY, SLOWING}


def test_two_coordinators_of_one_group_are_split() -> None:
    """Two recordings of sinks that were well, as if they were of one."""
    streams = []
    for scene in ("idle", "late_answers"):
        trace = read_trace(scene)
        begin = trace.at("healthy") - 10.0
        streams += [s.seen._replace(at=s.seen.at - begin) for s in replay(trace) if 0 < s.seen.at - begin < 9.0]
    state, rules = State(), StallRules()
    for event in sorted(streams, key=lambda event: event.at):
        state = observe(state, event, rules)
    assert evaluate(state, 9.0, rules).verdict is SPLIT
