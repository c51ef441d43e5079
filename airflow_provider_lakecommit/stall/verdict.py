# SPDX-License-Identifier: Apache-2.0
"""Whether commits get through. One evaluation for landings and for the Iceberg sink of Kafka Connect, from the control
topic alone.

:func:`observe` and :func:`evaluate` are pure; time is a parameter: of the event during observation, of the caller
during evaluation. Events of one group come in log order; those of several control partitions in order of time, as far
as their senders' clocks agree.

Verdicts in the order of their weight:

========  =============================================================================  ===========================
verdict   evidence                                                                       cleared by
========  =============================================================================  ===========================
dead      the coordinator is silent for several times its interval                       its next event
stalled   cycles in a row that began, or failed, and did not complete                    one COMMIT_COMPLETE
split     START_COMMITs of two senders take turns                                        one of them alone
losing    announced files that a complete cycle skipped; partitions without answer       a cycle that takes them
blocked   ranges that need a decision                                                    the decision of a user
slowing   cycles that did not complete, fewer than for `stalled`                         one COMMIT_COMPLETE
slowing   no window is planned before a compaction of a table                            the compaction
healthy   the last cycle completed, or is open
unknown   too little was observed
========  =============================================================================  ===========================

A landing differs in the meaning of a failed cycle. Its windows are pipelined and its DAG may be hourly or paused, so an
open cycle is no failure, and silence means nothing: a cycle has failed when one of its commit attempts reported it, or
when its deadline passed and further cycles were opened. If the data table was committed and only its dead-letter table
failed, the verdict is *slowing*, however often: consumers of the data need not wait. Once the pending work of that
table has filled its budget, no data arrive any more, and it counts like any other failure.

A connector's cycle that a rebalance cut off, before all partitions had answered, has not failed.

The rule of START_COMMITs in a row is that of the proposal in apache/iceberg issue 16389; the others cover what it
cannot detect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from airflow_provider_lakecommit.core import UNBLOCK
from airflow_provider_lakecommit.stall.group_state import (
    HANDOVER,
    STARTING,
    OpenCycle,
    StallRules,
    State,
    items,
    remembered,
    silence_limit,
)

ALL_CUT = 2
"""Cycles cut off by rebalances that still make a stall, as a multiple of ``stalled_cycles``."""
SETTLED = 3
"""Observed intervals after which a connector no longer counts as starting."""
UNKNOWN_FACTOR = 10
"""Factor on the tolerated silence of a coordinator with an unknown interval and no open work."""
NAMED = 20
"""Partitions named in evidence."""


class Verdict(StrEnum):
    """Whether commits get through."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    SLOWING = "slowing"
    BLOCKED = "blocked"
    LOSING = "losing"
    SPLIT = "split"
    STALLED = "stalled"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A verdict with its evidence. ``since`` is in seconds of the epoch; ``clears`` is the event that ends it, or
    what a user must do.
    """

    verdict: Verdict
    reason: str
    clears: str = ""
    since: float | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)


def evaluate(state: State, now: float, rules: StallRules) -> Diagnosis:
    """Return the verdict at ``now``, in seconds of the epoch."""
    cycles = _cycles(state, rules)
    stalled = cycles if cycles is not None and cycles.verdict is Verdict.STALLED else None
    if rules.only_cycles:
        found = cycles
    elif rules.landing:
        found = stalled or _blocked(state) or cycles or _deferred(state)
    else:
        found = _silence(state, now, rules) or stalled or _split(state) or _losing(state, rules) or cycles
    return found or _calm(state)


def _cycles(state: State, rules: StallRules) -> Diagnosis | None:
    if rules.landing:
        return _failing(_failed(state.begun), state, rules)
    if rules.only_cycles:
        counted, everything = state.begun, 0
    else:
        counted, everything = tuple(b for b in state.begun if not b.cut), len(state.begun)
    if len(counted) < rules.stalled_cycles and everything >= ALL_CUT * rules.stalled_cycles:
        # Coordinators that never reach a commit are no better than ones that cannot commit.
        counted = state.begun
    count = len(counted)
    # A connector that is starting changes its coordinator before it has completed anything.
    starting = not state.completed and len({b.sender for b in counted}) == count
    if count < rules.stalled_cycles and (count <= 1 or starting):
        return None
    return _in_a_row(counted, "began and did not complete", state, rules)


def _failing(failed: tuple[OpenCycle, ...], state: State, rules: StallRules) -> Diagnosis | None:
    """Return the verdict on a landing's failed cycles: the newest of one kind, with or without the data table."""
    if not failed:
        return None

    def aside(b: OpenCycle) -> bool:
        return bool(b.beside) and not b.full

    beside = aside(failed[-1])
    row = tuple(takewhile(lambda b: aside(b) is beside, reversed(failed)))[::-1]
    if not beside:
        return _in_a_row(row, "failed", state, rules)
    tables = ", ".join(dict.fromkeys(name for b in row for name in b.beside))
    found = _in_a_row(row, f"failed for {tables} only, the data table is committed", state, rules)
    return replace(found, verdict=Verdict.SLOWING)


