# SPDX-License-Identifier: Apache-2.0
"""The state of the commits of all groups of a control topic: the topic folded to its end, then new events.

Contract: one consumer for all groups, without a consumer group. It hands out the state of every group, not the events,
so a late reader sees the same. A state is available only when everything present at the first read has been read. A
group is evaluated as a landing if its events have our header. Of a topic with more than :data:`MOST_GROUPS` groups only
the first ones are known; a guard of another one is held, with that as its reason. For a group without events, the
nearest observed names are reported: its name may be misspelt.

Failure story: :func:`commits_of` reads once, and brokers that do not answer are an error. :class:`CommitWatch`
continues: it reports a missing topic and unreachable brokers as ``trouble``, keeps the last states, and tries again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_lakecommit.control import ControlRecord, ControlTopic, ControlWatch
from airflow_provider_lakecommit.core import group_id
from airflow_provider_lakecommit.exceptions import LakecommitError, Terminal
from airflow_provider_lakecommit.landing import nearest
from airflow_provider_lakecommit.stall.group_state import StallRules, State
from airflow_provider_lakecommit.stall.guard import MOST_CYCLES, Guard, GuardAnswer, Ruling, rule
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import (
    PROGRESS_KINDS,
    ObservedRecord,
    VerifiedRecords,
    group_of,
    is_ours,
    observed_record,
)
from airflow_provider_lakecommit.stall.verdict import Verdict

_LOG = logging.getLogger(__name__)

AWAY_SECONDS = 30.0
TICK_SECONDS = 5.0
"""Longest time between two states, changed or not: late subscribers and deadlines wait for it."""
AT_ONCE = 0.5
RETRY_SECONDS = 2.0
MOST_GROUPS = 20_000
"""Remembered groups of one topic; further groups are ignored."""
MOST_OTHERS = 1_000
"""Remembered names of other groups, to suggest the right spelling."""
SETTLE_SECONDS = 5.0
"""After brokers were unreachable: backlogged events come first, so that no group counts as silent."""

Heard = Callable[[ObservedRecord, ControlRecord, bool], None]
"""Takes the content of a record, that record, and whether its group is a landing."""

# One state serves guards with different rules, so it has enough for any of them.
_CONNECTORS = StallRules(stalled_cycles=MOST_CYCLES)
_LANDINGS = replace(_CONNECTORS, landing=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTopic:
    """A watched topic and how it is read. Equal ones can be watched together.

    :param completion_timeout: seconds after which an open cycle of a landing has failed
    :param since: start with records of that age, in seconds; by default with the first record
    :param newest: start that many offsets before the end of the topic, instead
    """

    topic: str
    completion_timeout: float
    since: float | None = None
    newest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The states of all groups ``at`` a time. ``groups`` is ``None`` while the topic has not been read to its end;
    ``trouble`` is the error of the brokers. ``overlooked`` records were of ignored groups, ``others`` are names of
    further observed groups, and ``absent`` is the name of a missing topic.
    """

    groups: Mapping[str, State] | None
    trouble: str | None = None
    overlooked: int = 0
    others: frozenset[str] = frozenset()
    absent: str = ""
    at: float = field(default_factory=time.time)
    _ruled: dict[tuple[str, Guard], Ruling] = field(default_factory=dict, compare=False, repr=False)

    def ruling(self, group: str, guard: Guard) -> Ruling:
        """Return the answer of a guard of that group, also of an unknown group. Thousands of equal requests are
        computed once.
        """
        known = self._ruled.get((group, guard))
        if known is None:
            known = self._ruled[group, guard] = self._rule(group, guard)
        return known

    def _rule(self, group: str, guard: Guard) -> Ruling:
        state = (self.groups or {}).get(group)
        if state is None and self.overlooked:
            # The group may exist, unobserved: unknown is not healthy.
            return Ruling(
                answer=GuardAnswer.HOLD,
                verdict=Verdict.UNKNOWN.value,
                reason=f"its control topic has more groups than the {MOST_GROUPS} that are remembered, and "
                f"{self.overlooked} records are of others: it may be one of these",
                clears="a control topic with fewer groups",
            )
        if state is None:
            return rule(State(), self.at, guard, f" of {group}{self._meant(group)}")
        if state.landing != guard.rules.landing:
            guard = replace(guard, rules=replace(guard.rules, landing=state.landing))
        return rule(state, self.at, guard)

    def _meant(self, group: str) -> str:
        """Return names of observed groups, for a group without events; landings by their names."""
        if self.absent:
            return f" (there is no topic {self.absent} yet)"
        known = {name.removeprefix(group_id("")): name for name in {*(self.groups or ()), *self.others}}
        near = nearest(group.removeprefix(group_id("")), known)
        return f" (its name may be wrong, or it never ran; seen on that topic: {', '.join(near)})" if near else ""


