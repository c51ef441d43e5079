# SPDX-License-Identifier: Apache-2.0
"""Measure how long the source keeps its oldest unread offsets, concurrently with a plan or status.

Contract: :func:`request` returns at once; the answers arrive while the caller continues, and :meth:`Watch.found` waits
only for its timeout. A plan asks once; :func:`sharpened` asks repeatedly, for display.

Failure story: this is advice, which never fails a cycle or a status. If brokers do not answer or do not permit the
request, the headroom is unknown; any other error, here or in the core, is a warning in the log (:func:`advised`).
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

T = TypeVar("T")

PLAN_SECONDS = 0.05
"""Seconds that a plan waits for its headroom, from the request on."""
FEW = 64
"""Up to this many partitions, a plan measures the headroom, not only whether it is short."""
ROUNDS = 10
_WHAT = "the retention of unread offsets"
_DENIED = "the topic's settings were not readable or did not arrive in time: grant DESCRIBE_CONFIGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Requests in progress."""

    began: float
    threshold: timedelta
    requested: Sequence[Headroom]
    answers: Callable[[float], list[tuple[SourcePartition, datetime, First]]]

    def found(self, seconds: float = PLAN_SECONDS) -> tuple[Headroom, ...]:
        """Return the results ``seconds`` after the request, shortest first."""
        known = {h.partition: h for h in self.requested}
        for p, at, first in self.answers(self.began + seconds - time.monotonic()):
            known[p] = known[p].learn(at, first)
        return tuple(sorted(known.values(), key=_urgency))


def advised(session: LandingSession, what: str, make: Callable[[], T], otherwise: T) -> T:
    """Return the advice of *make*, or *otherwise* if it fails."""
    try:
        return make()
    except Exception as e:
        session.log(f"WARNING: could not determine {what}: {type(e).__name__}: {e}")
        return otherwise


def request(
    session: LandingSession,
    landing_state: LandingState,
    source: SourceState,
    threshold: timedelta,
    *,
    timeout: float = PLAN_SECONDS,
) -> Watch:
    """Request the headroom of every partition with unread offsets.

    :param timeout: seconds to wait for the topics' settings; none, if :meth:`SourceTopics.request_retention` was called
        early enough
    """
    began = time.monotonic()

    def sent() -> Watch:
        now = session.now()
        unread = oldest_unread(landing_state, source.partitions)
        kept = session.source.retentions(timeout) if unread else {}
        found = [
            Headroom(
                partition=p, offset=offset, at=now, retention=kept.get(p.topic), why="" if p.topic in kept else _DENIED
            )
            for p, offset in unread.items()
        ]
        times = [
            (h.partition, t)
            for h in found
            if h.retention is not None
            for t in first_times(h.retention, now, threshold, few=len(found) <= FEW)
        ]
        answers = session.source.request_first_since(times)
        return Watch(began=began, threshold=threshold, requested=found, answers=answers)

    nothing = Watch(began=began, threshold=threshold, requested=(), answers=lambda _: [])
    return advised(session, _WHAT, sent, nothing)


def plan_threshold(session: LandingSession, folded: FoldedLog) -> timedelta:
    """Return the headroom below which a plan warns: from the landing's timeout and the frequency of its runs."""
    timeout = session.landing.window.completion_timeout
    return advised(session, _WHAT, lambda: threshold_of(timeout, interval_of(folded.entries)), timeout)


def headroom_now(
    session: LandingSession, landing_state: LandingState, source: SourceState, threshold: timedelta, seconds: float
) -> tuple[Headroom, ...]:
    """Return the headroom for display: each step takes at most the given seconds."""

    def estimate() -> tuple[Headroom, ...]:
        estimates = request(session, landing_state, source, threshold, timeout=seconds).found(seconds)
        found = sharpened(session, estimates, seconds=seconds)
        # Text that cannot be made fails here.
        warnings(found, threshold)
        return found

    return advised(session, _WHAT, estimate, ())


def sharpened(session: LandingSession, found: Iterable[Headroom], *, seconds: float) -> tuple[Headroom, ...]:
    """Repeat the requests until each result is precise enough, or the time is over."""
    deadline = time.monotonic() + seconds
    known = {h.partition: h for h in found}
    for _ in range(ROUNDS):
        times = [(h.partition, t) for h in known.values() if (t := next_time(h)) is not None]
        if not times or time.monotonic() >= deadline:
            break
        for p, at, first in session.source.request_first_since(times)(deadline - time.monotonic()):
            known[p] = known[p].learn(at, first)
    return tuple(sorted(known.values(), key=_urgency))


def warnings(found: Iterable[Headroom], threshold: timedelta) -> tuple[str, ...]:
    """Return a line per partition whose unread offsets may be removed before they are read."""
    return tuple(
        f"{h.partition}: {h}; that is less than {duration_text(threshold)} (window.completion_timeout, or two runs): "
        f"land more often, or raise retention.ms of {h.partition.topic}"
        for h in found
        if h.short_of(threshold)
    )


def plan_lines(session: LandingSession, watch: Watch) -> tuple[str, ...]:
    """Return the lines for a plan: the short headrooms, which are also logged, or else the shortest of all."""

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
