# SPDX-License-Identifier: Apache-2.0
"""Values as they are: into bytes, into text if they are text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, LongType, NestedField, StringType

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decode_raw import RawDecoder

RAW = FormatOptions(format="raw")
BYTES = Schema(NestedField(1, "payload", BinaryType(), required=True))
TEXT = Schema(NestedField(1, "payload", StringType(), required=True))


@given(st.lists(st.binary(max_size=20)))
def test_bytes_come_back_as_they_are(values: list[bytes]) -> None:
    decoded = RawDecoder(BYTES, RAW).decode(values)
    assert (decoded.table["payload"].to_pylist(), decoded.rejects, decoded.records) == (values, (), None)


@given(st.lists(st.one_of(st.binary(max_size=8), st.text(max_size=8).map(str.encode))))
def test_text_is_text_and_what_is_none_is_rejected_alone(values: list[bytes]) -> None:
    decoded = RawDecoder(TEXT, RAW).decode(values)
    bad = {r.index for r in decoded.rejects}
    good = [i for i in range(len(values)) if i not in bad]
    assert [values[i].decode() for i in good] == decoded.table["payload"].to_pylist()
    for i in bad:
        with pytest.raises(UnicodeDecodeError):
            values[i].decode()


def test_fixed_takes_exactly_its_length() -> None:
    decoded = RawDecoder(Schema(NestedField(1, "h", FixedType(2))), RAW).decode([b"ab", b"abc", b"", b"cd"])
    assert decoded.table["h"].to_pylist() == [b"ab", b"cd"]
    assert [(r.index, r.reason) for r in decoded.rejects] == [
        (1, "the value is 3 bytes, column h takes 2"),
        (2, "the value is 0 bytes, column h takes 2"),
    ]


def test_exactly_one_column_is_left_for_the_value() -> None:
    two = Schema(*BYTES.fields, NestedField(2, "other", LongType()))
    with pytest.raises(TableError, match="LC4007"):
        RawDecoder(two, RAW)
    assert RawDecoder(two, RAW, {"other"}).schema.names == ["payload"]
    with pytest.raises(TableError, match="LC4008"):
        RawDecoder(two, RAW, {"payload"})
    with pytest.raises(TableError, match="LC4007"):
        RawDecoder(BYTES, RAW, {"payload"})
