# SPDX-License-Identifier: Apache-2.0
"""Any event survives its bytes, and no bytes do worse than a clear refusal."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.data_file import DataFile, PartitionField, PartitionValue
from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.events import Event, decode, encode, head
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
from tests.support.effort import examples
from tests.support.golden_events import PAYLOADS, golden_bytes

T = TypeVar("T")

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=12)
MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))


def maybe(values: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | values


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    digits = st.integers(-limit, limit)
    return digits.map(lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))


PARTITION_VALUES: dict[str, st.SearchStrategy[PartitionValue]] = {
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "date": INT,
    "time": st.integers(0, 86_399_999_999),
    "timestamp": LONG,
    "timestamptz": LONG,
    "timestamp_ns": LONG,
    "timestamptz_ns": LONG,
    "string": TEXT,
    "uuid": st.uuids(),
    "binary": BYTES,
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "fixed[16]": st.binary(min_size=16, max_size=16),
    "decimal(1, 0)": decimals(1, 0),
    "decimal(9, 2)": decimals(9, 2),
    "decimal(18, 18)": decimals(18, 18),
    "decimal(38, 10)": decimals(38, 10),
}


@st.composite
def partition_types(draw: st.DrawFn) -> tuple[PartitionField, ...]:
    kinds = draw(st.lists(st.sampled_from(sorted(PARTITION_VALUES)), max_size=6))
    # A digit at the end keeps names apart after they are made safe.
    names = draw(st.lists(TEXT, min_size=len(kinds), max_size=len(kinds)))
    return tuple(
        PartitionField(name=f"{name}{number}", field_id=1000 + number, type=kind)
        for number, (name, kind) in enumerate(zip(names, kinds, strict=True))
    )


@st.composite
def files(draw: st.DrawFn, fields: tuple[PartitionField, ...]) -> DataFile:
    counts = maybe(st.dictionaries(INT, LONG, max_size=4))
    bounds = maybe(st.dictionaries(INT, BYTES, max_size=4))
    return DataFile(
        file_path=draw(TEXT),
        file_format=draw(st.sampled_from(["PARQUET", "ORC", "AVRO"])),
        content=draw(st.integers(0, 2)),
        spec_id=draw(INT),
        partition=tuple(draw(maybe(PARTITION_VALUES[field.type])) for field in fields),
        record_count=draw(COUNT),
        file_size_in_bytes=draw(COUNT),
        column_sizes=draw(counts),
        value_counts=draw(counts),
        null_value_counts=draw(counts),
        nan_value_counts=draw(counts),
        lower_bounds=draw(bounds),
        upper_bounds=draw(bounds),
        key_metadata=draw(maybe(BYTES)),
        split_offsets=draw(maybe(st.lists(LONG, max_size=4).map(tuple))),
        equality_ids=draw(maybe(st.lists(INT, max_size=4).map(tuple))),
        sort_order_id=draw(maybe(INT)),
        first_row_id=draw(maybe(LONG)),
        referenced_data_file=draw(maybe(TEXT)),
        content_offset=draw(maybe(LONG)),
        content_size_in_bytes=draw(maybe(LONG)),
    )


TABLES = st.builds(
    TableReference,
    catalog=TEXT,
    namespace=st.lists(TEXT, max_size=3).map(tuple),
    name=TEXT,
    table_uuid=maybe(st.uuids()),
)
ASSIGNMENTS = st.builds(TopicPartitionOffset, topic=TEXT, partition=INT, offset=maybe(LONG), timestamp=maybe(MOMENTS))


@st.composite
def data_written(draw: st.DrawFn) -> DataWritten:
    fields = draw(partition_types())
    some_files = maybe(st.lists(files(fields), max_size=3).map(tuple))
    return DataWritten(
        commit_id=draw(st.uuids()),
        table=draw(TABLES),
        partition_fields=fields,
        data_files=draw(some_files),
        delete_files=draw(some_files),
    )


ANY_PAYLOAD: st.SearchStrategy[Payload] = st.one_of(
    st.builds(StartCommit, commit_id=st.uuids()),
    data_written(),
    st.builds(DataComplete, commit_id=st.uuids(), assignments=maybe(st.lists(ASSIGNMENTS, max_size=4).map(tuple))),
    st.builds(CommitToTable, commit_id=st.uuids(), table=TABLES, snapshot_id=maybe(LONG), valid_through=maybe(MOMENTS)),
    st.builds(CommitComplete, commit_id=st.uuids(), valid_through=maybe(MOMENTS)),
)
EVENTS = st.builds(Event, id=st.uuids(), timestamp=MOMENTS, group_id=TEXT, payload=ANY_PAYLOAD)


@settings(deadline=None, max_examples=examples(300))
@given(EVENTS)
def test_an_event_survives_its_bytes(event: Event) -> None:
    data = encode(event)
    assert decode(data) == event
    start = head(data)
    assert (start.id, start.type, start.timestamp, start.group_id, start.commit_id) == (
        event.id,
        event.type,
        event.timestamp,
        event.group_id,
        event.payload.commit_id,
    )


@settings(deadline=None, max_examples=examples(500))
@given(st.sampled_from(sorted(PAYLOADS)), st.data())
def test_corruption_is_refused_or_harmless_but_never_another_error(name: str, data: st.DataObject) -> None:
    record = bytearray(golden_bytes(name, "1.12.0"))
    body = 4 + int.from_bytes(record[2:4], "big")
    positions = st.integers(0, body - 1) | st.integers(body, len(record) - 1)
    for position in data.draw(st.lists(positions, min_size=1, max_size=4)):
        record[position] = data.draw(st.integers(0, 255))
    for read in (decode, head):
        with suppress(ControlEventError):
            read(bytes(record))


@settings(deadline=None, max_examples=examples(300))
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_by_name(data: bytes, marked: bool) -> None:
    for read in (decode, head):
        with suppress(ControlEventError):
            read(b"\xc2\x01" + data if marked else data)