class _Fold:
    """The groups of a topic, folded record by record."""

    def __init__(self, watched_topic: WatchedTopic, only: str | None = None, heard: Heard | None = None) -> None:
        self._watched_topic = watched_topic
        self._only = only
        self._heard = heard
        self._groups: dict[str, State] = {}
        self.others: set[str] = set()
        self._verified = VerifiedRecords()
        self.overlooked = 0

    def take(self, record: ControlRecord) -> bool:
        """Return True if it must be reported at once."""
        found = observed_record(
            record.value,
            key=record.key,
            headers=record.headers,
            group=self._only,
            at=record.timestamp.timestamp(),
            completion_timeout=self._watched_topic.completion_timeout,
        )
        if found is None:
            self._note_other(record)
            return False
        name, event, _ = found
        if name not in self._groups and len(self._groups) >= MOST_GROUPS:
            if not self.overlooked:
                _LOG.warning(
                    "%s has more than %d groups; group %s, and all later ones, are ignored: "
                    "find their writers, or split them over several control topics",
                    self._watched_topic.topic,
                    MOST_GROUPS,
                    name,
                )
            self.overlooked += 1
            return False
        state = self._groups.get(name, State())
        if not self._verified(record, name, event.kind, landing=state.landing):
            return False
        if not state.landing and is_ours(record):
            state = state._replace(landing=True)
        self._groups[name] = observe(state, event, _LANDINGS if state.landing else _CONNECTORS)
        if self._heard is not None:
            self._heard(found, record, state.landing)
        return event.kind in PROGRESS_KINDS

    def _note_other(self, record: ControlRecord) -> None:
        """Keep the name of the record's group, while the only requested group has no events."""
        if self._only is None or self._only in self._groups or len(self.others) >= MOST_OTHERS:
            return
        if record.doubt is None and (name := group_of(record.value)) is not None:
            self.others.add(name)

    def groups(self) -> Mapping[str, State]:
        return dict(self._groups)


def commits_of(
    kafka: Mapping[str, Any],
    watched_topic: WatchedTopic,
    group: str,
    *,
    missing_ok: bool = False,
    timeout: float = AWAY_SECONDS,
) -> Commits:
    """Read the topic once to its end, and return the state of one group.

    :param missing_ok: treat a missing topic as empty, as before a first landing
    :param timeout: seconds to wait for brokers that do not answer
    :raises ControlTopicError: the topic does not exist, or its brokers do not answer
    """
    if missing_ok:
        with ControlTopic(watched_topic.topic, kafka, timeout) as topic:
            if not topic.exists():
                return Commits(groups={}, absent=watched_topic.topic)
    fold = _Fold(watched_topic, only=group)
    with ControlWatch(watched_topic.topic, kafka, since=watched_topic.since, timeout=timeout) as watch:
        heard = time.monotonic()
        while True:
            records = watch.poll(AT_ONCE)
            for record in records:
                fold.take(record)
            if watch.caught_up:
                return Commits(groups=fold.groups(), others=frozenset(fold.others))
            if records:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout:
                raise watch.away(timeout)


class CommitWatch:
    """Continuously reads all groups, for one thread at a time.

    :param settings: librdkafka settings, requested at the first read
    :param interval: seconds in which changes are gathered
    :param heard: called with each accepted record, in order
    """

    def __init__(
        self,
        watched_topic: WatchedTopic,
        settings: Callable[[], Mapping[str, Any]],
        interval: float = 1.0,
        heard: Heard | None = None,
    ) -> None:
        self._watched_topic = watched_topic
        self._settings = settings
        self._interval = interval
        self._watch: ControlWatch | None = None
        self._fold = _Fold(watched_topic, heard=heard)
        self._reported = float("-inf")
        self._away: tuple[float, str] | None = None
        self._caught_up = False

    def read(self) -> Commits | None:
        """Return the states after the interval; ``None`` if no cycle started or ended since the last call.

        :raises LakecommitError: an error that a retry cannot fix
        """
        begun = time.monotonic()
        try:
            watch = self._connected()
        except LakecommitError as e:
            if isinstance(e, Terminal):
                raise
            time.sleep(RETRY_SECONDS)
            return Commits(groups=None, trouble=str(e))
        changed = False
        while True:
            left = begun + self._interval - time.monotonic()
            for record in watch.poll(min(max(left, 0.0), AT_ONCE)):
                changed = self._fold.take(record) or changed
            if left <= 0:
                break
        now = time.monotonic()
        if (trouble := watch.trouble) is not None:
            self._away = (now, trouble)
        elif self._away is not None and now - self._away[0] > SETTLE_SECONDS:
            self._away = None
        news = changed or watch.caught_up is not self._caught_up
        self._caught_up = watch.caught_up
        if not news and now - self._reported < TICK_SECONDS:
            return None
        self._reported = now
        groups = self._fold.groups() if watch.caught_up else None
        trouble = None if self._away is None else self._away[1]
        return Commits(groups=groups, trouble=trouble, overlooked=self._fold.overlooked)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _connected(self) -> ControlWatch:
        if self._watch is None:
            watched_topic, settings = self._watched_topic, self._settings()
            self._watch = ControlWatch(
                watched_topic.topic, settings, since=watched_topic.since, newest=watched_topic.newest, gather=True
            )
        return self._watch
