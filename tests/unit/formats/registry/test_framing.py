# SPDX-License-Identifier: Apache-2.0
"""Framing against Confluent's own, and what is said of values that are not framed."""

from __future__ import annotations

from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.formats.registry.framing import VALUE_HEADER, Framed, framed, with_header

GUID = UUID("01234567-89ab-cdef-0123-456789abcdef")


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1) | st.uuids(), st.binary(max_size=9)), max_size=30))
def test_what_confluents_client_frames_is_read_back(values: list[tuple[int | UUID, bytes]]) -> None:
    def frame(key: int | UUID) -> bytes:
        if isinstance(key, int):
            return SchemaId("AVRO", schema_id=key).id_to_bytes()
        return SchemaId("AVRO", guid=str(key)).guid_to_bytes()

    block = [frame(key) + payload for key, payload in values]
    groups, unframed = framed(block)
    assert unframed == {}
    back = {i: (group.key, block[i][group.start :]) for group in groups for i in group.positions}
    assert [back[i] for i in range(len(values))] == values
    assert len({group.key for group in groups}) == len(groups)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "the value is empty"),
        (b"\x00", "ends within the schema's id, after 1 bytes"),
        (b"\x00\x00\x00\x00", "after 4 bytes"),
        (b"\x01" + bytes(15), "after 16 bytes"),
        (b'{"id": 1}', "begins with byte 123, not with 0 or 1; it looks like JSON"),
        (b"Obj\x01\x04", "it looks like an Avro file"),
        (b"\x02abcdef", "begins with byte 2"),
        (b"\x00\x80\x00\x00\x00\x02", "names schema id 2147483648, but ids end at 2147483647"),
    ],
)
def test_a_value_that_is_not_framed_is_named_alone(value: bytes, message: str) -> None:
    good = bytes([0, 0, 0, 0, 7, 1])
    groups, unframed = framed([good, value, good])
    assert groups == [Framed(key=7, start=5, positions=[0, 2])]
    assert list(unframed) == [1]
    assert message in unframed[1]
    assert list(framed([value])[1]) == [0]


def test_a_header_comes_before_the_value() -> None:
    head = SchemaId("AVRO", guid=str(GUID)).guid_to_bytes()
    value = with_header(b"payload", [(VALUE_HEADER, b"older"), ("other", b"x"), (VALUE_HEADER, head)])
    assert framed([value])[0] == [Framed(key=GUID, start=17, positions=[0])]
    assert with_header(b"payload", None) == with_header(b"payload", [("other", b"x")]) == b"payload"
