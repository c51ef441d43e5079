# SPDX-License-Identifier: Apache-2.0
"""What `lakecommit connect watch` says of records, without a broker: landings, connectors, and time that passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.cli.main import main
from airflow_provider_lakecommit.cli.watch import GroupVerdicts, rules_of
from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    DataComplete,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.control.records import Outgoing, Sender
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.stall.group_state import StallRules

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def verdicts_of(**changes: Any) -> GroupVerdicts:
    values = {"group": None, "rules": StallRules(), "events_clock": True, "until": None, "completion_timeout": 3600.0}
    return GroupVerdicts(**{**values, **changes})


def record(sent: Outgoing, at: datetime = NOON) -> ControlRecord:
    return ControlRecord(
        partition=0, offset=1, timestamp=at, key=sent.key, value=sent.value, headers=tuple(sent.headers)
    )


def ours(commit: UUID) -> Sender:
    return Sender(landing="orders", lane="live", role="commit", commit_id=commit)


def theirs(payload: Payload, at: datetime) -> ControlRecord:
    value = encode(Event(id=uuid4(), timestamp=at, group_id="connect-x", payload=payload))
    return record(Outgoing(key=b"k", value=value, headers=()), at)


def test_a_landing_is_evaluated_by_the_evidence_of_its_attempts() -> None:
    group_verdicts, lines = verdicts_of(), []
    for n in range(3):
        failed = ours(uuid4()).commit_failed(uuid4(), NOON + n * HOUR, "the catalog is away", "1", Directives())
        lines.append(group_verdicts.event(record(failed)))
    closed = ours(uuid4()).closed(uuid4(), NOON + 3 * HOUR, NOON, Directives())
    lines.append(group_verdicts.event(record(closed)))
    assert [line and line["verdict"] for line in lines] == ["slowing", "slowing", "stalled", "healthy"]
    assert lines[2] is not None
    assert lines[2]["group"] == "lakecommit-orders"
    assert "the catalog is away" in lines[2]["reason"]
    # Silence says nothing of a landing.
    (now,) = group_verdicts.now((NOON + timedelta(days=30)).timestamp(), changes=False)
    assert (now["verdict"], now["event"]) == ("healthy", "NOW")


def test_groups_of_one_topic_are_distinguished() -> None:
    group_verdicts = verdicts_of()
    for n in range(3):
        line = group_verdicts.event(theirs(StartCommit(commit_id=uuid4()), NOON + n * HOUR))
        group_verdicts.event(record(ours(uuid4()).closed(uuid4(), NOON + n * HOUR, None, Directives())))
    assert line is not None
    assert (line["group"], line["verdict"], line["before"]) == ("connect-x", "stalled", "slowing")
    verdicts = {now["group"]: now["verdict"] for now in group_verdicts.now(NOON.timestamp(), changes=False)}
    assert verdicts == {"connect-x": "stalled", "lakecommit-orders": "healthy"}


def test_the_clocks() -> None:
    start = theirs(StartCommit(commit_id=uuid4()), NOON)
    start = ControlRecord(
        partition=0, offset=1, timestamp=NOON + HOUR, key=start.key, value=start.value, headers=start.headers
    )
    by_event, by_wall = verdicts_of().event(start), verdicts_of(events_clock=False).event(start)
    assert by_event is not None
    assert by_wall is not None
    assert (by_event["at"], by_wall["at"]) == ("2026-03-01T12:00:00.000+00:00", "2026-03-01T13:00:00.000+00:00")


@pytest.mark.parametrize("ahead", [-120, 120])
@pytest.mark.parametrize("events_clock", [True, False])
def test_the_clock_of_a_worker_or_of_another_group_makes_no_coordinator_silent(ahead: int, events_clock: bool) -> None:
    group_verdicts, verdicts = verdicts_of(events_clock=events_clock), set()
    # The head of the topic was cut off in mid-cycle.
    group_verdicts.event(theirs(DataComplete(commit_id=uuid4(), assignments=()), NOON + timedelta(seconds=ahead)))
    for n in range(8):
        commit, at = uuid4(), NOON + timedelta(seconds=5 * n)
        skewed = at + timedelta(seconds=ahead)
        place = TopicPartitionOffset(topic="orders", partition=0, offset=n, timestamp=at)
        for event in (
            theirs(StartCommit(commit_id=commit), at),
            theirs(DataComplete(commit_id=commit, assignments=(place,)), skewed),
            record(ours(uuid4()).closed(uuid4(), skewed, None, Directives()), skewed),
            theirs(CommitComplete(commit_id=commit, valid_through=at), at),
        ):
            line = group_verdicts.event(event)
            assert line is not None
            verdicts |= {line["before"], line["verdict"]}
    assert verdicts == {"unknown", "healthy"}
    # It would be seen at its next word.
    line = group_verdicts.event(theirs(StartCommit(commit_id=uuid4()), NOON + HOUR))
    assert line is not None
    assert (line["before"], line["verdict"]) == ("dead", "healthy")


def test_only_what_changes_is_reported_while_time_passes() -> None:
    group_verdicts = verdicts_of(rules=StallRules(interval=60.0))
    group_verdicts.event(theirs(StartCommit(commit_id=uuid4()), NOON))
    moments = [NOON.timestamp() + seconds for seconds in (100, 170, 190, 200)]
    lines = [line for moment in moments for line in group_verdicts.now(moment, changes=True)]
    assert [(line["verdict"], line["before"]) for line in lines] == [("dead", "unknown")]


def test_a_group_that_was_never_heard_is_unknown() -> None:
    (line,) = verdicts_of(group="connect-y").now(NOON.timestamp(), changes=False)
    assert (line["group"], line["verdict"]) == ("connect-y", "unknown")


def test_rules_are_stated_by_name() -> None:
    stated = ["stalled-cycles=5", "silent-intervals=0.5", "interval=1m", "unanswered-cycles=2", "only-cycles=true"]
    rules = StallRules(stalled_cycles=5, silent_intervals=0.5, interval=60.0, unanswered_cycles=2, only_cycles=True)
    assert rules_of(stated, HOUR) == (rules, 3600.0)
    assert rules_of(["completion-timeout=5m"], HOUR) == (StallRules(), 300.0)


@pytest.mark.parametrize(
    "rule", ["stalled-cycles=0", "silent-intervals=0", "silent-intervals=nan", "interval=5", "interval", "cycles=3", ""]
)
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(SpecError, match=rf"--rule {rule}.*(LC8034|LC8035)"):
        rules_of([rule], HOUR)


def test_an_unknown_rule_is_answered_with_all_of_them() -> None:
    with pytest.raises(SpecError, match="LC8034"):
        rules_of(["cycles=3"], HOUR)


@pytest.mark.parametrize("arguments", [["--until", "noon"], ["--clock", "sun"]])
def test_bad_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["connect", "watch", "--bootstrap", "127.0.0.1:1", *arguments])
    assert stopped.value.code == 2


def test_a_bad_rule_is_bad_usage() -> None:
    assert main(["connect", "watch", "--bootstrap", "127.0.0.1:1", "--rule", "cycles=3"]) == 2
