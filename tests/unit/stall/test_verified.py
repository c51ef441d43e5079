# SPDX-License-Identifier: Apache-2.0
"""What an observer believes: no copies, nothing unsigned where a key is, no word of others in a landing's name."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

from airflow_provider_lakecommit.control.control_log import ControlRecord, ControlTopicInfo, checked
from airflow_provider_lakecommit.control.records import Outgoing, Sender
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.signing import KEY, Place, SigningKeys
from airflow_provider_lakecommit.stall.group_state import EventKind, StallRules
from airflow_provider_lakecommit.stall.observed_events import REMEMBERED, VerifiedRecords
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate
from airflow_provider_lakecommit.stall.watch import WatchedTopic, _Fold

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GROUP = "lakecommit-orders"
WHERE = ControlTopicInfo(cluster_id="c", topic_id="t", partitions=6)
KEYS = SigningKeys.of({KEY: "k" * 32})


def sender(commit: UUID | None = None) -> Sender:
    return Sender(landing="orders", lane="live", role="commit", commit_id=commit or uuid4())


def record(sent: Outgoing, *, signed: bool = True, headers: bool = True) -> ControlRecord:
    present = tuple(sent.headers) if headers else ()
    if signed and KEYS is not None:
        place = Place(cluster_id="c", topic="control", partition=2)
        present = (*present, KEYS.signature(place, sent.key, sent.value, present))
    found = ControlRecord(partition=2, offset=7, timestamp=NOON, key=sent.key, value=sent.value, headers=present)
    return checked(found, KEYS, "control", WHERE)


def failed() -> Outgoing:
    return sender().commit_failed(uuid4(), NOON, "away", "1", Directives())


def closed() -> Outgoing:
    return sender().closed(uuid4(), NOON, NOON, Directives())


def verdict(records: list[ControlRecord]) -> Verdict:
    fold = _Fold(WatchedTopic(topic="control", completion_timeout=3600.0))
    for each in records:
        fold.take(each)
    return evaluate(fold.groups()[GROUP], NOON.timestamp(), StallRules(landing=True)).verdict


STALLED = [record(failed()) for _ in range(3)]
FIRST = record(closed())


def test_a_complete_of_the_landing_ends_a_stall() -> None:
    assert verdict([FIRST, *STALLED]) is Verdict.STALLED
    assert verdict([FIRST, *STALLED, record(closed())]) is Verdict.HEALTHY


def test_a_copy_of_one_does_not() -> None:
    assert verdict([FIRST, *STALLED, FIRST]) is Verdict.STALLED


def test_one_that_is_not_signed_does_not() -> None:
    assert verdict([FIRST, *STALLED, record(closed(), signed=False)]) is Verdict.STALLED


def test_one_without_our_header_does_not() -> None:
    assert verdict([FIRST, *STALLED, record(closed(), signed=False, headers=False)]) is Verdict.STALLED


def test_forged_and_copied_failures_are_no_stall() -> None:
    forged = [record(failed(), signed=False) for _ in range(5)]
    assert verdict([FIRST, *forged]) is Verdict.HEALTHY
    assert verdict([FIRST, STALLED[0], STALLED[0], STALLED[0]]) is not Verdict.STALLED


def test_what_is_remembered_is_bounded() -> None:
    verified = VerifiedRecords()
    records = [record(failed()) for _ in range(REMEMBERED + 1)]
    for _ in range(2):
        assert verified(records[0], GROUP, EventKind.START, landing=True)
        assert not verified(records[0], GROUP, EventKind.START, landing=True)
        for each in records[1:]:
            verified(each, GROUP, EventKind.START, landing=True)


def test_a_group_of_kafka_connect_is_trusted() -> None:
    assert VerifiedRecords()(
        record(closed(), signed=False, headers=False), "connect-x", EventKind.COMPLETED, landing=False
    )
