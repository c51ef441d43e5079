# SPDX-License-Identifier: Apache-2.0
"""`lakecommit connect watch`: whether commits get through, after every event of a control topic.

One result per event, all partitions merged by time, with the verdict right before and after it. A topic or group
without events is exit code 1. If time alone changes the verdict, it gets a result of its own, with the event `NOW`.

The clock `event` is the sender's time and stops without events; `wall` is the record's timestamp and runs on. Either
is that of the group's coordinator, as other hosts may be minutes ahead. A group is evaluated as a landing if its events
have our header, otherwise as a connector.
"""

from __future__ import annotations

import argparse
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.cli.arguments import duration, factor, positive, source
from airflow_provider_lakecommit.cli.from_airflow import landing_or_none
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.control import ControlRecord, ControlWatch
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import nearest
from airflow_provider_lakecommit.stall import (
    MOST_OTHERS,
    Diagnosis,
    EventKind,
    ObservedEvent,
    StallRules,
    State,
    Verdict,
    VerifiedRecords,
    evaluate,
    group_of,
    is_ours,
    observed_record,
)
from airflow_provider_lakecommit.stall.observe import observe

NOW = "NOW"
POLL_SECONDS = 0.5
GIVE_UP_SECONDS = 30.0
WORKERS = frozenset({EventKind.WRITTEN, EventKind.ANSWERED})
_TIMEOUT = "completion-timeout"
_RULES: Mapping[str, Callable[[str], Any]] = {
    "stalled-cycles": positive,
    "silent-intervals": factor,
    "interval": lambda text: duration(text).total_seconds(),
    "unanswered-cycles": positive,
    "only-cycles": lambda text: text == "true",
    _TIMEOUT: lambda text: duration(text).total_seconds(),
}
"""Keys of `--rule`: failed cycles in a row; silence that means dead, in intervals; a connector's commit interval
(default: learned); cycles that a partition may miss; whether only the first rule counts; and the time in which a
landing's cycles complete (default: the spec's, otherwise 1h).
"""


def rules_of(texts: Iterable[str], timeout: timedelta) -> tuple[StallRules, float]:
    """Return the rules of a verdict, and the seconds in which a landing's cycle completes, by ``--rule NAME=VALUE``.

    :param timeout: default without a rule
    """
    stated: dict[str, Any] = {_TIMEOUT: timeout.total_seconds()}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in _RULES:
            raise SpecError("LC8034", f"--rule {text}: use NAME=VALUE with a name of {', '.join(_RULES)}")
        try:
            stated[name] = _RULES[name](value)
        except argparse.ArgumentTypeError as e:
            raise SpecError("LC8035", f"--rule {text}: {e}") from None
    completion = stated.pop(_TIMEOUT)
    return StallRules(**{name.replace("-", "_"): value for name, value in stated.items()}), completion


def watch(options: Namespace, output: Output) -> int:
    spec = landing_or_none(options, output)
    kafka, topic = source(options, output, options.control_topic, spec)
    timeout = spec.landing.window.completion_timeout if spec is not None else timedelta(hours=1)
    rules, completion = rules_of(options.rule, timeout)
    groups = GroupVerdicts(
        group=options.group or (spec.landing.group_id if spec is not None else None),
        rules=rules,
        events_clock=options.clock == "event",
        until=options.until,
        completion_timeout=completion,
    )
    return stall(kafka, topic, output, groups, follow=options.follow)


def stall(kafka: Mapping[str, Any], topic: str, output: Output, groups: GroupVerdicts, *, follow: bool) -> int:
    caught_up = False
    with ControlWatch(topic, kafka) as watch:
        for records in _batches(watch, output, follow=follow):
            for record in records:
                _show(output, groups.event(record))
            if follow and caught_up and not groups.events_clock:
                for line in groups.now(time.time(), changes=True):
                    _show(output, line)
            caught_up = watch.caught_up
    moment = groups.until if groups.until is not None else None if groups.events_clock else time.time()
    for line in groups.now(moment, changes=False) if moment is not None else ():
        _show(output, line)
    if not groups.states:
        whose = f" of group {groups.group}" if groups.group else ""
        near = nearest(groups.group, groups.others) if groups.group else ()
        near_text = f"; groups seen there: {', '.join(near)}" if near else "; check that it is the control topic"
        output.log(f"{topic} has no control event{whose}{near_text}")
        return Exit.REFUSED
    return Exit.DONE


