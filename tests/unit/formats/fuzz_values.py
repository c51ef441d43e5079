# SPDX-License-Identifier: Apache-2.0
"""Values that were made to end the process that decodes them, in every format: the program that `test_fine_numbers.py`
runs, in a process of its own.

A crash of the interpreter, and any error but the one that an assertion raises, end it otherwise than with 0. So does
more memory or processor time than a block of such values may take.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decode_raw import TextDecoder
from airflow_provider_lakecommit.formats.decoder import Decoder, decoder_for
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.spark.record_parts import parts_of
from tests.support.avro_shapes import encoded
from tests.support.effort import examples
from tests.unit.control.read_hostile import capped

CAP = 1500 << 20
CPU_SECONDS = 240
STEADY = settings(
    derandomize=True, deadline=None, max_examples=examples(300), database=None, suppress_health_check=list(HealthCheck)
)
DECIMALS = ("decimal(18, 4)", "decimal(38, 38)", "decimal(38, 0)", "decimal(9, 2)")
SCALARS = (
    *DECIMALS,
    *("int", "long", "float", "double", "boolean", "string", "uuid"),
    *("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
)
DEEP = 2_000

POWERS = st.sampled_from(
    [0, 1, 19, 20, 38, 39, 40, 76, 77, 99, 999, 10**5, 10**7, 10**8, 999_999_999, 2**31 - 1, 2**31, 2**63, 10**30]
)
DIGITS = st.sampled_from(
    ["", "0", "1", "15", "9" * 38, "9" * 39, "9" * 77, "0" * 200 + "1", "0" * 100_000, "7" * 5_000]
)


@st.composite
def numbers(draw: st.DrawFn) -> str:
    """A number, or nearly one."""
    text = draw(st.sampled_from(["", "", "-", "+", " "])) + draw(DIGITS)
    text += "." + draw(DIGITS) if draw(st.booleans()) else ""
    if draw(st.booleans()):
        zeros = draw(st.sampled_from(["", "", "0", "0" * 30]))
        text += draw(st.sampled_from("eE")) + draw(st.sampled_from(["", "-", "-", "+"])) + zeros + str(draw(POWERS))
    return text


TEXTS = (
    numbers()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            *("NaN", "-Infinity", "999999999-01-01", "9999-12-31T23:59:59.999999999Z", "-290308-12-21T19:59:05Z"),
            *("0000-00-00", "2026-02-30", "24:00", "23:59:60", "1970-01-01T00:00:00+99:99", "9" * 1_000_000),
        ]
    )
)
ESCAPED = {"e": "\\u0065", "E": "\\u0045", "-": "\\u002d", ".": "\\u002E", "9": "\\u0039"}


def _escaped(text: str, letter: str) -> str:
    return json.dumps(text).replace(letter, ESCAPED[letter])


PARTS = (
    numbers()
    | TEXTS.map(json.dumps)
    | st.builds(_escaped, numbers(), st.sampled_from(sorted(ESCAPED)))
    | st.sampled_from(["null", "true", "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" * 100_000])
)
FINE = "1e-999999999"


def schema_of(kind: Any, **more: Any) -> Schema:
    return create_from_spec({"schema": [{"name": "c", "type": kind, **more}]})[0]


def check(decoder: Decoder, *values: bytes) -> None:
    """Each value alone and together with one that is well: a row or a reject."""
    for block in (values, (*values, *values)):
        found = decoder.decode(block)
        rows = range(found.table.num_rows) if found.records is None else found.records
        assert {*rows, *(r.index for r in found.rejects)} == set(range(len(block)))
        found.table.validate(full=True)
    decoder.close()


JSON_KINDS: tuple[Any, ...] = (
    *SCALARS,
    {"list": "decimal(18, 4)"},
    {"list": {"struct": [{"name": "d", "type": "decimal(38, 10)"}]}},
    {"map": {"key": "decimal(18, 4)", "value": "decimal(9, 2)"}},
    {"struct": [{"name": "d", "type": "decimal(18, 4)"}]},
)
SHAPES = (
    '{"c":%s}',
    '{"c":[%s]}',
    '{"c":{"d":%s}}',
    '{"c":[{"d":%s}]}',
    '{"c":{"1e-999999999":%s}}',
    '{"c":null,"x":%s}',
    '{"c":1,"c":%s}',
    '{"c":%s,"c":1}',
    '{}}{"r":{"c":%s}',
    '{}}\n{"r":{"c":%s}',
    '{"c":%s',
    "%s",
)


@STEADY
@given(st.sampled_from(JSON_KINDS), st.sampled_from(SHAPES), PARTS, st.sampled_from(["ignore", "dead_letter"]))
@example("decimal(18, 4)", '{"c":%s}', FINE, "ignore")
@example("decimal(18, 4)", '{"c":%s}', f'"{FINE}"', "ignore")
@example("decimal(18, 4)", '{"c":%s}', '"1\\u0065-999999999"', "ignore")
@example("decimal(18, 4)", '{"c":%s}', "1e-0000000000000000000000000999999999", "ignore")
@example("decimal(38, 38)", '{"c":%s}', "0e-2147483647", "ignore")
@example({"list": "decimal(18, 4)"}, '{"c":[%s]}', FINE, "dead_letter")
@example("decimal(18, 4)", '{}}{"r":{"c":%s}', FINE, "ignore")
@example({"map": {"key": "decimal(18, 4)", "value": "decimal(9, 2)"}}, '{"c":{"1e-999999999":%s}}', "1", "ignore")
def json_values(kind: Any, shape: str, part: str, unknown: str) -> None:
    value = (shape % part).encode(errors="surrogatepass")
    check(decoder_for(schema_of(kind), FormatOptions(unknown_fields=unknown)), value)


@STEADY
@given(st.sampled_from(SCALARS), TEXTS)
@example("decimal(18, 4)", FINE)
@example("decimal(38, 38)", "." + "0" * 37)
def texts_of_keys(kind: str, text: str) -> None:
    check(TextDecoder(schema_of(kind), FormatOptions(format="string")), text.encode(errors="surrogatepass"))


@STEADY
@given(st.sampled_from(JSON_KINDS), PARTS)
@example("decimal(18, 4)", FINE)
def json_keys(kind: Any, part: str) -> None:
    key = {"column": "c", "format": "json"}
    (found,) = parts_of(schema_of(kind), FormatOptions(), key, {})
    columns, _, _ = found.filled([part.encode(errors="surrogatepass")])
    columns["c"].validate(full=True)
    found.close()


@STEADY
@given(st.sampled_from(SCALARS), TEXTS)
@example("decimal(18, 4)", FINE)
def csv_fields(kind: str, text: str) -> None:
    options = FormatOptions(format="csv", csv={"columns": ["c"]})
    check(decoder_for(schema_of(kind), options), text.encode(errors="surrogatepass"))


@STEADY
@given(st.sampled_from(SCALARS), TEXTS)
@example("decimal(18, 4)", FINE)
def protobuf_texts(kind: str, text: str) -> None:
    octets = text.encode(errors="surrogatepass")
    length, size = b"", len(octets)
    while size >= 0x80:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    schema = 'syntax = "proto3"; message M { string c = 1; }'
    try:
        decoder = decoder_for(schema_of(kind), FormatOptions(format="protobuf", schema=schema, message="M"))
    except TableError:
        return
    check(decoder, b"\x0a" + length + bytes([size]) + octets)


WRITTEN: tuple[Any, ...] = (
    "string",
    *({"type": "bytes", "logicalType": "decimal", "precision": p, "scale": s} for p, s in ((9, 2), (38, 38), (60, 30))),
    *({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros", "nanos")),
    {"type": "int", "logicalType": "date"},
    "long",
    "double",
)


@STEADY
@given(st.sampled_from(WRITTEN), st.sampled_from(SCALARS), TEXTS, st.integers(-(2**63), 2**63 - 1), st.binary())
@example("string", "decimal(18, 4)", FINE, 0, b"")
def avro_values(written: Any, kind: str, text: str, number: int, octets: bytes) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": written}]}
    try:
        decoder = decoder_for(schema_of(kind), FormatOptions(format="avro", schema=json.dumps(schema)))
    except TableError:
        return
    made, whole = (
        encoded({**schema, "fields": [{"name": "c", "type": of}]}, {"c": value})
        for of, value in (("string", text.encode("utf-8", "replace").decode()), ("long", number))
    )
    for value in (made, whole, octets, made[:-1]):
        check(decoder, value)


STORIES = ("json_values", "texts_of_keys", "json_keys", "csv_fields", "protobuf_texts", "avro_values")


def main(arguments: Sequence[str]) -> int:
    """:param arguments: the name of one of the stories"""
    capped(CAP, CPU_SECONDS)
    globals()[arguments[0]]()
    return 0
