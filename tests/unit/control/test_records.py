# SPDX-License-Identifier: Apache-2.0
"""Control records: each sender's record is read back as its entry, and nothing else is taken for ours."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import NoneType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.events import Event, decode, encode
from airflow_provider_lakecommit.control.headers import HEADER
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    StartCommit,
    TableReference,
)
from airflow_provider_lakecommit.control.records import Outgoing, Sender, read_entry
from airflow_provider_lakecommit.core.log import (
    AttemptsVoided,
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    Entry,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.core.model import Cycle, Plan, SliceReport
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.golden_events import PAYLOADS
from tests.support.values import (
    COVERAGES,
    CYCLES,
    DIRECTIVES,
    FOREIGN,
    MOMENTS,
    STEADY,
    corrupted,
    plans,
    reports,
    value_or_error,
)

COMMIT, EVENT = UUID(int=11), UUID(int=12)
AT = datetime(2026, 1, 1, tzinfo=UTC)
SENDER = Sender(landing="orders", lane="live", role="commit", commit_id=COMMIT)
TABLE = TableReference(catalog="lakecommit", namespace=("shop",), name="orders", table_uuid=UUID(int=13))
WRITTEN = next(p for p in PAYLOADS.values() if isinstance(p, DataWritten))
NOTHING = Directives()


@dataclass(frozen=True)
class Record:
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]
    offset: int = 41
    timestamp: datetime = AT


@pytest.mark.parametrize(("form", "table"), [("1.12", TABLE), ("1.10", replace(TABLE, table_uuid=None))])
def test_events_go_out_in_the_form_of_the_landing_and_either_is_read(form: str, table: TableReference) -> None:
    sender = replace(SENDER, form=form)
    values = {"table": TABLE, "snapshot_id": 5, "token": UUID(int=14), "coverage": Coverage()}
    sent = sender.published(EVENT, AT, directives=NOTHING, **values)  # type: ignore[arg-type]
    payload = decode(sent.value).payload
    assert isinstance(payload, CommitToTable)
    assert payload.table == table
    entry = read(sent)
    assert isinstance(entry, TablePublished)
    assert entry.token == UUID(int=14)


def read(out: Outgoing, landing: str = "orders", lane: str = "live") -> Entry | None:
    return read_entry(Record(out.value, out.headers), landing, lane)


def closed(sender: Sender = SENDER) -> Outgoing:
    return sender.closed(EVENT, AT, None, NOTHING)


class TestEntries:
    @STEADY
    @given(CYCLES, plans(), DIRECTIVES)
    def test_an_opened_cycle(self, cycle: Cycle, plan: Plan, directives: Directives) -> None:
        assert read(SENDER.opened(EVENT, AT, cycle, plan, directives)) == CycleOpened(
            offset=41, at=AT, commit_id=COMMIT, cycle=cycle, plan=plan, directives=directives
        )

    @STEADY
    @given(st.text(max_size=20), st.text(max_size=5), DIRECTIVES)
    def test_a_failed_commit(self, reason: str, attempt: str, directives: Directives) -> None:
        assert read(SENDER.commit_failed(EVENT, AT, reason, attempt, directives)) == CommitFailed(
            offset=41, at=AT, commit_id=COMMIT, reason=reason, task_attempt=attempt, directives=directives
        )
        named = read(SENDER.commit_failed(EVENT, AT, reason, attempt, directives, ("shop.orders", "shop.dead")))
        assert isinstance(named, CommitFailed)
        assert named.tables == ("shop.orders", "shop.dead")

    @STEADY
    @given(reports())
    def test_files_of_a_slice_stay_the_bytes_of_the_event(self, report: SliceReport) -> None:
        out = SENDER.files(EVENT, AT, replace(WRITTEN, commit_id=COMMIT), report, "shop.orders")
        assert read(out) == SliceFiles(
            offset=41, at=AT, commit_id=COMMIT, attempt=report.attempt, table="shop.orders", value=out.value
        )

    @STEADY
    @given(reports())
    def test_a_reported_slice(self, report: SliceReport) -> None:
        assert read(SENDER.reported(EVENT, AT, report)) == SliceReported(
            offset=41, at=AT, commit_id=COMMIT, report=report
        )

    @STEADY
    @given(st.lists(st.uuids(), max_size=30))
    def test_attempts_that_are_void(self, attempts: list[UUID]) -> None:
        assert read(SENDER.voided(EVENT, AT, attempts)) == AttemptsVoided(
            offset=41, at=AT, commit_id=COMMIT, attempts=tuple(attempts)
        )

    @STEADY
    @given(COVERAGES, st.integers(0, 2**63 - 1), DIRECTIVES)
    def test_a_published_table(self, coverage: Coverage, snapshot: int, directives: Directives) -> None:
        out = SENDER.published(
            EVENT, AT, table=TABLE, snapshot_id=snapshot, token=UUID(int=5), coverage=coverage, directives=directives
        )
        assert read(out) == TablePublished(
            offset=41,
            at=AT,
            commit_id=COMMIT,
            table="shop.orders",
            snapshot_id=snapshot,
            token=UUID(int=5),
            coverage=coverage,
            directives=directives,
            uuid=TABLE.table_uuid,
        )

    @STEADY
    @given(st.none() | MOMENTS, DIRECTIVES)
    def test_a_closed_cycle(self, through: datetime | None, directives: Directives) -> None:
        assert read(SENDER.closed(EVENT, AT, through, directives)) == CycleClosed(
            offset=41, at=AT, commit_id=COMMIT, valid_through=through, directives=directives
        )


class TestEvents:
    """What others read: the connector's events, with nothing of ours inside."""

    def test_the_event_is_of_the_landings_group_and_cycle(self) -> None:
        event = decode(closed().value)
        assert event == Event(
            id=EVENT,
            timestamp=AT,
            group_id="lakecommit-orders",
            payload=CommitComplete(commit_id=COMMIT, valid_through=None),
        )

    def test_a_failed_commit_is_a_start_again(self) -> None:
        event = decode(SENDER.commit_failed(EVENT, AT, "x", "1", NOTHING).value)
        assert event.payload == StartCommit(commit_id=COMMIT)

    @STEADY
    @given(reports())
    def test_only_a_finished_slice_reports_positions(self, report: SliceReport) -> None:
        payload = decode(SENDER.reported(EVENT, AT, report).value).payload
        assert isinstance(payload, DataComplete)
        done = report.blocked is None and report.failed is None
        assert [a.offset for a in payload.assignments] == ([s.span.range.end for s in report.spans] if done else [])

    def test_keys_are_one_per_landing_and_role(self) -> None:
        other_cycle, other_stream = replace(SENDER, commit_id=UUID(int=99)), replace(SENDER, lane="backfill")
        assert closed().key == closed(other_cycle).key == closed(other_stream).key
        others = {closed(replace(SENDER, role="plan")).key, closed(replace(SENDER, landing="x")).key}
        assert len({closed().key, *others}) == 3