def _batches(watch: ControlWatch, output: Output, *, follow: bool) -> Iterator[tuple[ControlRecord, ...]]:
    """Yield existing records; in continuous mode, then new ones."""
    heard, reported = time.monotonic(), None
    while True:
        records = watch.poll(POLL_SECONDS)
        yield records
        if watch.caught_up and not follow:
            return
        if records or watch.trouble is None:
            heard, reported = time.monotonic(), None
        elif not follow and time.monotonic() - heard > GIVE_UP_SECONDS:
            raise watch.away(GIVE_UP_SECONDS)
        elif watch.trouble != reported:
            reported = watch.trouble
            output.log(f"waiting for the brokers of {watch.topic}: {reported}")


@dataclass(slots=True, kw_only=True)
class GroupVerdicts:
    """The observed groups, and the last reported verdict of each; ``others`` were not requested.

    :param group: the only one to evaluate
    :param until: time of the last evaluated event, in seconds of the epoch
    :param completion_timeout: seconds
    """

    group: str | None
    rules: StallRules
    events_clock: bool
    until: float | None
    completion_timeout: float
    states: dict[str, State] = field(default_factory=dict)
    rules_of: dict[str, StallRules] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    clocks: dict[str, float] = field(default_factory=dict)
    verified: VerifiedRecords = field(default_factory=VerifiedRecords)
    others: set[str] = field(default_factory=set)

    def event(self, record: ControlRecord) -> dict[str, Any] | None:
        """Return the result for a record; ``None`` if it is no event of the group, or too late to be evaluated."""
        found = observed_record(
            record.value,
            key=record.key,
            headers=record.headers,
            group=self.group,
            at=None if self.events_clock else record.timestamp.timestamp(),
            completion_timeout=self.completion_timeout,
        )
        if found is None:
            if not self.states and len(self.others) < MOST_OTHERS and (name := group_of(record.value)) is not None:
                self.others.add(name)
            return None
        group, event = found.group, found.event
        if self.until is not None and event.at > self.until:
            return None
        rules = self.rules_of.get(group, self.rules)
        if not self.verified(record, group, event.kind, landing=rules.landing):
            return None
        # Several senders have several clocks; time does not go back.
        clock = self.clocks.get(group, event.at)
        if event.kind not in WORKERS:
            self.clocks[group] = clock = max(clock, event.at)
        if not rules.landing and is_ours(record):
            rules = replace(rules, landing=True)
        before = evaluate(self.states.get(group, State()), clock, rules)
        state = observe(self.states.get(group, State()), event, rules)
        after = evaluate(state, clock, rules)
        self.states[group], self.rules_of[group], self.verdicts[group] = state, rules, after.verdict
        return {**_position(record, group, event), **_finding(after), "before": before.verdict.value}

    def now(self, moment: float, *, changes: bool) -> Iterator[dict[str, Any]]:
        """Yield the verdict of each group at a time; with ``changes`` only if it differs from the last reported one."""
        groups = self.states or ({} if self.group is None or changes else {self.group: State()})
        for group, state in groups.items():
            found = evaluate(state, max(moment, self.clocks.get(group, moment)), self.rules_of.get(group, self.rules))
            if changes and found.verdict is self.verdicts.get(group):
                continue
            before = self.verdicts.get(group, found.verdict)
            self.verdicts[group] = found.verdict
            place = {"partition": None, "offset": None, "at": _iso(moment), "event": NOW, "commit_id": None}
            yield {"group": group, **place, **_finding(found), "before": before.value}


def _position(record: ControlRecord, group: str, seen: ObservedEvent) -> dict[str, Any]:
    return {
        "group": group,
        "partition": record.partition,
        "offset": record.offset,
        "at": _iso(seen.at),
        "event": seen.kind.value,
        "commit_id": str(UUID(bytes=seen.commit)),
    }


def _finding(found: Diagnosis) -> dict[str, Any]:
    return {
        "verdict": found.verdict.value,
        "reason": found.reason,
        "clears": found.clears,
        "since": None if found.since is None else _iso(found.since),
        "evidence": dict(found.evidence),
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _show(output: Output, line: Mapping[str, Any] | None) -> None:
    if line is None:
        return
    place = "" if line["offset"] is None else f"{line['partition']}@{line['offset']} "
    commit = "" if line["commit_id"] is None else f" {line['commit_id']}"
    changed = "" if line["verdict"] == line["before"] else f" (was {line['before']})"
    text = f"{place}{line['at']} {line['event']} {line['group']}{commit}: {line['verdict'].upper()}{changed}"
    # The remedy is shown once, when the verdict changes.
    clears = f"; cleared by {line['clears']}" if changed and line["clears"] else ""
    output.answer(line, [f"{text}: {line['reason']}{clears}"])
