# SPDX-License-Identifier: Apache-2.0
"""The decoder against :mod:`tests.unit.formats.oracle`: every value the same row, or refused by both."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from tests.support.effort import examples
from tests.unit.formats import oracle

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", IntegerType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "ratio", DoubleType()),
    NestedField(5, "small", FloatType()),
    NestedField(6, "ok", BooleanType()),
    NestedField(7, "name", StringType()),
    NestedField(8, "at", TimestamptzType()),
    NestedField(9, "local", TimestampType()),
    NestedField(10, "ms", TimestamptzType()),
    NestedField(11, "on", DateType()),
    NestedField(
        12,
        "place",
        StructType(
            NestedField(13, "city", StringType(), required=True),
            NestedField(14, "seen", TimestamptzType()),
            NestedField(15, "marks", ListType(16, IntegerType(), element_required=True)),
        ),
    ),
    NestedField(
        17,
        "lines",
        ListType(
            18,
            StructType(NestedField(19, "cost", DecimalType(38, 10)), NestedField(20, "when", TimestamptzType())),
            element_required=False,
        ),
    ),
)
RULES = {"ms": "epoch_millis", "place.seen": "epoch_seconds", "lines.element.when": "epoch_micros"}

HUGE = re.compile(rb"[eE]\+?[2-9]\d\d|\d{300}")
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: str(d).lower().replace("e+", "e")),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "0",
            "-0",
            "-0.0",
            "1e2",
            "1E+2",
            "12.30",
            "12.345",
            "0.1",
            "9999999.99",
            "10000000",
            "1e7",
            "1e-2",
            "1e-3",
            "1e39",
            "9223372036854775807",
            "9223372036854775808",
            "2147483648",
            "1.7976931348623159e308",
            "1e400",
            "1e-400",
            "0e500",
            *(
                "1772324372685",
                "253402300800000",
                "-62135596800",
                "NaN",
                "Infinity",
                "-Infinity",
                "01",
                "+1",
                ".5",
                "5.",
            ),
            "99999999999999999999999999999.9999999999",
            "9999999999999999999999999999.99999999999",
        ]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=8),
    st.datetimes().map(lambda d: d.isoformat(timespec="microseconds")),
    st.datetimes(timezones=st.timezones()).map(lambda d: d.isoformat(sep=" ", timespec="seconds")[:25]),
    st.dates().map(str),
    st.decimals(-(10**8), 10**8, places=2).map(str),
    st.sampled_from(
        ["", "2026-02-30", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z", "} null", "1e2", "{", "\u0000"]
    ),
).map(json.dumps)
SCALARS = st.one_of(st.just("null"), st.sampled_from(["true", "false"]), NUMBERS, TEXTS)
NAMES = st.sampled_from(
    [f.name for f in SCHEMA.fields] + ["city", "seen", "marks", "cost", "when", "element", "ID", "x", ""]
)


def spaced(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text, f"{text} ", f"{text}\n", f" {text}\t"])


def objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.builds(lambda k, v: f"{json.dumps(k)}:{v}", NAMES, inner)
    return st.lists(member, max_size=6).map(lambda ms: "{" + ",".join(ms) + "}").flatmap(spaced)


JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(objects(inner), st.lists(inner, max_size=3).map(lambda v: f"[{','.join(v)}]")),
    max_leaves=8,
)

FITTING: dict[str, st.SearchStrategy[str]] = {
    "id": st.integers(0, 2**63 - 1).map(str),
    "n": st.one_of(st.integers(-(2**31), 2**31 - 1).map(str), NUMBERS),
    "price": st.one_of(st.decimals(-(10**7), 10**7, places=2).map(str), NUMBERS, TEXTS),
    "ratio": NUMBERS,
    "small": NUMBERS,
    "ok": st.sampled_from(["true", "false", "null"]),
    "name": TEXTS,
    "at": st.datetimes(timezones=st.just(oracle.UTC)).map(lambda d: json.dumps(d.isoformat(timespec="milliseconds"))),
    "local": st.datetimes().map(lambda d: json.dumps(d.isoformat(timespec="microseconds"))),
    "ms": st.integers(-(10**14), 3 * 10**14).map(str),
    "on": st.dates().map(lambda d: json.dumps(str(d))),
    "place": st.sampled_from(
        ['{"city":"Oslo","seen":5,"marks":[1,2]}', '{"city":"x"}', "{}", '{"city":null}', '{"city":"y","marks":[null]}']
    ),
    "lines": st.sampled_from(
        ["[]", "[null]", '[{"cost":1.0000000001,"when":1}]', '[{"cost":"0.1"},{"when":1.5}]', '[{"tip":1}]']
    ),
}
RECORDS = st.fixed_dictionaries({"id": FITTING["id"]}, optional={k: v for k, v in FITTING.items() if k != "id"}).map(
    lambda r: "{" + ",".join(f'"{k}":{v}' for k, v in r.items()) + "}"
)
CORRUPTED = st.builds(
    lambda r, i, junk: r[: i % (len(r) + 1)] + junk + r[i % (len(r) + 1) :],
    RECORDS,
    st.integers(0, 400),
    st.text('{}[]",:nul1 \\', max_size=4),
)
VALUES = st.one_of(RECORDS, RECORDS, CORRUPTED, JSON).map(str.encode) | st.binary(max_size=12)


def plain(value: pa.Scalar) -> Any:
    """A decoded value in the oracle's terms: timestamps as numbers, so that no time zone library is in between."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: plain(value[name]) for name in value}
    if isinstance(value, pa.MapScalar):
        return [(plain(pair["key"]), plain(pair["value"])) for pair in value.values]
    if isinstance(value, pa.ListScalar):
        return [plain(v) for v in value.values]
    return value.value if isinstance(value, pa.TimestampScalar) else value.as_py()


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    columns = {name: [plain(v) for v in table[name]] for name in table.column_names}
    return [{name: values[i] for name, values in columns.items()} for i in range(table.num_rows)]


