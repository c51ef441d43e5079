# SPDX-License-Identifier: Apache-2.0
"""Control records as a user would forge them who wants to stop every reader of the topic.

Each is small enough for a broker as it comes. What they cost is measured in a process of its own (`tests/unit/wire/
test_hostile_records.py`), because what they were made for is a crash of the interpreter, or all of its memory.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control.avro_schemas import decode_text, encode_text
from tests.support.golden_events import golden_bytes

Json = Any
EVENT = "org.apache.iceberg.connect.events"
MEGABYTE = 1_000_000


def number(value: int) -> bytes:
    """A zig-zag number."""
    twice, out = (value << 1) ^ (value >> 63), bytearray()
    while twice >= 0x80:
        out.append(twice & 0x7F | 0x80)
        twice >>= 7
    return bytes([*out, twice])


def record(schema: Json, body: bytes) -> bytes:
    text = schema if isinstance(schema, bytes) else encode_text(json.dumps(schema, ensure_ascii=False))
    return b"\xc2\x01" + len(text).to_bytes(2, "big") + text + body


def split(data: bytes) -> tuple[Json, bytes]:
    """Schema and body of an event."""
    end = 4 + int.from_bytes(data[2:4], "big")
    return json.loads(decode_text(data[4:end])), data[end:]


def begins(group: str) -> bytes:
    """Id, type, time and group of a START_COMMIT."""
    return bytes(16) + number(0) + number(0) + number(len(group)) + group.encode()


def extended(group: str, extra: Json, body: bytes, name: str = "start_commit") -> bytes:
    """A START_COMMIT with a field of a release to come, of any type and with any body."""
    schema, _ = split(golden_bytes(name, "1.12.0"))
    schema["fields"][4]["type"]["fields"].append({"name": "novelty", "type": extra, "field-id": 10999})
    return record(schema, begins(group) + bytes(16) + body)


def list_record(name: str = "L") -> Json:
    return {"type": "record", "name": name, "fields": [{"name": "next", "type": ["null", name], "field-id": 10998}]}


def doubled(times: int) -> Json:
    """Records of two of the record before: two to the power of values, and not a byte of a body."""
    inner: Json = {"type": "record", "name": "R0", "fields": []}
    for n in range(1, times):
        name = f"R{n}"
        inner = {
            "type": "record",
            "name": name,
            "fields": [{"name": "a", "type": inner}, {"name": "b", "type": f"R{n - 1}"}],
        }
    return inner


def nested_arrays(depth: int) -> Json:
    inner: Json = "null"
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


def decimal(precision: Any) -> Json:
    """The schema of files partitioned by a decimal of that many digits."""
    schema, _ = split(golden_bytes("data_written", "1.12.0"))
    files = schema["fields"][4]["type"]["fields"][2]["type"][1]["items"]
    files["fields"][4]["type"]["fields"][3]["type"][1]["precision"] = precision
    return schema


def many_fields(how_many: int) -> Json:
    return {"type": "record", "name": "Wide", "fields": [{"name": f"n{n}", "type": "null"} for n in range(how_many)]}


def events(group: str = "lakecommit-orders") -> dict[str, Callable[[], bytes]]:
    """Values of records."""
    huge, most = number(2**62), number(-(2**63))
    itself = {"name": "e", "type": "Event", "field-id": 10504}
    own = {"type": "record", "name": "Event", "namespace": EVENT, "fields": [itself]}
    start_schema, _ = split(golden_bytes("start_commit", "1.12.0"))
    complete_schema, complete = split(golden_bytes("data_complete", "1.12.0"))
    _, written = split(golden_bytes("data_written", "1.12.0"))
    array = {"type": "array", "items": "null"}
    return {
        "a type that holds itself": lambda: record(own, bytes(100)),
        "a payload that holds itself, a body of a megabyte": lambda: extended(group, list_record(), b"\x02" * MEGABYTE),
        "an array of itself": lambda: extended(
            group,
            {"type": "record", "name": "A", "fields": [{"name": "a", "type": {"type": "array", "items": "A"}}]},
            b"\x02" * MEGABYTE,
        ),
        "an array of nulls": lambda: extended(group, array, huge + b"\0"),
        "an array of nulls, counted below 0": lambda: extended(group, array, number(-(10**9)) + number(0) + b"\0"),
        "an array of empty records": lambda: extended(
            group, {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}, huge + b"\0"
        ),
        "an array of nothing fixed": lambda: extended(
            group, {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, huge + b"\0"
        ),
        "an array of wide records": lambda: extended(
            group, {"type": "array", "items": ["null", many_fields(500)]}, number(10**6) + b"\x02" * MEGABYTE + b"\0"
        ),
        "a map of nulls": lambda: extended(group, {"type": "map", "values": "null"}, huge + b"\0" * MEGABYTE),
        "arrays of arrays": lambda: extended(group, nested_arrays(25), b"\x02" * MEGABYTE),
        "arrays in arrays, too deep": lambda: extended(group, nested_arrays(400), b"\x02" * MEGABYTE),
        "twice as many each time": lambda: extended(group, doubled(40), b""),
        "more fields than anybody has": lambda: extended(group, many_fields(1500), b""),
        "a fixed without end": lambda: extended(group, {"type": "fixed", "name": "F", "size": 2**62}, b"abc"),
        "a fixed of less than nothing": lambda: extended(group, {"type": "fixed", "name": "F", "size": -1}, b"abc"),
        "a text without end": lambda: extended(group, "string", huge + b"abc"),
        "a text of less than nothing": lambda: extended(group, "string", most + b"abc"),
        "a union of nothing": lambda: extended(group, [], b"\0"),
        "a union of what is not there": lambda: extended(group, ["null"], huge),
        "a number without end": lambda: record(start_schema, bytes(16) + b"\x80" * MEGABYTE),
        "a number without end, of another schema": lambda: extended(group, "long", b"\xff" * MEGABYTE),
        "a schema without end": lambda: record(b"[" * 65_000, b"\0"),
        "a schema of open texts": lambda: record(b'"\\' * 32_000, b"\0"),
        "a decimal without end": lambda: record(decimal(10**9), written),
        "a decimal of a text": lambda: record(decimal("9"), written),
        "a name of half a character": lambda: record(
            json.dumps(decimal(9)).replace("ts_day", "\\ud800").encode(), written
        ),
        "assignments without end": lambda: record(complete_schema, complete[:-30] + huge + b"\0"),
        "a megabyte of empty assignments": lambda: record(
            complete_schema,
            bytes(16)
            + number(2)
            + number(0)
            + number(len(group))
            + group.encode()
            + bytes(16)
            + b"\x02"
            + number(240_000)
            + bytes(960_000)
            + b"\0",
        ),
        "a group of no text": lambda: record(start_schema, bytes(18) + number(4) + b"\xff\xfe\xfd\xfc" + bytes(16)),
        "a time of no calendar": lambda: record(start_schema, bytes(17) + number(2**62) + number(1) + b"g" + bytes(16)),
        "sixteen megabytes": lambda: golden_bytes("start_commit", "1.12.0") + bytes(16 * MEGABYTE),
    }


def zipped(raw: bytes) -> bytes:
    return b"z:" + base64.b64encode(zlib.compress(raw, 9))


def headers() -> dict[str, Callable[[], bytes]]:
    """Values of our header."""
    report = {"v": 1, "lane": "live", "kind": "report"}
    attempt = {"slice": str(UUID(int=1)), "attempt": str(UUID(int=2)), "window": str(UUID(int=3)), "spec": "s"}
    rest = {"bytes": 0, "ignored_fields": {}, "blocked": None, "failed": None, "tables": []}

    def report_of(spans: Any, counts: Any) -> bytes:
        return zipped(json.dumps({**report, "report": {**attempt, **rest, "spans": spans, "counts": counts}}).encode())

    spans = [["orders", "t", {"0": [0, 10]}]]
    many = [["orders", "t", {"0": list(range(499_000))}]]
    return {
        "60 MB of lists": lambda: zipped(b'{"v":1,"lane":"live","x":[' + b"[]," * 20_000_000 + b"[]]}"),
        "15 MB of lists": lambda: zipped(b'{"v":1,"lane":"live","x":[' + b"[]," * 5_000_000 + b"[]]}"),
        "60 MB of blanks": lambda: zipped(b'{"v":1,"lane":"live"' + b" " * 60_000_000 + b"}"),
        "nested": lambda: zipped(b'{"v":1,"lane":"live","x":' + b"[" * 5_000_000 + b"]" * 5_000_000 + b"}"),
        "nested, and small": lambda: b'{"v":1,"lane":"live","x":' + b"[" * 900 + b"]" * 900 + b"}",
        "texts that do not close": lambda: zipped(b'{"v":1,"lane":"live","x":"' + b'\\"' * 5_000_000),
        "a long header": lambda: b'{"v":1,"lane":"' + b"x" * MEGABYTE + b'"}',
        "a version without end": lambda: b'{"v":' + b"9" * 5_000 + b"}",
        "a later version": lambda: b'{"v":99,"lane":"live","kind":"report"}',
        "no number": lambda: b'{"v":NaN}',
        "negative counts": lambda: report_of(spans, [[20, -10, 0, 0, 0]]),
        "a range upside down": lambda: report_of([["orders", "t", {"0": [10, 0]}]], [[0, 0, 0, 0, 0]]),
        "a partition twice": lambda: report_of([["orders", "t", {"0": [0, 5], "00": [0, 5]}]], [[5, 0, 0, 0, 0]] * 2),
        "a partition in other digits": lambda: report_of([["orders", "t", {"\u0663": [0, 5]}]], [[5, 0, 0, 0, 0]]),
        "more bits than an offset": lambda: report_of([["orders", "t", {"0": [0, 2**64]}]], [[2**64, 0, 0, 0, 0]]),
        "half a million ranges": lambda: report_of(many, [[1, 0, 0, 0, 0]] * 249_500),
        "half a character": lambda: b'{"v":1,"lane":"live","kind":"failed","failed":"\\ud800","task_attempt":"1"}',
    }
