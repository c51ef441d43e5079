# SPDX-License-Identifier: Apache-2.0
"""Every record is shown, whatever its bytes are."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cli.control_log import source_of, to_dict
from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.data_file import DataFile, PartitionField
from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import CommitComplete, DataWritten, TableReference
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from tests.support.declared import landing_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVENT = encode(
    Event(
        id=UUID(int=1), timestamp=NOON, group_id="g", payload=CommitComplete(commit_id=UUID(int=2), valid_through=NOON)
    )
)


def record(value: bytes | None, headers: tuple[tuple[str, bytes], ...] = (), key: bytes | None = b"k") -> ControlRecord:
    return ControlRecord(partition=3, offset=7, timestamp=NOON, key=key, value=value, headers=headers)


def test_an_event_is_printed_in_full_with_its_position() -> None:
    assert to_dict(record(EVENT)) == {
        "partition": 3,
        "offset": 7,
        "timestamp": "2026-01-01T12:00:00+00:00",
        "key": "k",
        "headers": [],
        "event": {
            "id": "00000000-0000-0000-0000-000000000001",
            "type": "COMMIT_COMPLETE",
            "timestamp": "2026-01-01T12:00:00+00:00",
            "group_id": "g",
            "commit_id": "00000000-0000-0000-0000-000000000002",
            "valid_through": "2026-01-01T12:00:00+00:00",
        },
    }


def test_files_are_printed_with_partition_and_statistics() -> None:
    file = DataFile(
        file_path="s3://b/f.parquet",
        record_count=2,
        file_size_in_bytes=9,
        partition=(float("nan"),),
        lower_bounds={1: b"\x00\xff"},
    )
    payload = DataWritten(
        commit_id=UUID(int=2),
        table=TableReference(catalog="c", namespace=("shop",), name="orders", table_uuid=UUID(int=3)),
        partition_fields=(PartitionField(field_id=1000, name="ratio", type="double"),),
        data_files=(file,),
    )
    shown = to_dict(record(encode(Event(id=UUID(int=1), timestamp=NOON, group_id="g", payload=payload))))
    answer = json.loads(json.dumps(shown, allow_nan=False))["event"]
    assert answer["table"]["namespace"] == ["shop"]
    assert answer["data_files"][0]["file_path"] == "s3://b/f.parquet"
    assert answer["data_files"][0]["lower_bounds"] == {"1": "00ff"}
    assert answer["data_files"][0]["partition"] == ["nan"]


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "tombstone"), (b"", "not a control event"), (b"hello", "not a control event"), (EVENT[:-3], "")],
    ids=["tombstone", "empty", "text", "cut off"],
)
def test_a_record_that_is_no_event_is_printed_as_such(value: bytes | None, message: str) -> None:
    shown = to_dict(record(value))
    assert message in shown["foreign"]
    assert "event" not in shown


def test_a_header_of_ours_is_printed_as_what_it_reports_and_others_as_they_are() -> None:
    shown = to_dict(record(EVENT, (("lakecommit", b'{"v":1,"kind":"closed"}'), ("trace", b"abc"), ("raw", b"\xff"))))
    assert shown["headers"] == [
        {"name": "lakecommit", "value": {"v": 1, "kind": "closed"}},
        {"name": "trace", "value": "abc"},
        {"name": "raw", "value": "0xff"},
    ]


def test_a_corrupt_header_of_ours_is_printed_as_such() -> None:
    (header,) = to_dict(record(EVENT, (("lakecommit", b"{"),)))["headers"]
    assert "corrupt" in header["value"]["damaged"]
    assert header["value"]["value"] == "{"


@given(
    value=st.one_of(st.binary(), st.binary().map(lambda tail: EVENT[:60] + tail)),
    name=st.sampled_from(["lakecommit", "x"]),
    header=st.binary(),
    key=st.none() | st.binary(),
)
def test_no_bytes_stop_it(value: bytes, name: str, header: bytes, key: bytes | None) -> None:
    shown = to_dict(record(value, ((name, header),), key))
    assert ("event" in shown) != ("foreign" in shown)
    json.dumps(shown, allow_nan=False)


SPEC = LandingSpec(
    landing=landing_of(name="orders", topics="orders", table="shop.orders", control_topic="mine"),
    kafka={"bootstrap.servers": "a:1", "sasl.password": "x"},
    catalog={},
    spark={},
)


def test_the_topic_comes_from_the_spec_and_arguments_win() -> None:
    assert source_of(SPEC, bootstrap=None, topic=None, config_file=None) == (dict(SPEC.kafka), "mine")
    kafka, topic = source_of(SPEC, bootstrap="b:2", topic="theirs", config_file=None)
    assert (kafka["bootstrap.servers"], kafka["sasl.password"], topic) == ("b:2", "x", "theirs")


def test_without_spec_and_brokers_it_is_bad_usage() -> None:
    with pytest.raises(SpecError, match="LC8003"):
        source_of(None, bootstrap=None, topic="t", config_file=None)
