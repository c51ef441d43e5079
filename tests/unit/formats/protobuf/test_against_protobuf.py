# SPDX-License-Identifier: Apache-2.0
"""The columnar way gives what Protobuf's own parser gives: schemas, messages and bytes are drawn, hostile ones too.

Three things are known to differ and are reported in the documentation: numbers of fields and lengths that take more
bytes than they need, which no encoder writes; entries of a map that hold something else too; and what is in fields that
the table lacks, which is not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from tests.support.effort import examples
from tests.support.messages import Unreadable, expected, filled, of_row, schemas, table_of

LONGER_THAN_NEEDED = re.compile(rb"[\x80-\xff]\x00|[\x80-\xff]{5}")
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@st.composite
def topics(draw: Callable[..., Any]) -> tuple[str, list[bytes]]:
    """A schema and values: messages, two of them run together, cut or changed ones, bytes of any kind."""
    schema = draw(schemas())
    kind = GetMessageClass(message_named(file_of(schema), ""))
    values = []
    for _ in range(draw(st.integers(1, 6))):
        value = filled(draw, kind()).SerializeToString()
        match draw(st.sampled_from(["whole", "whole", "joined", "cut", "changed", "any"])):
            case "joined":
                value += filled(draw, kind()).SerializeToString()
            case "cut":
                value = value[: draw(st.integers(0, len(value)))]
            case "changed" if value:
                at = draw(st.integers(0, len(value) - 1))
                value = value[:at] + draw(st.binary(min_size=1, max_size=2)) + value[at + 1 :]
            case "any":
                value = draw(st.binary(max_size=12))
        values.append(value)
    return schema, values


def is_distinct(kind: Any, value: bytes) -> bool:
    """Is the value none of what is known to be read otherwise?"""
    if LONGER_THAN_NEEDED.search(value):
        return False
    try:
        message = kind.FromString(value)
    except DecodeError:
        return True
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == size)


@settings(max_examples=examples(900), deadline=None, suppress_health_check=QUIET)
@given(topics())
def test_rows_are_what_protobufs_own_parser_reads(topic: tuple[str, list[bytes]]) -> None:
    schema, values = topic
    message = message_named(file_of(schema), "")
    kind = GetMessageClass(message)
    decoder = ProtobufDecoder(table_of(message), FormatOptions(format="protobuf", schema=schema))
    decoded = decoder.decode(values)
    records = range(len(values)) if decoded.records is None else decoded.records
    found = dict(zip(records, decoded.table.to_pylist(), strict=True))
    rejects = {r.index: r.kind for r in decoded.rejects}
    assert sorted([*found, *rejects]) == list(range(len(values)))
    decoded.table.validate(full=True)
    for i, value in enumerate(values):
        if not is_distinct(kind, value):
            continue
        try:
            row = expected(kind.FromString(value))
        except DecodeError:
            assert rejects.get(i) == "not_protobuf"
        except Unreadable:
            assert rejects.get(i) == "wrong_value"
        else:
            assert i in found, (value, decoded.rejects)
            assert repr(of_row(message, found[i])) == repr(row)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=QUIET)
@given(topics(), st.data())
def test_fields_that_the_table_lacks_change_no_other(topic: tuple[str, list[bytes]], data: st.DataObject) -> None:
    schema, values = topic
    message = message_named(file_of(schema), "")
    names = [f.name for f in message.fields]
    lacking = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    whole = ProtobufDecoder(table_of(message), FormatOptions(format="protobuf", schema=schema)).decode(values)
    part = ProtobufDecoder(table_of(message, lacking), FormatOptions(format="protobuf", schema=schema)).decode(values)
    of_whole = dict(zip(whole.records or range(len(values)), whole.table.to_pylist(), strict=False))
    of_part = dict(zip(part.records or range(len(values)), part.table.to_pylist(), strict=False))
    for i, row in of_whole.items():
        assert repr({k: v for k, v in row.items() if k not in lacking}) == repr(of_part[i])
    assert {path.partition(".")[0] for path in part.ignored} <= set(lacking)