class TestWhatIsNotOurs:
    def test_another_landing_is_passed_over(self) -> None:
        assert read(closed(), landing="other") is None

    def test_another_stream_is_passed_over(self) -> None:
        assert read(closed(), lane="backfill") is None

    def test_a_tombstone_is_passed_over(self) -> None:
        assert read_entry(Record(None, closed().headers), "orders", "live") is None

    def test_an_event_of_our_group_without_our_header_is_passed_over(self) -> None:
        assert read_entry(Record(closed().value, [("trace", b"1")]), "orders", "live") is None

    def test_a_corrupt_header_of_another_landing_is_passed_over(self) -> None:
        assert read_entry(Record(closed().value, [(HEADER, b"{")]), "other", "live") is None

    @STEADY
    @given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda b: closed().value[:60] + b))
    def test_bytes_that_are_no_event_are_passed_over(self, value: bytes) -> None:
        assert read_entry(Record(value, [("trace", b"1")]), "orders", "live") is None


class TestCorruption:
    @pytest.mark.parametrize("value", [b"", b"garbage", closed().value[:40]])
    def test_a_record_that_bears_our_header_but_is_no_event_is_refused(self, value: bytes) -> None:
        with pytest.raises(WireError):
            read_entry(Record(value, closed().headers), "orders", "live")

    def test_our_header_cut_off_is_refused(self) -> None:
        ((name, packed),) = closed().headers
        with pytest.raises(WireError, match="LC2343"):
            read_entry(Record(closed().value, [(name, packed[:-1])]), "orders", "live")

    def test_a_header_that_belongs_to_another_event_is_refused(self) -> None:
        start = SENDER.commit_failed(EVENT, AT, "x", "1", NOTHING)
        with pytest.raises(WireError, match="LC2363"):
            read_entry(Record(closed().value, start.headers), "orders", "live")

    @pytest.mark.parametrize("kind", ["failed", "files", "report", "published", "closed", "open", None, 7, "later"])
    def test_a_header_without_its_values_is_refused(self, kind: object) -> None:
        packed = json.dumps({"v": 1, "lane": "live", "kind": kind}).encode()
        for out in every_record():
            with pytest.raises(WireError, match="LC2363"):
                read_entry(Record(out.value, [(HEADER, packed)]), "orders", "live")

    @STEADY
    @given(st.data(), plans(), reports(), CYCLES, DIRECTIVES)
    def test_no_corruption_does_worse_than_a_wire_error(
        self, data: st.DataObject, plan: Plan, report: SliceReport, cycle: Cycle, directives: Directives
    ) -> None:
        out = data.draw(st.sampled_from([make(plan, report, cycle, directives) for make in MAKERS]))
        ((name, packed),) = out.headers
        values = data.draw(corrupted(json.loads(packed)) | FOREIGN)
        record = Record(out.value, [(name, json.dumps(values).encode())])
        assert isinstance(value_or_error(read_entry, record, "orders", "live"), (Entry, WireError, NoneType))

    @STEADY
    @given(st.data(), st.integers(0, 10_000), st.integers(0, 255))
    def test_no_corrupt_event_does_worse_than_a_wire_error(self, data: st.DataObject, place: int, byte: int) -> None:
        out = data.draw(st.sampled_from(every_record()))
        value = bytearray(out.value)
        value[place % len(value)] = byte
        record = Record(bytes(value), out.headers)
        assert isinstance(value_or_error(read_entry, record, "orders", "live"), (Entry, WireError, NoneType))


