# SPDX-License-Identifier: Apache-2.0
"""Log records as entries: what is refused becomes an entry of its own, and names why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.headers import CORRUPT_HEADERS, HEADER
from airflow_provider_lakecommit.control.records import REASON_LENGTH, entry_of, read_entry
from airflow_provider_lakecommit.core.log import Unreadable
from tests.support.golden_events import golden_bytes
from tests.support.values import FOREIGN, STEADY, corrupted
from tests.unit.control.test_records import Record, closed, every_record

CONNECTORS = golden_bytes("commit_complete", "1.12.0")


@pytest.mark.parametrize("place", range(6))
def test_what_can_be_read_is_the_entry_that_it_is(place: int) -> None:
    out = every_record()[place]
    record = Record(out.value, out.headers)
    assert entry_of(record, "orders", "live") == read_entry(record, "orders", "live")
    assert entry_of(record, "other", "live") is entry_of(record, "orders", "backfill") is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (Record(b"junk", closed().headers), "not a control event"),
        (Record(closed().value[:40], closed().headers), "cut off"),
        (Record(closed().value, [(HEADER, b"{")]), "header is corrupt"),
        (Record(closed().value, [(HEADER, b"\xff")]), "header is corrupt"),
        (Record(closed().value, [(HEADER, b'{"v":7}')]), "upgrade airflow-provider-lakecommit"),
        (Record(closed().value, [(HEADER, b'{"v":1,"lane":"live","kind":"open"}')]), "offset 41 of landing orders"),
        (Record(closed().value, [(CORRUPT_HEADERS, b"")]), "its headers cannot be read"),
    ],
    ids=["junk", "cut", "header", "no text", "later", "another kind", "header names"],
)
def test_what_cannot_be_read_is_named(record: Record, message: str) -> None:
    entry = entry_of(record, "orders", "live")
    assert isinstance(entry, Unreadable)
    assert message in entry.reason
    assert (entry.offset, entry.at) == (record.offset, record.timestamp)


@pytest.mark.parametrize(
    "record",
    [
        Record(None, closed().headers),
        Record(b"junk", [("trace", b"1")]),
        Record(b"junk", [(CORRUPT_HEADERS, b"")]),
        Record(None, [(CORRUPT_HEADERS, b"")]),
        Record(CONNECTORS, [(CORRUPT_HEADERS, b"")]),
        Record(CONNECTORS, [(HEADER, b"{")]),
    ],
)
def test_records_of_others_are_skipped_silently(record: Record) -> None:
    assert entry_of(record, "orders", "live") is None


def test_a_reason_is_short_and_on_one_line() -> None:
    header = json.dumps({"v": 1, "lane": "live", "kind": "x\n" * 5000}).encode()
    entry = entry_of(Record(closed().value, [(HEADER, header)]), "orders", "live")
    assert isinstance(entry, Unreadable)
    assert len(entry.reason) <= REASON_LENGTH + 1
    assert entry.reason.isprintable()


@STEADY
@given(st.data())
def test_no_corruption_of_a_header_stops_the_reader(data: st.DataObject) -> None:
    out = data.draw(st.sampled_from(every_record()))
    ((name, packed),) = out.headers
    values = data.draw(corrupted(json.loads(packed)) | FOREIGN)
    entry_of(Record(out.value, [(name, json.dumps(values).encode())]), "orders", "live")
