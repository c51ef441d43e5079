# SPDX-License-Identifier: Apache-2.0
"""Columns from keys and headers: each part of a record is read by its own format, and rejects its record by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DateType, IntegerType, LongType, MapType, NestedField, StringType, UUIDType

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.formats.decoder import Decoded, decoder_for
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.decoders import check_schema, filled_elsewhere
from airflow_provider_lakecommit.spark.key_columns import key_columns
from airflow_provider_lakecommit.spark.metadata import with_metadata
from tests.support.declared import landing_of
from tests.support.lines import LINES


@dataclass(frozen=True)
class Record:
    """A consumed message."""

    own_key: bytes | None
    own_headers: tuple[tuple[str, bytes | None], ...] = ()
    value: bytes = b"{}"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def key(self) -> bytes | None:
        return self.own_key

    def headers(self) -> Any:
        return list(self.own_headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 0, 0


def landing(**more: Any) -> Landing:
    return landing_of(name="t", topics="t", table="a.b", **more)


def decoded(of: Landing, schema: Schema, records: Sequence[Any]) -> Decoded:
    decoder = decoder_for(schema, of.format_options, filled_elsewhere(of))
    return key_columns(of, schema).added(decoder.decode([r.value for r in records]), records)


def of_keys(kind: Any, key: dict[str, Any], *keys: bytes | None, required: bool = False, **more: Any) -> Decoded:
    schema = Schema(NestedField(1, "k", kind, required=required), NestedField(2, "v", LongType()))
    return decoded(landing(key=key, **more), schema, [Record(k) for k in keys])


def test_a_key_is_read_as_its_columns_type() -> None:
    found = of_keys(LongType(), {"column": "k"}, b"17", None, b"x", b"\xff", b"-1")
    assert found.table["k"].to_pylist() == [17, None, -1]
    assert (found.records, found.table.column_names) == ([0, 1, 4], ["k", "v"])
    assert [(r.index, r.kind, r.column, r.reason) for r in found.rejects] == [
        (2, "wrong_key", "k", "key: column k is not a whole number"),
        (3, "wrong_key", "k", "key: the text is not valid UTF-8"),
    ]


def test_a_key_that_cannot_be_read_is_ignored_by_choice_and_counted() -> None:
    found = of_keys(LongType(), {"column": "k", "invalid": "ignore"}, b"17", b"x")
    assert (found.table["k"].to_pylist(), found.rejects) == ([17, None], ())
    assert found.ignored == Counter({"key (cannot be read)": 1})
    required = of_keys(LongType(), {"column": "k", "invalid": "ignore"}, b"17", b"x", None, required=True)
    assert [(r.index, r.kind) for r in required.rejects] == [(1, "missing_required"), (2, "missing_required")]


def test_raw_keys_are_bytes_and_rules_hold_for_keys() -> None:
    assert of_keys(BinaryType(), {"column": "k", "format": "raw"}, b"\xff\x00", b"").table["k"].to_pylist() == [
        b"\xff\x00",
        b"",
    ]
    dated = of_keys(DateType(), {"column": "k"}, b"20260131", timestamps={"k": "%Y%m%d"})
    assert dated.table["k"].to_pylist() == [date(2026, 1, 31)]


KEYS_AND_BYTES = [
    ("avro", {"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}, b"\x22"),
    ("protobuf", 'syntax = "proto3"; message K { int64 k = 1; }', b"\x08\x11"),
]


@pytest.mark.parametrize(("format", "stated", "octets"), KEYS_AND_BYTES)
def test_a_key_whose_schema_is_stated_needs_no_registry(format: str, stated: Any, octets: bytes) -> None:
    schema = Schema(NestedField(1, "k", LongType()), NestedField(2, "v", LongType()))
    of = landing(key={"format": format, "schema": stated, "columns": ["k"]})
    decoder = decoder_for(schema, of.format_options, filled_elsewhere(of))
    keys = key_columns(of, schema, {"bootstrap.servers": "nowhere:1"})
    found = keys.added(decoder.decode([b"{}", b"{}"]), [Record(octets), Record(None)])
    assert (found.table["k"].to_pylist(), found.rejects) == ([17, None], ())


def test_the_reader_schema_of_values_is_none_of_keys() -> None:
    schema = Schema(*(NestedField(n, name, LongType()) for n, name in enumerate("kvw", 1)))
    _, stated, octets = KEYS_AND_BYTES[0]
    of_value = {"type": "record", "name": "V", "fields": [{"name": "v", "type": "long", "default": 5}]}
    without = {"type": "record", "name": "V", "fields": [{"name": "w", "type": "long"}]}
    of = landing(
        format="avro",
        schema=without,
        reader_schema=of_value,
        key={"format": "avro", "schema": stated, "columns": ["k"]},
    )
    found = decoded(of, schema, [Record(octets, value=b"\x02")])
    assert found.table.to_pylist() == [{"k": 17, "v": 5, "w": 1}]


def test_a_json_key_is_one_value_whatever_it_tries_to_be() -> None:
    hostile = (
        b'"a"',
        b"null",
        b"",
        b'"a","k":"b"',
        b'"a"}\n{"k":"b"',
        b'1,"x":2',
        b"\xff",
        b'"a" ',
        b'{"k":1}',
        b'"a"//',
    )
    found = of_keys(StringType(), {"column": "k", "format": "json"}, *hostile)
    assert (found.table["k"].to_pylist(), found.records) == (["a", None, "a"], [0, 1, 7])
    assert {r.kind for r in found.rejects} == {"wrong_key"}
    maps = MapType(3, StringType(), 4, LongType())
    assert of_keys(maps, {"column": "k", "format": "json"}, b'{"a":1}').table["k"].to_pylist() == [[("a", 1)]]


def test_the_fields_of_a_key_fill_columns_by_name() -> None:
    schema = Schema(
        NestedField(1, "tenant", StringType(), required=True),
        NestedField(2, "day", DateType()),
        NestedField(3, "v", LongType()),
    )
    of = landing(key={"format": "json", "columns": {"tenant": "t", "day": "d"}}, timestamps={"day": "epoch_days"})
    records = [
        Record(b'{"t":"a","d":1,"more":2}', value=b'{"v":1,"tenant":"not from here"}'),
        Record(b'{"d":1}', value=b'{"v":2}'),
        Record(b"not", value=b'{"v":3}'),
        Record(b'{"t":"b"}', value=b'{"v":"x"}'),
        Record(b'{"t":"c"}', value=b'{"v":5}'),
    ]
    found = decoded(of, schema, records)
    assert found.table.to_pylist() == [
        {"tenant": "a", "day": date(1970, 1, 2), "v": 1},
        {"tenant": "c", "day": None, "v": 5},
    ]
    assert [(r.index, r.kind) for r in found.rejects] == [(1, "missing_required"), (2, "wrong_key"), (3, "wrong_value")]
    assert found.ignored == Counter({"key.more": 1})


def test_headers_fill_columns_and_the_last_of_several_counts() -> None:
    schema = Schema(
        NestedField(1, "a", IntegerType()), NestedField(2, "b", UUIDType()), NestedField(3, "v", LongType())
    )
    records = [
        Record(None, (("n", b"1"), ("n", b"2"), ("id", b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"))),
        Record(None, (("n", b"1"), ("n", None))),
        Record(None, ()),
        Record(None, (("n", b"x"),)),
    ]
    last = decoded(landing(headers={"a": "n", "b": {"name": "id"}}), schema, records)
    assert last.table["a"].to_pylist() == [2, None, None]
    assert [(r.index, r.kind, r.reason) for r in last.rejects] == [
        (3, "wrong_header", "header n: column a is not a whole number")
    ]
    first = {"name": "n", "repeated": "first", "invalid": "ignore"}
    found = decoded(landing(headers={"a": first, "b": "id"}), schema, records)
    assert found.table["a"].to_pylist() == [1, 1, None, None]
    assert found.ignored == Counter({"header n (cannot be read)": 1})


def test_rows_of_one_record_share_its_key_and_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_lakecommit.core.formats import FORMATS

    monkeypatch.setitem(FORMATS, "lines", LINES)
    schema = Schema(
        NestedField(1, "line", StringType(), required=True),
        NestedField(2, "k", LongType()),
        NestedField(3, "kafka_partition", IntegerType()),
        NestedField(4, "kafka_key", BinaryType()),
    )
    of = landing(format="lines", key={"column": "k"}, metadata_columns=True)
    records = [
        Record(b"1", value=b"a\nb"),
        Record(b"x", value=b"c\nd"),
        Record(b"3", value=b""),
        Record(None, value=b"e"),
    ]
    found = decoded(of, schema, records)
    assert found.records == [0, 0, 3]
    assert ([r.index for r in found.rejects], found.filtered) == ([1], [2])
    assert found.records is not None
    rows = with_metadata(found.table, schema, [records[i] for i in found.records], of.record_columns, 7)
    assert rows.select(["line", "k", "kafka_key"]).to_pylist() == [
        {"line": "a", "k": 1, "kafka_key": b"1"},
        {"line": "b", "k": 1, "kafka_key": b"1"},
        {"line": "e", "k": None, "kafka_key": None},
    ]


def test_a_raw_value_next_to_a_key_and_a_header() -> None:
    schema = Schema(
        NestedField(1, "k", LongType()), NestedField(2, "h", StringType()), NestedField(3, "v", BinaryType())
    )
    of = landing(format="raw", key={"column": "k"}, headers={"h": "h"})
    found = decoded(of, schema, [Record(b"1", (("h", b"x"),), b"\xff"), Record(b"", (), b"")])
    assert found.table.to_pylist() == [{"k": 1, "h": "x", "v": b"\xff"}]
    assert [r.index for r in found.rejects] == [1]


def test_a_table_that_lacks_a_column_is_reported() -> None:
    schema = Schema(NestedField(1, "v", LongType()))
    with pytest.raises(TableError, match="LC5031"):
        check_schema(landing(key={"column": "k"}), schema)
    text = Schema(*schema.fields, NestedField(2, "k", LongType()))
    with pytest.raises(TableError, match="LC4008"):
        check_schema(landing(key={"column": "k", "format": "raw"}), text)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"key": {"column": "k", "columns": ["a"]}}, "needs either `column`"),
        ({"key": {"format": "json"}}, "needs either `column`"),
        ({"key": {"format": "xml", "column": "k"}}, "format 'xml' is not one of string, json"),
        ({"key": {"columns": ["a"]}}, "a key of format string has no fields: give its `column`"),
        ({"key": {"column": "k", "invalid": "no"}}, "invalid 'no' is not one of reject, ignore"),
        ({"key": {"colum": "k"}}, "unknown key 'colum' (did you mean 'column'?)"),
        ({"key": "k"}, "'k' is not a mapping of"),
        ({"key": {"format": "json", "columns": {"a": 1}}}, "is not a list of names, or a mapping"),
        ({"headers": {"h": {"format": "raw"}}}, "h: needs the `name` of the header"),
        ({"headers": {"h": {"name": "h", "repeated": "both"}}}, "h: repeated 'both' is not one of last, first"),
        ({"headers": ["h"]}, "is not a mapping of columns to headers"),
        ({"headers": {"k": "h"}, "key": {"column": "k"}}, "column k is filled twice"),
        ({"headers": {"kafka_key": "h"}, "metadata_columns": True}, "column kafka_key is filled twice"),
        ({"csv": {"columns": ["a"]}}, "csv: needs `format: csv`"),
        ({"format": "csv"}, "csv: needs `columns`"),
        ({"format": "csv", "csv": {"columns": ["a", "a"]}}, "is not a list of different names"),
        ({"format": "csv", "csv": {"columns": ["a"], "delimiter": "||"}}, "is not one ASCII character"),
        ({"format": "csv", "csv": {"columns": ["a"], "quote": ","}}, "other than the delimiter"),
        ({"format": "csv", "csv": {"columns": ["a"], "rows": "some"}}, "rows 'some' is not one of one, many"),
        ({"format": "csv", "csv": {"columns": ["a"], "null_text": None}}, "null_text None is not a text"),
    ],
)
def test_what_is_wrong_with_a_section_is_reported_when_it_is_declared(more: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as raised:
        landing(**more)
    assert message in str(raised.value)
