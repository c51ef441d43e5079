# SPDX-License-Identifier: Apache-2.0
"""What a watch of all groups remembers is bounded, whatever a user makes up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.events import encode
from airflow_provider_lakecommit.stall import watch
from airflow_provider_lakecommit.stall.group_state import StallRules
from airflow_provider_lakecommit.stall.guard import Guard, GuardAnswer
from airflow_provider_lakecommit.stall.observed_events import GROUP_LENGTH, KEY_LENGTH, observed_record
from airflow_provider_lakecommit.stall.watch import Commits, WatchedTopic
from tests.support.golden_events import golden_event

AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(group: str, key: bytes = b"k", at: datetime | None = None) -> ControlRecord:
    event = golden_event("start_commit", "1.12.0")
    value = encode(replace(event, group_id=group, timestamp=at or event.timestamp))
    return ControlRecord(partition=0, offset=0, timestamp=AT, key=key, value=value, headers=())


def test_groups_that_are_known_go_on_when_a_user_makes_up_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_GROUPS", 3)
    fold = watch._Fold(WatchedTopic(topic="t", completion_timeout=3600))
    for name in ("real", *map(str, range(50)), "real"):
        fold.take(record(name))
    assert set(fold.groups()) == {"real", "0", "1"}
    assert fold.groups()["real"].last is not None


def test_a_group_that_may_be_among_the_overlooked_is_kept_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "MOST_GROUPS", 3)
    fold = watch._Fold(WatchedTopic(topic="t", completion_timeout=3600))
    assert Commits(groups=fold.groups(), overlooked=fold.overlooked).ruling("real", Guard()).answer is GuardAnswer.GO
    for name in (*map(str, range(5)), "real"):
        fold.take(record(name))
    found = Commits(groups=fold.groups(), overlooked=fold.overlooked)
    ruling = found.ruling("real", Guard())
    assert (ruling.answer, ruling.verdict) == (GuardAnswer.HOLD, "unknown")
    assert "more groups than the 3 that are remembered, and 3 records are of others" in ruling.reason
    assert found.ruling("0", Guard()).answer is GuardAnswer.GO
    [logged] = caplog.records
    assert "t has more than 3 groups; group 3," in logged.getMessage()


def test_long_names_and_keys_are_not_kept() -> None:
    def group_length(one: ControlRecord) -> object:
        found = observed_record(one.value, key=one.key, headers=one.headers)
        return found and len(found[1].sender or b"")

    assert group_length(record("g" * (GROUP_LENGTH + 1))) is None
    assert group_length(record("g", b"k" * KEY_LENGTH)) == KEY_LENGTH
    assert group_length(record("g", b"k" * 900_000)) == 32


def test_a_time_at_the_end_of_the_calendar_is_no_time() -> None:
    one = record("g", at=datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
    assert observed_record(one.value, key=one.key, headers=one.headers) is None


def test_a_group_that_nothing_was_observed_of_is_reported_with_the_nearest_names() -> None:
    fold = watch._Fold(WatchedTopic(topic="t", completion_timeout=3600), only="lakecommit-ordres")
    for name in ("lakecommit-orders", "lakecommit-payments", "connect-orders", "a\x1b[31m", "x" * 500):
        fold.take(record(name))
    ruling = Commits(groups=fold.groups(), others=frozenset(fold.others)).ruling(
        "lakecommit-ordres", Guard(rules=StallRules(landing=True), max_age=60.0)
    )
    assert ruling.answer is GuardAnswer.HOLD
    assert "of lakecommit-ordres" in ruling.reason
    assert "seen on that topic: orders, connect-orders, payments" in ruling.reason
    assert "\x1b" not in ruling.reason


def test_names_of_others_are_kept_only_until_the_group_is_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_OTHERS", 2)
    fold = watch._Fold(WatchedTopic(topic="t", completion_timeout=3600), only="real")
    for name in ("a", "b", "c", "real", "d"):
        fold.take(record(name))
    assert Commits(groups=fold.groups(), others=frozenset(fold.others)).others == {"a", "b"}
    assert set(fold.groups()) == {"real"}
