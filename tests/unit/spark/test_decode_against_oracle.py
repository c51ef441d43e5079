# SPDX-License-Identifier: Apache-2.0
"""The decoder against :mod:`tests.unit.spark.oracle`: every value the same row, or refused by both."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from airflow_provider_lakecommit.spark.decode_json import JsonDecoder
from tests.unit.spark import oracle

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
DAMAGED = st.builds(
    lambda r, i, junk: r[: i % (len(r) + 1)] + junk + r[i % (len(r) + 1) :],
    RECORDS,
    st.integers(0, 400),
    st.text('{}[]",:nul1 \\', max_size=4),
)
VALUES = st.one_of(RECORDS, RECORDS, DAMAGED, JSON).map(str.encode) | st.binary(max_size=12)


def plain(value: Any, kind: pa.DataType) -> Any:
    """A decoded value in the oracle's terms."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: plain(value[f.name], f.type) for f in kind}
    if pa.types.is_list(kind):
        return [plain(v, kind.value_type) for v in value]
    return value


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with timestamps as microseconds, so that no time zone library is between us and the numbers."""

    def bare(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(f.name, bare(f.type)) for f in kind])
        if pa.types.is_list(kind):
            return pa.list_(bare(kind.value_type))
        return pa.int64() if pa.types.is_timestamp(kind) else kind

    target = pa.schema([pa.field(f.name, bare(f.type)) for f in table.schema])
    return [{f.name: plain(r[f.name], f.type) for f in target} for r in table.cast(target).to_pylist()]


def same(a: Any, b: Any) -> bool:
    """Equal, the sign of zero included."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and type(a) is type(b)


@settings(max_examples=400, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=25), st.sampled_from(["ignore", "dead_letter"]))
@example([b'{"city":[null,null]}', b"", b""], "ignore")
@example([b"null", b"{}null{}", b'{"id":1}}null{"r":{}'], "ignore")
@example([b'{"id":1},"ms":{}', b'{"x":1,"id":1},"ms":{}'], "ignore")
def test_every_value_is_the_oracles_row_or_is_refused_by_both(values: list[bytes], unknown: str) -> None:
    decoded = JsonDecoder(SCHEMA, RULES, unknown).decode(values)

    places = list(range(len(values))) if decoded.accepted is None else decoded.accepted
    rows = dict(zip(places, rows_of(decoded.table), strict=True))
    refused = {r.index: r for r in decoded.rejects}
    assert sorted([*rows, *refused]) == list(range(len(values)))
    for i, value in enumerate(values):
        if i in refused and HUGE.search(value) and "too big" in refused[i].reason:
            continue  # The parser refuses such numbers wherever they stand, zeros too: told, not rounded.
        wanted = oracle.row_or_none(SCHEMA, RULES, value, strict=unknown == "dead_letter")
        if wanted is None:
            assert i in refused, f"{value!r} became {rows[i]}"
        else:
            assert i in rows, f"{value!r} was refused ({refused[i].reason}), but is {wanted}"
            assert same(rows[i], wanted), value
