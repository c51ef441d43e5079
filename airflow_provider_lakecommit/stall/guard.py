# SPDX-License-Identifier: Apache-2.0
"""The answer of a guard to a verdict: downstream work continues, is held, or fails.

A guard passes while commits get through; for an unknown verdict its configuration decides. If a maximum age is
configured, an unknown age holds in any case: a landing that never ran, or whose name is misspelt, is not fresh.
*Stalled* and *dead* hold. The others hold only if they are named: commits do get through while a range is *blocked* or
files are *lost*, holding would fix neither, and a paused connector may look like one that loses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow_provider_lakecommit.core import CLOCKS_APART
from airflow_provider_lakecommit.stall.group_state import StallRules, State, remembered
from airflow_provider_lakecommit.stall.verdict import Diagnosis, Verdict, evaluate

HELD = frozenset({Verdict.DEAD, Verdict.STALLED})
"""Verdicts that hold, unless others are named."""
CALM = frozenset({Verdict.UNKNOWN, Verdict.HEALTHY, Verdict.SLOWING})
"""Verdicts that need no attention."""
MOST_CYCLES = 48
"""Largest ``stalled_cycles`` of a guard."""
STALE = "stale"
"""Reported instead of a verdict if the table is too old although commits get through."""


class GuardAnswer(StrEnum):
    """What the guard decides."""

    GO = "go"
    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The configuration of a guard. Times are in seconds.

    :param rules: of the verdict
    :param hold: verdicts that hold
    :param unknown_holds: hold if too little was observed
    :param max_age: hold while the valid-through time is older or unknown
    :param fail_after: fail when a hold has lasted longer
    :param waits_since: start of the wait, in seconds of the epoch; ``None`` without a wait. A hold with an unknown
        start is as old as the wait; without a wait, it is older than any ``fail_after``
    """

    rules: StallRules = field(default_factory=StallRules)
    hold: frozenset[Verdict] = HELD
    unknown_holds: bool = False
    max_age: float | None = None
    fail_after: float | None = None
    waits_since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """An answer and its reason. ``verdict`` may also be :data:`STALE`; ``since`` is in seconds of the epoch."""

    answer: GuardAnswer
    verdict: str
    reason: str
    clears: str = ""
    since: float | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        clears = f"; cleared by {self.clears}" if self.clears and self.answer is not GuardAnswer.GO else ""
        return f"{self.verdict.upper()}: {self.reason}{clears}"

    def to_dict(self) -> dict[str, Any]:
        """Return a value for an XCom or an event."""
        since = None if self.since is None else _iso(self.since)
        return {"answer": self.answer.value, "verdict": self.verdict, "reason": self.reason, "since": since}


def rule(state: State, now: float, guard: Guard, whose: str = "") -> Ruling:
    """Return the answer of a guard at ``now``, in seconds of the epoch; ``whose`` is appended to the verdict's
    reason.
    """
    found = evaluate(state, now, guard.rules)
    holds = found.verdict in guard.hold or (found.verdict is Verdict.UNKNOWN and guard.unknown_holds)
    ruling = Ruling(
        answer=GuardAnswer.HOLD if holds else GuardAnswer.GO,
        verdict=found.verdict.value,
        reason=found.reason + whose,
        clears=found.clears,
        since=_since(found, state, guard.rules),
        evidence=found.evidence,
    )
    if not holds and guard.max_age is not None:
        ruling = _aged(ruling, state, now, guard.max_age)
    if ruling.answer is not GuardAnswer.HOLD or guard.fail_after is None:
        return ruling
    since = guard.waits_since if ruling.since is None else ruling.since
    if since is not None and now - since <= guard.fail_after:
        return ruling
    lasted = "for an unknown time" if since is None else f"for {_span(now - since)}"
    reason = f"{ruling.reason}; {lasted}, longer than the allowed {_span(guard.fail_after)}"
    return replace(ruling, answer=GuardAnswer.FAIL, reason=reason)


def _since(found: Diagnosis, state: State, rules: StallRules) -> float | None:
    """Return the start of the problem. In a long stall the state drops the first cycles, not the last complete one."""
    if found.verdict is Verdict.STALLED and len(state.begun) >= remembered(rules):
        return state.completed_at or found.since
    return found.since


def _aged(ruling: Ruling, state: State, now: float, max_age: float) -> Ruling:
    """Commits get through: decide whether their data is new enough."""
    through = state.valid_through
    if through is None:
        return Ruling(
            answer=GuardAnswer.HOLD,
            verdict=STALE,
            reason=f"the table's valid-through time is unknown, and it may be {_span(max_age)} old; {ruling.reason}",
            clears="a COMMIT_COMPLETE with a valid-through time",
            # While no cycle has completed, this holds since the first cycle.
            since=min((c.at for c in state.begun), default=None) if state.completed_at is None else None,
        )
    age = now - through
    if age < -CLOCKS_APART.total_seconds():
        reason = f"the table is valid through {_iso(through)}, which is in the future: the clock here or of the "
        reason += f"planner is wrong; {ruling.reason}"
        clears, since = "a COMMIT_COMPLETE with a correct valid-through time", None
    elif age <= max_age:
        return ruling
    else:
        reason = f"the table is valid through {_iso(through)}, {_span(age)} ago, and may be {_span(max_age)} old; "
        reason += ruling.reason
        clears, since = "a COMMIT_COMPLETE with a later valid-through time", through + max_age
    return Ruling(
        answer=GuardAnswer.HOLD,
        verdict=STALE,
        reason=reason,
        clears=clears,
        since=since,
        evidence={"valid_through": _iso(through), "age_s": age, **ruling.evidence},
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _span(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if whole >= 120 else f"{whole} s"