def _in_a_row(row: tuple[OpenCycle, ...], what: str, state: State, rules: StallRules) -> Diagnosis:
    count = len(row)
    last = next((b.failed for b in reversed(row) if b.failed), None)
    more = " or more" if count >= remembered(rules) else ""
    return Diagnosis(
        verdict=Verdict.STALLED if count >= rules.stalled_cycles else Verdict.SLOWING,
        reason=f"{count}{more} {'cycle' if count == 1 else 'cycles in a row'} {what}"
        f"{f'; the last one: {last}' if last else ''}",
        clears="a COMMIT_COMPLETE",
        since=row[0].at,
        evidence={"cycles": count, "limit": rules.stalled_cycles, "waiting_files": state.waiting_files},
    )


def _failed(begun: tuple[OpenCycle, ...]) -> tuple[OpenCycle, ...]:
    """Return a landing's failed cycles: by evidence, or overdue. Overdue cycles without a worker, as of a paused DAG,
    come due together, so at most as many of them count as were opened since then.
    """
    overdue = [b for b in begun if b.overtaken and not b.failed]
    overdue = overdue[: max((b.overtaken for b in overdue), default=0)]
    return tuple(b for b in begun if b.failed or b in overdue)


def _silence(state: State, now: float, rules: StallRules) -> Diagnosis | None:
    interval = rules.interval or (state.interval if len(state.intervals) >= rules.learned else None)
    if state.last is None or interval is None:
        return None
    silent = now - state.last
    # A restarted connector may have another interval.
    unknown = rules.interval is None and not state.begun and len(set(state.senders[-2:])) > 1
    limit = rules.silent_intervals * interval * (UNKNOWN_FACTOR if unknown else 1)
    # The first coordinators of a starting connector follow each other, each with its own delay.
    handover = HANDOVER * (1 if len(state.intervals) >= SETTLED else STARTING)
    if silent <= (limit if rules.interval is not None else max(limit, handover)):
        return None
    count = len(state.begun)
    return Diagnosis(
        verdict=Verdict.DEAD,
        reason=f"the coordinator is silent for {silent:.0f} s, but starts a cycle every {interval:.0f} s; "
        f"{count or 'no'} {'cycle is' if count == 1 else 'cycles are'} open",
        clears="its next event; without one, restart the connector's failed tasks",
        since=state.last,
        evidence={"silent_s": silent, "interval_s": interval, "open_cycles": count},
    )


def _split(state: State) -> Diagnosis | None:
    s = state.senders
    if not any(s[middle] != s[-1] and s[-1] in s[:middle] for middle in range(1, len(s) - 1)):
        return None
    return Diagnosis(
        verdict=Verdict.SPLIT,
        reason=f"{len(set(s))} coordinators alternate in starting cycles",
        clears="a single coordinator: restart the connector",
        since=state.last_start,
        evidence={"senders": [key.decode(errors="replace") for key in dict.fromkeys(s)]},
    )


