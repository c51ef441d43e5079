# SPDX-License-Identifier: Apache-2.0
"""Random schemas, bodies and corruption, read with capped memory: the program that `test_hostile_records.py` runs.

A crash of the interpreter, a kill for memory or time, and any error but the one that parsing raises end it otherwise
than with 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.events import decode, encode, glance, head
from tests.support import hostile
from tests.support.effort import examples
from tests.support.golden_events import PAYLOADS, golden_bytes
from tests.unit.control.read_hostile import capped

CAP = 300 << 20
CPU_SECONDS = 240
STEADY = settings(
    derandomize=True, deadline=None, max_examples=examples(400), database=None, suppress_health_check=list(HealthCheck)
)
GOLDEN = [golden_bytes(name, release) for release in ("1.12.0", "1.10.1") for name in PAYLOADS]

NAMES = st.sampled_from(["A", "B", "C", "uuid_fixed", "Event", "org.apache.iceberg.connect.events.Event", "string", ""])
IDS = (
    st.none()
    | st.integers(-1, 2**33)
    | st.sampled_from([100, 102, 103, 108, 117, 10200, 10302, 10500, 10504, "x", 1.5])
)
SIZES = st.integers(-1, 40) | st.sampled_from([2**16, 2**31, 2**63, 10**30, None, "4"])
LEAVES = (
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum"])
    | NAMES
    | st.builds(lambda name, size: {"type": "fixed", "name": name, "size": size}, NAMES, SIZES)
)


def _record(name: str, fields: list[tuple[Any, Any]]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"n{i}", "type": kind, "field-id": place} for i, (kind, place) in enumerate(fields)],
    }


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda values: {"type": "map", "values": values}, inner)
        | st.builds(_record, NAMES, st.lists(st.tuples(inner, IDS), max_size=4))
        | st.builds(lambda kind: {"type": kind}, inner)
    ),
    max_leaves=12,
)
NUMBERS = st.integers(-(2**63), 2**63 - 1).map(hostile.number) | st.integers(-3, 9).map(hostile.number)
PARTS = st.sampled_from([b"\x80" * 20, b"\xff" * 12, b"\x02" * 5000, bytes(5000), b"\xff\xfe"])
BODIES = st.lists(NUMBERS | st.binary(max_size=20) | PARTS, max_size=12).map(b"".join)
PLACES = st.integers(0, 10**6)


def check(data: bytes) -> None:
    for read in (decode, head, glance):
        try:
            found = read(data)
        except ControlEventError as e:
            if "MemoryError" in str(e):
                raise AssertionError("what was caught at the cap would have taken all memory without one") from e
            continue
        if read is decode:
            repr(found)
            with suppress(ControlEventError):
                encode(found)  # type: ignore[arg-type]


@STEADY
@given(SCHEMAS, BODIES)
def any_novelty(schema: Any, body: bytes) -> None:
    check(hostile.extended("lakecommit-orders", schema, body))


@STEADY
@given(SCHEMAS, BODIES)
def any_schema(schema: Any, body: bytes) -> None:
    check(hostile.record(schema, body))


@STEADY
@given(st.sampled_from(GOLDEN), BODIES)
def any_body(event: bytes, body: bytes) -> None:
    schema, _ = hostile.split(event)
    check(hostile.record(schema, body))


@STEADY
@given(st.sampled_from(GOLDEN), st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=4))
def some_bytes_changed(event: bytes, changes: list[tuple[int, int]]) -> None:
    out = bytearray(event)
    for place, byte in changes:
        out[-1 - place % (len(out) if byte % 3 else 200) % len(out)] = byte
    check(bytes(out))


@STEADY
@given(st.sampled_from(GOLDEN), st.sampled_from(GOLDEN), PLACES, PLACES)
def spliced(one: bytes, other: bytes, begin: int, end: int) -> None:
    check(one[: begin % len(one)] + other[end % len(other) :])


def main(arguments: Sequence[str]) -> int:
    """:param arguments: the name of one of the stories"""
    capped(CAP, CPU_SECONDS)
    globals()[arguments[0]]()
    return 0
