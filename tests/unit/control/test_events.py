# SPDX-License-Identifier: Apache-2.0
"""The control-event codec: bytes of the connector, heads, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.control.avro_schemas import Form, decode_text, encode_text
from airflow_provider_lakecommit.control.avro_shapes import shape_of
from airflow_provider_lakecommit.control.data_file import PartitionField
from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.events import Event, EventHead, decode, encode, head
from airflow_provider_lakecommit.control.payloads import CommitComplete, DataWritten, PayloadType, StartCommit
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.golden_events import COMMIT, FILE, MOMENT, PAYLOADS, TABLE, golden_bytes, golden_event

RELEASES: dict[str, Form] = {"1.12.0": "1.12", "1.10.1": "1.10"}
every_golden_event = pytest.mark.parametrize(
    ("name", "release"), [(name, release) for release in RELEASES for name in PAYLOADS]
)


def rewritten(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """*data* with another writer schema in front of the same body."""
    end = 4 + int.from_bytes(data[2:4], "big")
    schema = json.loads(decode_text(data[4:end]))
    change(schema)
    text = encode_text(json.dumps(schema, ensure_ascii=False))
    return data[:2] + len(text).to_bytes(2, "big") + text + data[end:]


def payload_schema(schema: dict[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = schema["fields"][4]["type"]
    return payload


@every_golden_event
def test_written_bytes_are_the_connectors(name: str, release: str) -> None:
    assert encode(golden_event(name, release), form=RELEASES[release]) == golden_bytes(name, release)


@every_golden_event
def test_the_connectors_bytes_are_read(name: str, release: str) -> None:
    assert decode(golden_bytes(name, release)) == golden_event(name, release)


@every_golden_event
def test_head_is_the_start_of_the_event(name: str, release: str) -> None:
    event = golden_event(name, release)
    assert head(golden_bytes(name, release)) == EventHead(
        id=event.id, type=event.type, timestamp=MOMENT, group_id="connect-orders", commit_id=COMMIT
    )


def test_head_does_not_check_the_rest() -> None:
    data = golden_bytes("data_written", "1.12.0")
    body = 4 + int.from_bytes(data[2:4], "big")
    assert head(data[: body + 60]).type is PayloadType.DATA_WRITTEN


def test_head_of_a_schema_with_another_field_order_is_read_in_full() -> None:
    def swap(schema: dict[str, Any]) -> None:
        schema["fields"][0], schema["fields"][1] = (
            schema["fields"][1],
            {**schema["fields"][0], "type": {"type": "fixed", "name": "other", "size": 16}},
        )
        payload_schema(schema)["fields"][0]["type"] = "other"

    data = rewritten(golden_bytes("start_commit", "1.12.0"), swap)
    body = 4 + int.from_bytes(data[2:4], "big")
    data = data[:body] + data[body + 16 : body + 17] + data[body : body + 16] + data[body + 17 :]
    event = golden_event("start_commit", "1.12.0")
    assert decode(data) == event
    assert head(data).id == event.id


def test_absent_and_empty_file_lists_are_kept_apart() -> None:
    absent = golden_event("start_commit", "1.12.0")
    absent = replace(absent, payload=DataWritten(commit_id=COMMIT, table=TABLE))
    empty = replace(absent, payload=DataWritten(commit_id=COMMIT, table=TABLE, data_files=(), delete_files=()))
    assert decode(encode(absent)) == absent
    assert decode(encode(empty)) == empty
    assert encode(absent) != encode(empty)


def test_fields_of_a_newer_release_are_passed_over() -> None:
    def extend(schema: dict[str, Any]) -> None:
        fields = payload_schema(schema)["fields"]
        fields.append({"name": "novelty", "type": ["null", "string"], "default": None, "field-id": 10999})

    data = rewritten(golden_bytes("commit_complete", "1.12.0"), extend) + b"\x02\x04hi"
    assert decode(data) == golden_event("commit_complete", "1.12.0")


def test_an_instant_of_any_zone_is_written_as_utc() -> None:
    event = golden_event("start_commit", "1.12.0")
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert encode(replace(event, timestamp=elsewhere)) == encode(event)


@pytest.mark.parametrize("micros", [-1, 0, 1, 253_402_300_799_999_999])
def test_instants_are_exact_to_the_microsecond(micros: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    event = replace(
        golden_event("start_commit", "1.12.0"), payload=CommitComplete(commit_id=COMMIT, valid_through=moment)
    )
    assert decode(encode(event)) == event


@every_golden_event
def test_a_record_that_is_cut_off_is_refused(name: str, release: str) -> None:
    data = golden_bytes(name, release)
    body = 4 + int.from_bytes(data[2:4], "big")
    for end in (*range(6), body // 2, *range(body, len(data))):
        with pytest.raises(ControlEventError, match=r"cut off|corrupt|not a control event|unreadable"):
            decode(data[:end])


@pytest.mark.parametrize("data", [b"", b"\xc2", b"{}", b"\x00\x00\x00\x00\x05hello", b"Obj\x01" + b"\x00" * 100])
def test_a_foreign_record_is_refused(data: bytes) -> None:
    for read in (decode, head):
        with pytest.raises(ControlEventError, match="LC2351"):
            read(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "unreadable.*LC2313"),
        (b"\xff\xfe", "unreadable.*LC2313"),
        (b"[]", "unreadable|not a control event"),
        (b'"string"', "not a control event.*LC2314"),
        (
            b'{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
            "not a control event.*Order.*LC2314",
        ),
        (
            b'{"type":"record","name":"Order","fields":[{"name":"id","type":"missing"}]}',
            "'missing' without defining.*LC2321",
        ),
        (b"[" * 5000, "unreadable.*LC2313"),
    ],
    ids=["empty", "binary", "union", "string", "order", "dangling", "deep"],
)
def test_a_record_with_a_foreign_schema_is_refused(text: bytes, message: str) -> None:
    data = b"\xc2\x01" + len(text).to_bytes(2, "big") + text + b"\x02"
    with pytest.raises(ControlEventError, match=message):
        decode(data)


def test_bytes_behind_an_event_are_refused() -> None:
    with pytest.raises(ControlEventError, match="LC2349"):
        decode(golden_bytes("start_commit", "1.12.0") + b"abc")


def test_a_type_of_a_newer_release_is_named() -> None:
    data = bytearray(golden_bytes("start_commit", "1.12.0"))
    data[4 + int.from_bytes(data[2:4], "big") + 16] = 10
    for read in (decode, head):
        with pytest.raises(ControlEventError, match="LC2354"):
            read(bytes(data))


def test_a_type_that_contradicts_its_payload_is_refused() -> None:
    data = bytearray(golden_bytes("start_commit", "1.12.0"))
    data[4 + int.from_bytes(data[2:4], "big") + 16] = 8
    with pytest.raises(ControlEventError, match="LC2355"):
        decode(bytes(data))


def test_a_payload_without_an_essential_is_refused() -> None:
    def rename(schema: dict[str, Any]) -> None:
        payload_schema(schema)["fields"][0]["field-id"] = 10999

    with pytest.raises(ControlEventError, match="LC2348"):
        decode(rewritten(golden_bytes("start_commit", "1.12.0"), rename))


def test_a_partition_of_an_unknown_type_is_named() -> None:
    def change(schema: dict[str, Any]) -> None:
        files = payload_schema(schema)["fields"][2]["type"][1]["items"]
        files["fields"][4]["type"]["fields"][0]["type"][1]["logicalType"] = "novelty"

    with pytest.raises(ControlEventError, match="LC2322"):
        decode(rewritten(golden_bytes("data_written", "1.12.0"), change))


def test_errors_are_wire_errors() -> None:
    assert issubclass(ControlEventError, WireError)


def test_a_naive_instant_is_refused() -> None:
    event = replace(golden_event("start_commit", "1.12.0"), timestamp=datetime(2026, 3, 1))
    with pytest.raises(ControlEventError, match="LC2360"):
        encode(event)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**31),
        ("date", 2**31),
        ("long", 2**63),
        ("long", True),
        ("long", "5"),
        ("boolean", 1),
        ("double", 1),
        ("string", b"text"),
        ("binary", "text"),
        ("uuid", "0b0d2f0e-3f1c-4b6e-9a51-6a5f4f3d2c1b"),
        ("fixed[4]", b"abc"),
        ("decimal(9, 2)", Decimal("0.001")),
        ("decimal(9, 2)", Decimal("10000000.00")),
        ("decimal(9, 2)", Decimal("NaN")),
        ("decimal(9, 2)", 1.5),
    ],
)
def test_a_partition_value_that_does_not_fit_is_refused(kind: str, value: Any) -> None:
    file = replace(FILE, partition=(value,))
    with pytest.raises(ControlEventError, match="LC2359"):
        encode(written(PartitionField(name="p", field_id=1000, type=kind), file=file))


@pytest.mark.parametrize("kind", ["struct", "decimal(9)", "fixed[4, 2]", "unknown", ""])
def test_a_partition_field_of_no_primitive_type_is_refused(kind: str) -> None:
    with pytest.raises(ControlEventError, match="LC2358"):
        encode(written(PartitionField(name="p", field_id=1000, type=kind), file=replace(FILE, partition=(None,))))


def test_a_file_with_another_number_of_partition_values_is_refused() -> None:
    with pytest.raises(ControlEventError, match="LC2340"):
        encode(written(PartitionField(name="p", field_id=1000, type="long"), file=FILE))


def test_partition_names_that_become_one_are_refused() -> None:
    fields = (
        PartitionField(name="a b", field_id=1000, type="long"),
        PartitionField(name="a_x20b", field_id=1001, type="long"),
    )
    with pytest.raises(ControlEventError, match="LC2311"):
        encode(written(*fields, file=replace(FILE, partition=(1, 2))))


def test_a_schema_over_the_formats_limit_is_refused() -> None:
    fields = tuple(PartitionField(name=f"{n}" * 1000, field_id=1000 + n, type="long") for n in range(70))
    with pytest.raises(ControlEventError, match="LC2310"):
        encode(written(*fields, file=replace(FILE, partition=(None,) * 70)))


def test_content_of_a_wrong_python_type_is_refused() -> None:
    file: Any = replace(FILE, record_count=None)
    with pytest.raises(ControlEventError, match="LC2346"):
        encode(written(file=replace(file, partition=())))


def test_schemas_are_taken_apart_once() -> None:
    data = golden_bytes("data_written", "1.12.0")
    decode(data)
    before = shape_of.cache_info()
    decode(bytes(bytearray(data)))
    after = shape_of.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("abc", b"abc"),
        ("\0", b"\xc0\x80"),
        ("é", "é".encode()),
        ("名", "名".encode()),
        ("😀", b"\xed\xa0\xbd\xed\xb8\x80"),
        ("\ud83d", b"\xed\xa0\xbd"),
    ],
)
def test_text_is_modified_utf_8(text: str, data: bytes) -> None:
    assert encode_text(text) == data
    assert decode_text(data) == text


def written(*fields: PartitionField, file: Any) -> Event:
    payload = DataWritten(commit_id=COMMIT, table=TABLE, partition_fields=fields, data_files=(file,))
    return Event(id=UUID(int=1), timestamp=MOMENT, group_id="g", payload=payload)


def test_an_event_reports_its_type() -> None:
    assert golden_event("start_commit", "1.12.0").type is StartCommit.TYPE is PayloadType.START_COMMIT
