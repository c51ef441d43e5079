# SPDX-License-Identifier: Apache-2.0
"""Values that fail alike: named only where the parser, too, refuses each of them alone, for the same reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DecimalType, DoubleType, LongType, NestedField, StringType, StructType

from airflow_provider_lakecommit.formats import decoder
from airflow_provider_lakecommit.formats.alike import fail_alike
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.decoder import Refusal

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "site", StructType(NestedField(4, "floor", LongType()), NestedField(5, "open", BooleanType()))),
    NestedField(6, "temp", DecimalType(9, 3)),
    NestedField(7, "share", DoubleType()),
)
ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}), st.just("1.5")
)
RECORDS = st.one_of(
    st.fixed_dictionaries(
        {"id": ANY},
        optional={
            "name": ANY,
            "site": st.one_of(ANY, st.fixed_dictionaries({}, optional={"floor": ANY, "open": ANY})),
            "temp": ANY,
            "share": ANY,
        },
    ).map(lambda record: json.dumps(record).encode()),
    ANY.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=8),
    st.sampled_from(
        [b"", b"{", b'{"id": 1} x', b'{"id": 1}{"id": 2}', b"\xef\xbb\xbf{}", b'{"id":1,"id":"a"}', b"\xff"]
    ),
)


@given(values=st.lists(RECORDS, min_size=2, max_size=40))
def test_the_same_values_are_rejected_for_the_same_kind_as_one_by_one(values: list[bytes]) -> None:
    together = JsonDecoder(SCHEMA).decode(values)
    alone = {i: one.rejects[0] for i, v in enumerate(values) if (one := JsonDecoder(SCHEMA).decode([v])).rejects}
    assert [r.index for r in together.rejects] == sorted(alone)
    assert together.table.num_rows == len(values) - len(alone)
    good = [v for i, v in enumerate(values) if i not in alone]
    assert together.table.equals(JsonDecoder(SCHEMA).decode(good).table)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"id": "x"}, "column id is a string, not a number"),
        ({"site": {"floor": "x"}}, "column site.floor is a string, not a number"),
        (b"hello", "the value is not valid JSON: Expecting value"),
        (b"[1]", "the value is not a JSON object: it is an array, not an object"),
        (b"\xff\xf0", "the value is not valid UTF-8"),
    ],
)
def test_a_thousand_that_fail_alike_cost_a_few_passes(bad: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [bad if isinstance(bad, bytes) else json.dumps({"id": n, **bad}).encode() for n in range(1000)]
    values[500] = b'{"id": 500}'
    found, passes = JsonDecoder(SCHEMA), list[int]()
    whole = found._block

    def counted(block: Sequence[bytes]) -> decoder.Decoded:
        passes.append(len(block))
        return whole(block)

    monkeypatch.setattr(found, "_block", counted)
    decoded = found.decode(values)
    assert {r.reason for r in decoded.rejects} == {message}
    assert (len(decoded.rejects), decoded.records) == (999, [500])
    assert len(passes) <= 1000 // decoder.FAIL_ALIKE * 8


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            b"\x00\x00\x00\x00\x2a\x02a",
            "magic byte (schema 42): state `format: avro`, or `protobuf` if that schema is one",
        ),
        (b"\x00\x00\x00\x00\x2a\x00\x08\x01", "magic byte (schema 42): state `format: avro`, or `protobuf`"),
        (b'\x00\x00\x00\x00\x07{"id": 1}', "magic byte (schema 7): state `format: json_schema`"),
        (b"Obj\x01\x04\x14avro.codec", "it is an Avro file: write single Avro records, and state `format: avro`"),
        (gzip.compress(b'{"id": 1}', mtime=0), "it is gzip: leave compression to Kafka"),
        ('{"id": 1}'.encode("utf-16"), "it is UTF-16: write it as UTF-8"),
        (b'\xef\xbb\xbf{"id": 1}', "byte order mark"),
    ],
)
@pytest.mark.parametrize("times", [1, 300])
def test_what_a_value_is_that_is_no_json_is_distinguished_from_its_first_bytes(
    value: bytes, message: str, times: int
) -> None:
    reasons = {r.reason for r in JsonDecoder(SCHEMA).decode([value] * times).rejects}
    assert len(reasons) == 1
    assert message in reasons.pop()


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("wrong_value", None, "a number has too many decimals"),
        Refusal("wrong_value", "tags.element", "column tags.element is a number, not a string"),
        Refusal("missing_required", "id", "required column id is missing or null"),
        Refusal("unknown_field", "id is a string, not a number", "the table lacks the field"),
    ],
    ids=str,
)
def test_where_nothing_is_known_of_the_reason_none_is_named(refusal: Refusal) -> None:
    assert fail_alike([b'{"id": "x", "tags": [1]}'], refusal, {"id": ("id",)}) == {}