Maker = Callable[[Plan, SliceReport, Cycle, Directives], Outgoing]
MAKERS: list[Maker] = [
    lambda plan, report, cycle, told: SENDER.opened(EVENT, AT, cycle, plan, told),
    lambda plan, report, cycle, told: SENDER.commit_failed(EVENT, AT, "x", "1", told),
    lambda plan, report, cycle, told: SENDER.files(EVENT, AT, replace(WRITTEN, commit_id=COMMIT), report, "t"),
    lambda plan, report, cycle, told: SENDER.reported(EVENT, AT, report),
    lambda plan, report, cycle, told: SENDER.published(
        EVENT, AT, table=TABLE, snapshot_id=1, token=EVENT, coverage=plan.coverage, directives=told
    ),
    lambda plan, report, cycle, told: SENDER.closed(EVENT, AT, AT, told),
]


def every_record() -> list[Outgoing]:
    """One record of each kind, with small values."""
    cycle = Cycle(commit_id=COMMIT, dag="d", run="r", number=0, slot=0)
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="s",
        window_id=EVENT,
        slices=(),
        targets=(),
        ends={},
        requested_at=AT,
        reason="nothing new",
    )
    report = SliceReport(
        slice_id=EVENT, attempt=EVENT, window_id=EVENT, spec_version="s", spans=(), tables=(), failed="x"
    )
    return [make(plan, report, cycle, NOTHING) for make in MAKERS]


def test_the_event_that_the_tests_send_is_complete() -> None:
    assert encode(decode(closed().value)) == closed().value
