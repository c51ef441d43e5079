# SPDX-License-Identifier: Apache-2.0
"""The settings that sensors share: how commits are evaluated, and how long a sensor holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from airflow_provider_lakecommit.landing import EXAMPLES, duration_of
from airflow_provider_lakecommit.stall.group_state import StallRules
from airflow_provider_lakecommit.stall.guard import HELD, MOST_CYCLES, Guard
from airflow_provider_lakecommit.stall.verdict import Verdict

ON_UNKNOWN = ("pass", "stall")
SPANS = ("max_valid_through_age", "fail_after", "look_back")


@dataclass(frozen=True, kw_only=True)
class StallPolicy:
    """What counts as a stall, and what ends a hold. Times are timedeltas, seconds, or texts such as ``1h30m``.

    :param on_unknown: what to do if too little was observed for a verdict: ``pass``, or the same as in a ``stall``
    :param stalled_cycles: number of consecutive incomplete or failed cycles that make a stall
    :param only_cycles: use that rule alone
    :param hold_on: verdicts that count as a stall: by default dead and stalled
    :param max_valid_through_age: a table with an older valid-through time also counts as stalled, and so does an
        unknown time: a landing that never ran, or whose name is misspelt
    :param fail_after: a stall that has lasted longer fails the task, whatever ``on_stall`` is. A stall with an unknown
        start (nothing was ever observed of the landing) is as old as the wait; without a wait it fails
    :param look_back: read only this much of the control topic; all of it by default
    :param release_jitter: spread waiting tasks over this time when commits get through again
    :param on_wait_callback: called with the context when a wait starts
    :raises ValueError: naming all mistakes
    """

    on_unknown: Literal["pass", "stall"] = "pass"
    stalled_cycles: int = 3
    only_cycles: bool = False
    hold_on: Collection[str] | None = None
    max_valid_through_age: timedelta | str | float | None = None
    fail_after: timedelta | str | float | None = None
    look_back: timedelta | str | float | None = None
    release_jitter: timedelta | str | float = timedelta(seconds=3)
    on_wait_callback: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] = ()

    def __post_init__(self) -> None:
        if self.hold_on is not None:
            object.__setattr__(self, "hold_on", tuple(sorted(self.hold_on)))
        for name in (*SPANS, "release_jitter"):
            object.__setattr__(self, name, duration_of(getattr(self, name)))
        if wrong := list(_wrong(self)):
            raise ValueError(f"StallPolicy: {'; '.join(wrong)}")

    @property
    def history_seconds(self) -> float | None:
        return _seconds(self.look_back)

    @property
    def jitter_seconds(self) -> float:
        return _seconds(self.release_jitter) or 0.0

    @property
    def callbacks(self) -> Sequence[Callable[[Any], Any]]:
        given = self.on_wait_callback
        return given if isinstance(given, Sequence) else (given,)

    def guard(self, *, landing: bool, interval: float | None, waits_since: float | None) -> Guard:
        """Return the guard of a group.

        :param landing: whether it is a landing
        :param interval: commit interval of a connector
        :param waits_since: start of the wait, in seconds of the epoch
        """
        return Guard(
            rules=StallRules(
                landing=landing, stalled_cycles=self.stalled_cycles, only_cycles=self.only_cycles, interval=interval
            ),
            hold=HELD if self.hold_on is None else frozenset(Verdict(v) for v in self.hold_on),
            unknown_holds=self.on_unknown == "stall",
            max_age=_seconds(self.max_valid_through_age),
            fail_after=_seconds(self.fail_after),
            waits_since=waits_since,
        )


POLICY_FIELDS = tuple(each.name for each in dataclasses.fields(StallPolicy))


def _seconds(span: object) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) else None


def _wrong(policy: StallPolicy) -> Iterator[str]:
    if policy.on_unknown not in ON_UNKNOWN:
        yield f"on_unknown={policy.on_unknown!r} is not one of {', '.join(ON_UNKNOWN)}"
    if not 1 <= policy.stalled_cycles <= MOST_CYCLES:
        yield f"stalled_cycles={policy.stalled_cycles!r}: use a number from 1 to {MOST_CYCLES}"
    if unknown := sorted(set(policy.hold_on or ()) - {v.value for v in Verdict if v is not Verdict.HEALTHY}):
        yield f"hold_on: {', '.join(unknown)} is no verdict that can hold"
    for name in SPANS:
        span = getattr(policy, name)
        if span is not None and not (isinstance(span, timedelta) and span > timedelta(0)):
            yield f"{name}={span}: use a positive duration ({EXAMPLES}, seconds, or a timedelta)"
    if not isinstance(policy.release_jitter, timedelta) or policy.release_jitter < timedelta(0):
        yield f"release_jitter={policy.release_jitter}: use a duration ({EXAMPLES}, seconds, or a timedelta)"