def same(a: Any, b: Any) -> bool:
    """Equal, the sign of zero included."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and type(a) is type(b)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=25), st.sampled_from(["ignore", "dead_letter"]))
@example([b'{"city":[null,null]}', b"", b""], "ignore")
@example([b"null", b"{}null{}", b'{"id":1}}null{"r":{}'], "ignore")
@example([b'{"id":1},"ms":{}', b'{"x":1,"id":1},"ms":{}'], "ignore")
def test_every_value_is_the_oracles_row_or_is_refused_by_both(values: list[bytes], unknown: str) -> None:
    check(SCHEMA, RULES, {}, values, unknown)


def check(schema: Schema, rules: dict[str, str], encodings: dict[str, str], values: list[bytes], unknown: str) -> None:
    decoded = JsonDecoder(
        schema, FormatOptions(timestamps=rules, encodings=encodings or {}, unknown_fields=unknown)
    ).decode(values)

    decoded.table.validate(full=True)
    places = list(range(len(values))) if decoded.records is None else decoded.records
    rows = dict(zip(places, rows_of(decoded.table), strict=True))
    refused = {r.index: r for r in decoded.rejects}
    assert sorted([*rows, *refused]) == list(range(len(values)))
    for i, value in enumerate(values):
        if i in refused and HUGE.search(value) and "too big" in refused[i].reason:
            continue  # The parser refuses such numbers wherever they stand, zeros too: told, not rounded.
        expected = oracle.row_or_none(schema, rules | encodings, value, strict=unknown == "dead_letter")
        if expected is None:
            assert i in refused, f"{value!r} became {rows[i]}"
        else:
            assert i in rows, f"{value!r} was refused ({refused[i].reason}), but is {expected}"
            assert same(rows[i], expected), value


IN_MAP = StructType(
    NestedField(60, "n", LongType(), required=True),
    NestedField(61, "more", MapType(62, DateType(), 63, ListType(64, UUIDType(), False), value_required=True)),
)
WIDE = Schema(
    NestedField(1, "uuid", UUIDType()),
    NestedField(2, "time", TimeType()),
    NestedField(3, "time_ms", TimeType()),
    NestedField(4, "time_ns", TimeType()),
    NestedField(5, "days", DateType()),
    NestedField(6, "ns", TimestampNanoType()),
    NestedField(7, "tz_ns", TimestamptzNanoType()),
    NestedField(8, "epoch_ns", TimestamptzNanoType()),
    NestedField(9, "micros_of_ns", TimestampType()),
    NestedField(10, "millis_of_ns", TimestampNanoType()),
    NestedField(11, "b64", BinaryType()),
    NestedField(12, "url", BinaryType()),
    NestedField(13, "hex", FixedType(3)),
    NestedField(14, "utf8", FixedType(2)),
    NestedField(20, "attrs", MapType(21, StringType(), 22, DoubleType(), value_required=False)),
    NestedField(23, "needed", MapType(24, LongType(), 25, DecimalType(9, 2), value_required=True)),
    NestedField(26, "by", MapType(27, StringType(), 28, IN_MAP, value_required=False)),
    NestedField(29, "odd", MapType(30, TimestampType(), 31, BooleanType(), value_required=False)),
    NestedField(32, "truths", MapType(33, BooleanType(), 34, StringType(), value_required=False)),
    NestedField(35, "prices", MapType(36, DecimalType(5, 2), 37, BinaryType(), value_required=False)),
    NestedField(38, "ids", MapType(39, UUIDType(), 40, TimeType(), value_required=False)),
    NestedField(
        41,
        "box",
        StructType(
            NestedField(
                42,
                "all",
                ListType(
                    43, MapType(44, StringType(), 45, MapType(46, IntegerType(), 47, LongType(), False), False), True
                ),
            ),
            NestedField(48, "plain", IntegerType()),
        ),
    ),
)
WIDE_RULES = {
    "time_ms": "millis_of_day",
    "time_ns": "nanos_of_day",
    "days": "epoch_days",
    "epoch_ns": "epoch_nanos",
    "micros_of_ns": "epoch_nanos",
    "millis_of_ns": "epoch_millis",
    "odd.key": "epoch_seconds",
}
WIDE_ENCODINGS = {"b64": "base64", "url": "base64url", "hex": "hex", "utf8": "utf8", "prices.value": "hex"}

UUIDS = st.uuids().map(str) | st.sampled_from(
    [
        "0000000A-0000-0000-0000-00000000000a",
        "{0000000a-0000-0000-0000-00000000000a}",
        "0000000a00000000000000000000000a",
        "urn:uuid:0000000a-0000-0000-0000-00000000000a",
        "0000000a-0000-0000-0000-00000000000g",
        "0000000a-0000-0000-0000-00000000000",
        "0000000a-0000-0000-0000-00000000000\n",
    ]
)
CLOCKS = st.times().map(lambda t: t.isoformat(timespec="microseconds")) | st.sampled_from(
    [
        *("12:30", "12:60", "24:00", "23:59:60", "12:30Z", "12:30+01:00", "1:30", "12:30:15.", "12:30:15.1234567"),
        *("T12:30", "12:30:15.5", "-12:30", "12:30:15,5", "123015", " 12:30", "12:30\n", "\u0661\u0662:30", "12"),
    ]
)
MOMENTS = st.builds(
    lambda d, f, z: d.isoformat(timespec="seconds") + f + z,
    st.datetimes(),
    st.sampled_from(["", ".1", ".123456789", ".000000001", ".1234567891", "."]),
    st.sampled_from(["", "Z", "+05:30"]),
) | st.sampled_from(
    [
        "1677-09-21T00:12:43.145224193",
        "1677-09-21T00:12:44",
        "2262-04-11T23:47:16.854775807Z",
        "2262-04-11T23:47:16.854775808",
        *("0000-01-01T00:00:00", "10000-01-01T00:00:00Z", "2026-06-30T23:59:60Z", "2026-01-01T24:00:01"),
    ]
)
OCTETS = st.binary(max_size=4).flatmap(
    lambda b: st.sampled_from(
        [base64.b64encode(b).decode(), base64.urlsafe_b64encode(b).decode().rstrip("="), b.hex(), b.hex().upper()]
    )
) | st.sampled_from(["abc", "YQ=", "YR==", "YQ==\n", "Y Q=", "0a 0b", "0x0a", "\u00fc", "ab", "-_8", "+/8="])
WORDS = st.one_of(UUIDS, CLOCKS, MOMENTS, OCTETS, st.dates().map(str), st.text(max_size=4))
KEYS = st.one_of(
    WORDS,
    st.integers(-(2**31) - 2, 2**63).map(str),
    st.sampled_from(
        ["1", "01", "+1", "-0", "0", "1.0", "1.00", "1e0", "1e2", " 1", "true", "True", "null", "NaN", "a", ""]
    ),
)
ESCAPED = KEYS.map(json.dumps) | st.sampled_from(['"\\u0061"', '"\\ud800"', '"\\u0031"', '"a\\"b"', '"\\\\"', '"{[,:"'])


def maps(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.builds(lambda k, v: f"{k}:{v}", ESCAPED, inner), max_size=3).map(
        lambda m: "{" + ",".join(m) + "}"
    )


ANY = st.one_of(SCALARS, WORDS.map(json.dumps), st.integers(-(2**63), 2**64).map(str))
FITTING_MAPS = {
    "attrs": maps(NUMBERS | st.just("null")),
    "needed": st.dictionaries(st.integers(-(2**63), 2**63).map(str), st.decimals(-1000, 1000, places=2).map(str)).map(
        lambda d: json.dumps(d).replace(': "', ": ").replace('",', ",").replace('"}', "}")
    ),
    "by": st.sampled_from(
        [
            '{"a":{"n":1,"more":{"2026-01-01":["0000000a-0000-0000-0000-00000000000a",null],"2026-01-02":[]}},"b":null}',
            '{"a":{"more":{}}}',
            '{"a":{"n":1,"more":{"2026-01-01":null}}}',
            '{"a":{"n":1,"more":{"2026-02-30":[]}}}',
            '{"a":{"n":1,"x":{"deep":[[[[1]]]]}},"b":{"n":2,"x":"text"}}',
            ' { "a" : { "n" : 1 , "n" : 2 } } ',
            '{"\\u0061":{"n":1},"a":{"n":1}}',
        ]
    ),
    "odd": st.dictionaries(st.integers(-(10**11), 3 * 10**11).map(str), st.booleans() | st.none()).map(json.dumps),
    "truths": st.sampled_from(['{"true":"a","false":null}', '{"true":"a","true":"b"}', '{"TRUE":"a"}', "{}"]),
    "prices": st.sampled_from(['{"1.50":"00ff","-0.01":""}', '{"1.5":"","1.50":""}', '{"1.505":""}', '{"1":"0"}']),
    "ids": st.dictionaries(st.uuids().map(str), CLOCKS).map(json.dumps),
    "box": st.sampled_from(
        [
            '{"all":[{"a":{"1":2,"-1":null},"b":{}},{}],"plain":1}',
            '{"plain":1,"all":[]}',
            '{"all":[null]}',
            '{"all":[{"a":null}, {"b" : {"1":1} }]}',
            '{"all":[{"a":{"1":1,"1":2}}]}',
            '{"all":[[{"key":"a","value":[]}]]}',
            '{"all":{}}',
            "[]",
            "null",
            '{"x":1,"all":[{"a":{"1":1}}]}',
        ]
    ),
}
FITTING_WIDE: dict[str, st.SearchStrategy[str]] = {
    "uuid": UUIDS.map(json.dumps),
    "time": CLOCKS.map(json.dumps),
    "time_ms": st.integers(-1, 86_400_000).map(str),
    "time_ns": st.integers(-1, 86_400_000_000).map(lambda n: f"{n}000") | st.just("1001"),
    "days": st.integers(-800_000, 3_000_000).map(str),
    "ns": MOMENTS.map(json.dumps),
    "tz_ns": MOMENTS.map(json.dumps),
    "epoch_ns": st.integers(-(2**63) - 1, 2**63).map(str),
    "micros_of_ns": st.integers(-(2**53), 2**53).map(lambda n: f"{n}000") | st.sampled_from(["1", "-999", "-1000"]),
    "millis_of_ns": st.integers(-(10**13), 10**13).map(str),
    **dict.fromkeys(["b64", "url", "hex", "utf8"], OCTETS.map(json.dumps)),
    **FITTING_MAPS,
}
PAIRS_FORM = '[{"key":"a","value":1}]'
WIDE_RECORDS = st.lists(st.sampled_from(sorted(FITTING_WIDE)), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*(FITTING_WIDE[n] for n in names)).map(
        lambda texts: "{" + ",".join(f'"{n}":{t}' for n, t in zip(names, texts, strict=True)) + "}"
    )
)
HOSTILE = st.builds(
    lambda name, text, space: f'{{{space}"{name}"{space}:{space}{text}{space}}}{space}',
    st.sampled_from(sorted(FITTING_WIDE)),
    st.one_of(ANY, maps(ANY), maps(maps(ANY)), st.just(PAIRS_FORM)),
    st.sampled_from(["", " ", "\r\n\t"]),
)
WIDE_CORRUPTED = st.builds(
    lambda r, i, junk: r[: i % (len(r) + 1)] + junk + r[i % (len(r) + 1) :],
    WIDE_RECORDS,
    st.integers(0, 400),
    st.text('{}[]",:nul1 \\', max_size=3),
)
WIDE_VALUES = st.one_of(WIDE_RECORDS, WIDE_RECORDS, HOSTILE, WIDE_CORRUPTED).map(lambda t: t.encode(errors="replace"))


@settings(max_examples=examples(250), deadline=None)
@given(
    st.lists(WIDE_VALUES | st.binary(max_size=6), min_size=1, max_size=12), st.sampled_from(["ignore", "dead_letter"])
)
@example([b'{"attrs":[{"key":"a","value":1}]}', b'{"attrs":{"a":1}}', b"null", b""], "ignore")
@example([b'{"attrs":{"a":1}}null{"r":{"attrs":{}}}', b'{"attrs":{"a":1}},"attrs":{}'], "ignore")
@example(
    [b'{"attrs":{"a":1 2}}', b'{"attrs":{"a":[1}}}', b'{"attrs":{"a":}}', b'{"attrs":{,}}', b'{"attrs":{"a":1},}'],
    "ignore",
)
@example([b'{"\\u0061ttrs":{"a":1}}', b'{"attrs":{"a":1},"\\u0061ttrs":{}}'], "dead_letter")
@example([b'{"by":{"a":{"n":1,"x":1}}}', b'{"by":{"a":{"n":1}}}'], "dead_letter")
def test_every_type_is_read_as_the_oracle_reads_it(values: list[bytes], unknown: str) -> None:
    check(WIDE, WIDE_RULES, WIDE_ENCODINGS, values, unknown)
