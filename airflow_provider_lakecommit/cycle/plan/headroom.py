# SPDX-License-Identifier: Apache-2.0
"""Asking the source how long its oldest unread offsets are kept, beside what a plan or a status does anyway.

Contract: :func:`ask` returns at once; what it asked is answered while the caller goes on, and :meth:`Watch.found` waits
no longer than it is allowed to. A plan asks once; :func:`sharpened` asks a few more times, for people.

Failure story: all of this is advice, and advice never fails a cycle or a status. Brokers that do not answer, or do not
allow the question, make a headroom unknown; whatever else is raised on the way, here or in the core, is a warning in
the log (:func:`advised`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from airflow_provider_lakecommit.core import (
    Headroom,
    LandingState,
    SourcePartition,
    first_times,
    interval_of,
    next_time,
    oldest_unread,
    threshold_of,
)
from airflow_provider_lakecommit.core.planning.headroom import duration_text
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.kafka import First, SourceState

__all__ = ["Watch", "advised", "ask", "looked_at", "plan_lines", "plan_threshold", "sharpened", "warnings"]

T = TypeVar("T")

PLAN_SECONDS = 0.05
"""A plan waits this long for its headroom, counted from when it was asked for."""
FEW = 64
"""Up to so many partitions a plan asks not only whether the headroom is short, but also how long it is."""
ROUNDS = 10
_WHAT = "the retention of unread offsets"
_DENIED = "the topic's settings were not readable or did not arrive in time: grant DESCRIBE_CONFIGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Questions on their way."""

    began: float
    threshold: timedelta
    asked: Sequence[Headroom]
    answers: Callable[[float], list[tuple[SourcePartition, datetime, First]]]

    def found(self, seconds: float = PLAN_SECONDS) -> tuple[Headroom, ...]:
        """What is known ``seconds`` after it was asked for, shortest first."""
        known = {h.partition: h for h in self.asked}
        for p, at, first in self.answers(self.began + seconds - time.monotonic()):
            known[p] = known[p].learn(at, first)
        return tuple(sorted(known.values(), key=_urgency))


def advised(session: LandingSession, what: str, make: Callable[[], T], otherwise: T) -> T:
    """What advice there is; where making it fails, what is said instead."""
    try:
        return make()
    except Exception as e:
        session.log(f"WARNING: could not determine {what}: {type(e).__name__}: {e}")
        return otherwise


def ask(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    threshold: timedelta,
    *,
    timeout: float = PLAN_SECONDS,
) -> Watch:
    """Ask about every partition that has unread offsets.

    :param timeout: seconds to wait for the topics' settings; none, if :meth:`SourceTopics.ask_retention` was called
        early enough
    """
    began = time.monotonic()
    nothing = Watch(began=began, threshold=threshold, asked=(), answers=lambda _: [])
    return advised(
        session, _WHAT, lambda: _ask(session, landing_state, source, threshold, timeout=timeout, began=began), nothing
    )


def _ask(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    threshold: timedelta,
    *,
    timeout: float,
    began: float,
) -> Watch:
    now = session.now()
    unread = oldest_unread(landing_state, source.partitions)
    kept = session.source.retentions(timeout) if unread else {}
    asked = [
        Headroom(
            partition=p,
            offset=offset,
            at=now,
            retention=kept.get(p.topic),
            why="" if p.topic in kept else _DENIED,
        )
        for p, offset in unread.items()
    ]
    times = [
        (h.partition, t)
        for h in asked
        if h.retention is not None
        for t in first_times(h.retention, now, threshold, few=len(asked) <= FEW)
    ]
    return Watch(began=began, threshold=threshold, asked=asked, answers=session.source.ask_first_since(times))


def plan_threshold(session: LandingSession, folded: FoldedLog) -> timedelta:
    """Below which headroom a plan warns: by the landing's timeout, and by how often it ran so far."""
    timeout = session.landing.window.completion_timeout
    return advised(session, _WHAT, lambda: threshold_of(timeout, interval_of(folded.entries)), timeout)


def looked_at(
    session: LandingSession, landing_state: LandingState, source: SourceState, threshold: timedelta, seconds: float
) -> tuple[Headroom, ...]:
    """For people: asked, waited for and sharpened, each for so many seconds at most."""

    def look() -> tuple[Headroom, ...]:
        asked = ask(session, landing_state, source, threshold, timeout=seconds).found(seconds)
        found = sharpened(session, asked, seconds=seconds)
        # A text that cannot be made is found out here.
        warnings(found, threshold)
        return found

    return advised(session, _WHAT, look, ())


def sharpened(session: LandingSession, found: Iterable[Headroom], *, seconds: float) -> tuple[Headroom, ...]:
    """Ask on until each is known well enough, or the time is over."""
    deadline = time.monotonic() + seconds
    known = {h.partition: h for h in found}
    for _ in range(ROUNDS):
        times = [(h.partition, t) for h in known.values() if (t := next_time(h)) is not None]
        if not times or time.monotonic() >= deadline:
            break
        for p, at, first in session.source.ask_first_since(times)(deadline - time.monotonic()):
            known[p] = known[p].learn(at, first)
    return tuple(sorted(known.values(), key=_urgency))


def warnings(found: Iterable[Headroom], threshold: timedelta) -> tuple[str, ...]:
    """One line per partition whose unread offsets may be gone before they are sure to be read."""
    return tuple(
        f"{h.partition}: {h}; that is less than {duration_text(threshold)} (window.completion_timeout, or two runs): "
        f"land more often, or raise retention.ms of {h.partition.topic}"
        for h in found
        if h.short_of(threshold)
    )


def plan_lines(session: LandingSession, watch: Watch) -> tuple[str, ...]:
    """For the log of a plan: what is short, which is also said aloud, or else the shortest of all."""

    def lines() -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = watch.found()
        return warnings(found, watch.threshold), tuple(f"{h.partition}: {h}" for h in found[:1])

    nothing: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    short, shortest = advised(session, _WHAT, lines, nothing)
    for line in short:
        session.log(f"WARNING: {line}")
    return short or shortest


def _urgency(h: Headroom) -> tuple[bool, datetime, SourcePartition]:
    return h.due is None, h.due or h.at, h.partition
