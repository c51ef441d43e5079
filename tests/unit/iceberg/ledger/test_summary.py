# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from airflow_provider_lakecommit.control.ledger_text import decode_ledger, encode_ledger
from airflow_provider_lakecommit.core.accounting import counts_by_partition, total_of
from airflow_provider_lakecommit.core.model import Counts, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg.ledger.summary import (
    LogPoint,
    SnapshotKind,
    SnapshotRecord,
    record_of,
    sections_of,
    to_summary,
)
from tests.fakes.lake import at, coverage, section
from tests.support.values import STEADY, value_or_error

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def snapshot(properties: dict[str, str]) -> Snapshot:
    return Snapshot(
        snapshot_id=7,
        parent_snapshot_id=6,
        manifest_list="file:///x.avro",
        sequence_number=3,
        timestamp_ms=int(AT.timestamp() * 1000),
        summary=Summary(operation=Operation.APPEND, **properties),
    )


def new_record() -> SnapshotRecord:
    return SnapshotRecord(
        kind=SnapshotKind.APPEND,
        branch="main",
        landing="orders",
        lane="live",
        token=uuid4(),
        commit_id=uuid4(),
        slices=2,
        windows=(uuid4(), uuid4()),
        ranges=coverage((0, 5, 9), (1, 0, 4)),
        accounting={at(0): Counts(landed=3, rejected=1), at(1): Counts(gaps=4)},
        rows=3,
        spec_version="spec-1",
        control_end=LogPoint(topic_id="Y29udHJvbA", partition=2, offset=88),
        extra={"valid-through": "2026-01-01T00:00:00Z"},
    )


def test_a_summary_is_read_back_as_it_was_written() -> None:
    sections = (section(), section("returns", "backfill", covered=coverage((0, 0, 100))))
    written = snapshot(to_summary(expected_record := new_record(), sections))
    assert record_of(written) == replace(expected_record, snapshot_id=7, parent_id=6, at=AT)
    assert sections_of(written) == sections


def test_a_mark_has_no_keys_without_a_value() -> None:
    mark = SnapshotRecord(kind=SnapshotKind.CARRY, branch="main", landing="orders", lane="live")
    keys = to_summary(mark, [section()]).keys()
    assert not keys & {"lakecommit.token", "lakecommit.ranges", "lakecommit.accounting", "lakecommit.control-end"}
    assert record_of(snapshot(to_summary(mark, [section()]))) == replace(mark, snapshot_id=7, parent_id=6, at=AT)


def test_a_foreign_snapshot_is_no_record() -> None:
    assert record_of(snapshot({"added-records": "5"})) is None
    assert record_of(Snapshot(snapshot_id=1, manifest_list="file:///x.avro", summary=None)) is None


@pytest.mark.parametrize("key", ["kind", "rows", "branch", "slices"])
def test_a_corrupt_summary_is_an_error_and_not_foreign(key: str) -> None:
    properties = to_summary(new_record(), [section()])
    del properties[f"lakecommit.{key}"]
    with pytest.raises(WireError, match="LC3035"):
        record_of(snapshot(properties))


def test_a_later_version_is_refused() -> None:
    properties = to_summary(new_record(), [section()]) | {"lakecommit.version": "2"}
    with pytest.raises(WireError, match="LC3034"):
        record_of(snapshot(properties))


def test_extra_keys_cannot_replace_our_own() -> None:
    with pytest.raises(WireError, match="LC3033"):
        to_summary(replace(new_record(), extra={"ledger": "mine"}), [section()])


def test_accounts_add_up_per_partition() -> None:
    reports = [
        SpanReport(span=Span(at(0), OffsetRange(0, 5)), counts=Counts(landed=4, gaps=1)),
        SpanReport(span=Span(at(0), OffsetRange(8, 10)), counts=Counts(filtered=2)),
        SpanReport(span=Span(at(1), OffsetRange(0, 1)), counts=Counts(skipped=1)),
    ]
    account = counts_by_partition(reports)
    assert account == {at(0): Counts(landed=4, gaps=1, filtered=2), at(1): Counts(skipped=1)}
    assert total_of(account.values()).total == 8


HOSTILE = st.sampled_from(
    [
        *("", "x", "-1", "1" * 5000, "9" * 30, "\u0663", "nan", "null", "[]", "{}", '{"v":1}', '{"v":99}', "[" * 3000),
        '{"v":1,"sections":[{}]}',
        '{"v":1,"ranges":[["t","i",{"0":[5,1]}]]}',
        '["t",' + "9" * 25 + ",0]",
        '["t",-1,0]',
        "z:" + base64.b64encode(zlib.compress(b'{"v":1,"sections":[' + b"[]," * 5_000_000 + b"[]]}")).decode(),
        "z:" + base64.b64encode(zlib.compress(b"[" * 10_000_000)).decode(),
    ]
)


@STEADY
@given(st.dictionaries(st.sampled_from(sorted(to_summary(new_record(), [section()]))), HOSTILE, min_size=1, max_size=3))
def test_no_corruption_of_a_property_does_worse_than_a_wire_error(corruption: dict[str, str]) -> None:
    found = snapshot(to_summary(new_record(), [section()]) | corruption)
    for read in (record_of, sections_of):
        value_or_error(read, found)


@pytest.mark.parametrize("files", ["x", "-1", "1" * 5000])
def test_a_number_of_files_that_is_none_is_corruption(files: str) -> None:
    with pytest.raises(WireError, match="LC3035"):
        record_of(snapshot(to_summary(replace(new_record(), extra={"files": files}), [section()])))


def test_a_stream_with_two_sections_is_corruption() -> None:
    with pytest.raises(WireError, match="LC2357"):
        decode_ledger(encode_ledger([section(), section()]))
