# SPDX-License-Identifier: Apache-2.0
"""What an observer sees of a record: of a connector's by its body, of ours by its header."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control import headers as h
from airflow_provider_lakecommit.control.coverage import coverage_to_json, spans_to_json
from airflow_provider_lakecommit.control.data_file import DataFile
from airflow_provider_lakecommit.control.events import Event, encode, glance, head
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.control.plan_json import time_to_json
from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.stall.group_state import EventKind
from airflow_provider_lakecommit.stall.observed_events import observed_record
from tests.fixtures.traces import SCENES, read_trace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
COMMIT = UUID(int=7)
TABLE = TableReference(catalog="lake", namespace=("shop", "eu"), name="orders", table_uuid=UUID(int=9))
PARTITION = SourcePartition(topic="orders", partition=3, topic_id="id")
RANGE = Coverage.of([(PARTITION, OffsetRange(10, 20))])


def value(payload: Payload, *, at: datetime = NOON, group: str = "connect-x", form: Any = "1.12") -> bytes:
    return encode(Event(id=UUID(int=1), timestamp=at, group_id=group, payload=payload), form=form)


def file(rows: int) -> DataFile:
    return DataFile(file_path=f"/{rows}", file_format="PARQUET", partition=(), record_count=rows, file_size_in_bytes=1)


def observed(payload: Payload, event: dict[str, Any] | None = None, form: Any = "1.12", **options: Any) -> Any:
    headers = [] if event is None else h.header(event, "a test")
    found = observed_record(value(payload, form=form), key=b"key", headers=headers, **options)
    assert found is not None
    assert found[0] == "connect-x"
    assert (found[1].commit, found[1].sender) == (COMMIT.bytes, b"key")
    return found[1]


def test_a_start() -> None:
    event = observed(StartCommit(commit_id=COMMIT))
    assert (event.kind, event.at) == (EventKind.START, NOON.timestamp())
    assert observed(StartCommit(commit_id=COMMIT), at=5.0).at == 5.0


@pytest.mark.parametrize(("form", "table_id"), [("1.12", UUID(int=9).bytes), ("1.10", None)])
def test_files_with_rows_of_a_table(form: str, table_id: bytes | None) -> None:
    payload = DataWritten(commit_id=COMMIT, table=TABLE, data_files=(file(3), file(0), file(1)), delete_files=None)
    event = observed(payload, form=form)
    assert (event.kind, event.table, event.table_id, event.files) == (EventKind.WRITTEN, "shop.eu.orders", table_id, 2)
    assert observed(payload, bodies=False).table is None


def test_an_answer_with_and_without_times() -> None:
    places = [TopicPartitionOffset(topic="orders", partition=n, offset=n, timestamp=NOON) for n in range(2)]
    event = observed(DataComplete(commit_id=COMMIT, assignments=tuple(places)))
    assert (event.kind, event.partitions, event.timed) == (EventKind.ANSWERED, {("orders", 0), ("orders", 1)}, True)
    idle = TopicPartitionOffset(topic="orders", partition=2)
    assert not observed(DataComplete(commit_id=COMMIT, assignments=(*places, idle))).timed
    assert observed(DataComplete(commit_id=COMMIT, assignments=None)).partitions == frozenset()
    assert observed(DataComplete(commit_id=COMMIT, assignments=()), bodies=False).partitions is None


def test_a_snapshot_and_the_end_of_a_cycle() -> None:
    event = observed(CommitToTable(commit_id=COMMIT, table=TABLE, snapshot_id=1, valid_through=None))
    assert (event.kind, event.table, event.table_id) == (EventKind.PUBLISHED, "shop.eu.orders", UUID(int=9).bytes)
    event = observed(CommitComplete(commit_id=COMMIT, valid_through=NOON))
    assert (event.kind, event.valid_through) == (EventKind.COMPLETED, NOON.timestamp())
    assert observed(CommitComplete(commit_id=COMMIT, valid_through=None)).valid_through is None


def test_our_start_has_a_deadline() -> None:
    start = StartCommit(commit_id=COMMIT)
    assert observed(start, {"kind": "open"}).deadline is None
    assert observed(start, {"kind": "open"}, completion_timeout=60).deadline == NOON.timestamp() + 60


@pytest.mark.parametrize("state", [None, *RefusalState])
def test_our_start_names_the_state_in_which_a_budget_is_full(state: RefusalState | None) -> None:
    plan = {} if state is None else {"held": "some text", "refusal": state.name}
    full = state is not None and state.name.startswith("PENDING")
    assert observed(StartCommit(commit_id=COMMIT), {"kind": "open", "plan": plan}).full is full


def test_our_start_reports_why_a_table_defers_the_plan() -> None:
    def deferred(refusal: str) -> str:
        plan = {"held": "some text", "refusal": refusal, "reason": "so much"}
        return observed(StartCommit(commit_id=COMMIT), {"kind": "open", "plan": plan}).deferred

    assert {state.name: deferred(state.name) for state in RefusalState if deferred(state.name)} == {"DEBT": "so much"}


def test_our_failed_attempt_reports_why() -> None:
    assert observed(StartCommit(commit_id=COMMIT), {"kind": "failed", "failed": "no catalog"}).failed == "no catalog"


@pytest.mark.parametrize(
    ("header", "more"),
    [
        ({}, ()),
        ({"tables": ["shop.orders", "shop.dead"], "main": "shop.orders"}, ()),
        ({"tables": ["shop.dead"], "main": "shop.orders"}, ("shop.dead",)),
        # Older evidence does not say which is the data table.
        ({"tables": ["shop.dead"]}, ()),
    ],
)
def test_our_failed_attempt_reports_whether_the_data_came_through(
    header: dict[str, Any], more: tuple[str, ...]
) -> None:
    assert observed(StartCommit(commit_id=COMMIT), {"kind": "failed", "failed": "no", **header}).beside == more


def report(spans: int, **what: Any) -> dict[str, Any]:
    places = [SourcePartition(topic="orders", partition=3 + n, topic_id="id") for n in range(spans)]
    covered = spans_to_json(Span(partition=p, range=OffsetRange(10, 20)) for p in places)
    return {"kind": "report", "report": {"spans": covered, "blocked": None, **what}}


def test_our_blocked_range() -> None:
    answer = DataComplete(commit_id=COMMIT, assignments=())
    event = observed(answer, report(1, blocked="1001 rejected"))
    assert (event.blocked, event.covers) == ("1001 rejected", RANGE)
    # Several ranges are tried again one by one; a finished slice is none.
    assert observed(answer, report(2, blocked="1001 rejected")).blocked is None
    assert observed(answer, report(1)).blocked is None


def test_a_user_settles_ranges() -> None:
    raised = [[coverage_to_json(RANGE), [500, 1.0]]]
    event = observed(CommitComplete(commit_id=COMMIT), {"kind": "closed", "valid_through": None, "raised": raised})
    assert event.covers == RANGE
    published = {"kind": "published", "table": "shop.orders", "ranges": coverage_to_json(RANGE)}
    payload = CommitToTable(commit_id=COMMIT, table=TABLE, snapshot_id=1, valid_through=None)
    assert (observed(payload, published).table, observed(payload, published).covers) == ("shop.orders", RANGE)


def test_our_valid_through_time_is_in_the_header() -> None:
    through = {"kind": "closed", "valid_through": time_to_json(NOON)}
    assert observed(CommitComplete(commit_id=COMMIT), through).valid_through == NOON.timestamp()
    assert observed(CommitComplete(commit_id=COMMIT), through).covers is None


def test_other_groups_are_passed_over() -> None:
    start = value(StartCommit(commit_id=COMMIT))
    assert observed_record(start, key=None, headers=(), group="connect-y") is None
    assert observed_record(start, key=None, headers=(), group="connect-x") is not None


WHOLE = value(CommitComplete(commit_id=COMMIT))


@given(st.binary(max_size=60) | st.integers(0, len(WHOLE) - 1).map(lambda n: WHOLE[:n]))
def test_what_is_no_event_is_nothing(data: bytes) -> None:
    assert observed_record(data, key=None, headers=()) is None
    assert observed_record(WHOLE, key=None, headers=[(h.HEADER, data)]) is None
    assert observed_record(None, key=None, headers=()) is None


@pytest.mark.parametrize("header", [{"kind": "report"}, {"kind": "closed"}, {"kind": "published", "ranges": 5}, {}])
def test_a_header_that_lacks_something_is_nothing_to_stumble_over(header: dict[str, Any]) -> None:
    observed_record(value(StartCommit(commit_id=COMMIT)), key=None, headers=h.header(header, "a test"))


@given(
    st.datetimes(datetime(1950, 1, 1), datetime(2500, 1, 1)),
    st.text(max_size=100),
    st.sampled_from([StartCommit(commit_id=COMMIT), CommitComplete(commit_id=COMMIT, valid_through=NOON)]),
)
def test_a_glance_reports_what_the_head_reports(at: datetime, group: str, payload: Payload) -> None:
    check(value(payload, at=at.replace(tzinfo=UTC), group=group))


@given(st.binary(max_size=900), st.integers(0, 900))
def test_a_glance_at_corruption_ends_as_the_head_does(noise: bytes, place: int) -> None:
    whole = value(CommitComplete(commit_id=COMMIT, valid_through=NOON))
    check(whole[:place] + noise)
    check(whole[:place] + noise + whole[place + len(noise) :])


def test_a_glance_at_real_records() -> None:
    for scene in SCENES:
        for line in read_trace(scene).lines:
            check(line.value or b"")


def check(data: bytes) -> None:
    try:
        about = head(data)
    except WireError:
        with pytest.raises((WireError, UnicodeDecodeError)):
            glance(data)[2].decode()
        return
    micros = (about.timestamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert glance(data) == (int(about.type), micros, about.group_id.encode(), about.commit_id.bytes)


def test_a_stream_next_to_the_live_one_reports_nothing_of_it() -> None:
    payload = CommitComplete(commit_id=COMMIT, valid_through=None)
    for lane, heard in (("live", True), ("past", False)):
        found = observed_record(
            value(payload), key=b"key", headers=h.header({"lane": lane, "valid_through": None}, "a test")
        )
        assert (found is not None) is heard, lane