def _losing(state: State, rules: StallRules) -> Diagnosis | None:
    if state.over:
        tables = sorted({name for name, _ in state.over})
        files = sum(p.files for p in state.over.values())
        return Diagnosis(
            verdict=Verdict.LOSING,
            reason=f"{files} files announced for {', '.join(tables)} were skipped by complete cycles",
            clears="a snapshot of the table: check that it exists and is the one that the files were written for. If "
            "it is no longer landed, restart the connector without it",
            since=min(p.at for p in state.over.values()),
            evidence={"tables": tables, "files": files, "lost_files": state.lost_files},
        )
    unheard = state.unheard
    if unheard and state.answers is not None:
        unheard = tuple(set(unheard).difference(*(a.partitions for a in items(state.answers))))
    if unheard:
        cycles = min(state.missing[p] for p in unheard)
        return Diagnosis(
            verdict=Verdict.LOSING,
            reason=f"{len(unheard)} of {len(state.missing)} partitions had no answer in {cycles} complete cycles",
            clears="an answer for them: restart their tasks, or resume the connector if it is paused",
            since=state.completed_at,
            evidence={"cycles": cycles, "partitions": [f"{topic}[{n}]" for topic, n in sorted(unheard)[:NAMED]]},
        )
    if (
        not state.missing
        and state.answers is None
        and 0 < state.unanswered >= silence_limit(state, rules, starting=True)
    ):
        return Diagnosis(
            verdict=Verdict.LOSING,
            reason=f"{state.unanswered} cycles completed without an answer of any task",
            clears="an answer: restart the connector's tasks, or resume it if it is paused",
            since=state.completed_at,
            evidence={"cycles": state.unanswered},
        )
    if 0 < state.partial >= silence_limit(state, rules, starting=False) and not _news(state):
        return Diagnosis(
            verdict=Verdict.LOSING,
            reason=f"{state.partial} cycles completed without waiting for all: some partitions have never "
            "been answered",
            clears="a cycle with a valid-through time, or an answer for them: restart the connector",
            since=state.completed_at,
            evidence={"cycles": state.partial},
        )
    return None


def _news(state: State) -> bool:
    """Return True if a partition was answered for the first time."""
    return any(p not in state.missing for a in items(state.answers) for p in a.partitions)


def _blocked(state: State) -> Diagnosis | None:
    if not state.blocked:
        return None
    ranges = [str(coverage) for coverage, _, _ in state.blocked]
    need = "1 range needs" if len(ranges) == 1 else f"{len(ranges)} ranges need"
    return Diagnosis(
        verdict=Verdict.BLOCKED,
        reason=f"{need} action: " + "; ".join(f"{coverage}: {reason}" for coverage, reason, _ in state.blocked[:NAMED]),
        clears=f"`{UNBLOCK}` (or --raise N, --skip)",
        since=min(at for _, _, at in state.blocked),
        evidence={"blocked": ranges[:NAMED]},
    )


def _deferred(state: State) -> Diagnosis | None:
    if state.deferred is None:
        return None
    since, reason = state.deferred
    why, _, clears = reason.partition("; cleared by ")
    return Diagnosis(verdict=Verdict.SLOWING, reason=f"no window is planned: {why}", clears=clears, since=since)


def _calm(state: State) -> Diagnosis:
    evidence = {"completed": state.completed, "open_cycles": len(state.begun), "interval_s": state.interval}
    if state.completed:
        reason = f"cycles complete, {state.completed} so far"
        return Diagnosis(verdict=Verdict.HEALTHY, reason=reason, since=state.completed_at, evidence=evidence)
    reason = "no event was observed" if state.last is None else "no COMMIT_COMPLETE was observed so far"
    clears = "a COMMIT_COMPLETE, or enough cycles without one"
    return Diagnosis(verdict=Verdict.UNKNOWN, reason=reason, clears=clears, evidence=evidence)
