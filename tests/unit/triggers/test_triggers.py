# SPDX-License-Identifier: Apache-2.0
"""What triggers are stored with, which of them share a stream, and when a backlog is reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from airflow._shared.module_loading import import_string

from airflow_provider_lakecommit.core.planning.backlog import Backlog, BacklogLimits
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.stall.group_state import StallRules
from airflow_provider_lakecommit.stall.guard import Guard
from airflow_provider_lakecommit.stall.verdict import Verdict
from airflow_provider_lakecommit.stall.watch import Commits
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger, _LastEvent
from airflow_provider_lakecommit.triggers.commit_state import CommitStateTrigger
from airflow_provider_lakecommit.triggers.ended_by_worker import EndedByWorkerTrigger
from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger, guard_from_json, guard_to_json

GUARD = Guard(
    rules=StallRules(landing=True, stalled_cycles=5, only_cycles=True, interval=30.0),
    hold=frozenset({Verdict.LOSING}),
    unknown_holds=True,
    max_age=60.0,
    fail_after=600.0,
)


def waits(**options: Any) -> StalledCommitTrigger:
    values = {"control_topic": "control", "control_group_id": "a", "guard": guard_to_json(GUARD)}
    return StalledCommitTrigger(**{**values, "deadline": 1.5, "jitter": 3.0, **options})


@pytest.mark.parametrize(
    "trigger",
    [
        waits(kafka_config_id="events", since=60.0, completion_timeout=10.0, soft_fail=True),
        CommitStateTrigger(control_topic="control", control_group_id="a", alarms=["dead"], interval=300.0),
        BacklogTrigger(landing=Landing(name="orders", topics=["a", "b"], table="shop.orders"), rows=5, age=60.0),
    ],
)
def test_a_trigger_that_was_stored_is_the_same(trigger: Any) -> None:
    path, arguments = trigger.serialize()
    again = import_string(path)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)


def test_a_guard_that_was_stored_is_the_same() -> None:
    assert guard_from_json(json.loads(json.dumps(guard_to_json(GUARD)))) == GUARD


def test_what_reads_the_same_shares_a_stream() -> None:
    other = CommitStateTrigger(control_topic="control", control_group_id="b")
    assert waits().shared_stream_key() == waits(control_group_id="c").shared_stream_key() == other.shared_stream_key()
    apart = [
        waits(**{name: value})
        for name, value in {
            "control_topic": "x",
            "kafka_config_id": "x",
            "since": 1.0,
            "completion_timeout": 1.0,
        }.items()
    ]
    assert len({t.shared_stream_key() for t in (waits(), *apart)}) == 5


@pytest.mark.parametrize(
    ("commits", "kwargs"),
    [
        (Commits(groups={}), "success"),
        (Commits(groups=None, trouble="brokers are away"), "skipped"),
        (Commits(groups=None, trouble="again"), {"how": "timed_out", "reason": "again"}),
    ],
)
def test_what_the_triggerer_would_end_is_handed_to_a_worker(commits: Commits, kwargs: Any) -> None:
    arguments = waits(guard=guard_to_json(Guard()), jitter=0.0, soft_fail=kwargs == "skipped").serialize()[1]

    async def stream() -> AsyncIterator[Commits]:
        yield commits

    async def events() -> list[Any]:
        return [event.payload async for event in EndedByWorkerTrigger(**arguments).filter_shared_stream(stream())]

    assert asyncio.run(events()) == [kwargs]


def test_a_backlog_needs_a_limit_and_topics() -> None:
    with pytest.raises(SpecError, match="LC8709"):
        BacklogTrigger(landing="orders", topics=["orders"])
    with pytest.raises(SpecError, match="LC8708"):
        BacklogTrigger(landing="orders", rows=1)


def backlog(rows: int, age: float | None = None, planned: int = 0) -> Backlog:
    return Backlog(rows=rows, bytes=rows * 100, age=age, planned=planned)


@pytest.mark.parametrize(
    ("limits", "found", "number"),
    [
        (BacklogLimits(rows=10), backlog(9), 0),
        (BacklogLimits(rows=10), backlog(10), 1),
        (BacklogLimits(bytes=1000), backlog(10), 1),
        (BacklogLimits(age=60.0), backlog(1, 59.0), 0),
        (BacklogLimits(age=60.0), backlog(1, 60.0), 1),
        (BacklogLimits(age=60.0), backlog(1), 0),
        (BacklogLimits(rows=1, bytes=1, age=1.0), backlog(1, 1.0), 3),
    ],
)
def test_any_limit_is_enough(limits: BacklogLimits, found: Backlog, number: int) -> None:
    assert len(limits.reached(found)) == number


def test_a_backlog_is_reported_once_until_it_is_planned_or_nothing_was_done() -> None:
    trigger, reached = _LastEvent(again=300.0), ["10 rows"]
    assert trigger.is_news(backlog(10), reached, 0.0)
    assert not trigger.is_news(backlog(12), reached, 10.0)
    assert trigger.is_news(backlog(13, planned=5), reached, 20.0), "a plan took some of it, and enough is left"
    assert not trigger.is_news(backlog(13, planned=5), reached, 319.0)
    assert trigger.is_news(backlog(13, planned=5), reached, 320.0), "nobody did anything"
    assert not trigger.is_news(backlog(0, planned=5), [], 330.0)
    assert trigger.is_news(backlog(10, planned=5), reached, 340.0)
