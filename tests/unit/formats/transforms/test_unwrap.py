# SPDX-License-Identifier: Apache-2.0
"""Debezium's envelopes: each change is one row with what the envelope says of it, whatever else a topic holds."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.formats.transforms.router import Block
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.landing.registry import PREFIX
from airflow_provider_lakecommit.spark.decoders import block_decoder
from tests.fakes.registry import FakeRegistry
from tests.support.declared import landing_of

ROW = [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]
CHANGE = [
    {"name": "_op", "type": "string"},
    {"name": "_is_deleted", "type": "boolean", "required": True},
    {"name": "_source_time", "type": "timestamptz"},
    {"name": "_snapshot", "type": "string"},
    {"name": "_transaction_id", "type": "string"},
    {"name": "_transaction_order", "type": "long"},
    {"name": "_lsn", "type": "long"},
]
UNWRAP = {"envelope": "debezium", "columns": {"_lsn": "source.lsn"}}
SOURCE = {"version": "3.0", "name": "shop", "ts_ms": 1767323045006, "snapshot": "false", "table": "orders", "lsn": 7}


def schema_of(columns: Sequence[dict[str, Any]]) -> Schema:
    return create_from_spec({"schema": columns})[0]


def unwrapped(
    values: Sequence[Any], columns: Sequence[dict[str, Any]] = (*ROW, *CHANGE), wrapped: bool = False, **more: Any
) -> Block:
    landing = landing_of(**{"name": "a", "topics": "a", "table": "s.t", "unwrap": UNWRAP, **more})
    decoder = block_decoder(landing, {"s.t": schema_of(columns)})
    outer = [{"schema": {"type": "struct", "fields": []}, "payload": v} if wrapped else v for v in values]
    block = decoder.decode([json.dumps(v).encode() for v in outer])
    decoder.close()
    return block


def rows(block: Block) -> list[dict[str, Any]]:
    (decoded,) = block.tables.values()
    return decoded.table.to_pylist()


def change(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": 1, "source": SOURCE, "transaction": None, **more}


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_change_is_a_row_with_what_the_envelope_reports(wrapped: bool) -> None:
    order = {"id": "tx1", "total_order": 3, "data_collection_order": 1}
    block = unwrapped(
        [
            change("r", None, {"id": 1, "name": "a"}, source={**SOURCE, "snapshot": "last"}),
            change("c", None, {"id": 2, "name": "b"}, transaction=order),
            change("u", {"id": 1, "name": "a"}, {"id": 1, "name": "c"}),
            change("d", {"id": 2, "name": "b"}, None, source={**SOURCE, "lsn": 9}),
        ],
        wrapped=wrapped,
    )
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)
    same = {"_is_deleted": False, "_source_time": at, "_snapshot": "false", "_lsn": 7}
    none = {"_transaction_id": None, "_transaction_order": None}
    assert rows(block) == [
        {"id": 1, "name": "a", "_op": "r", **same, **none, "_snapshot": "last"},
        {"id": 2, "name": "b", "_op": "c", **same, "_transaction_id": "tx1", "_transaction_order": 3},
        {"id": 1, "name": "c", "_op": "u", **same, **none},
        {"id": 2, "name": "b", "_op": "d", **same, **none, "_is_deleted": True, "_lsn": 9},
    ]
    assert (block.rejects, list(block.filtered), dict(block.ignored)) == ((), [], {})


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("value", "kind", "reason"),
    [
        (change("t", None, None), "truncated", "the source's table was truncated"),
        (change("m", None, None, message={"prefix": "a"}), "no_change", "a message in the source's"),
        ({"ts_ms": 1767323045006}, "no_change", "it has no `op`, like heartbeats"),
        ({"status": "BEGIN", "id": "571", "ts_ms": 1}, "no_change", "the begin or end of a transaction"),
        ({"source": SOURCE, "databaseName": "shop", "ddl": "create table t (a int)"}, "no_change", "a schema change"),
        ({"id": 1, "name": "a"}, "no_change", "rows that are already unwrapped"),
        (change("x", None, {"id": 1}), "no_change", "the unknown op 'x'"),
        (change("u", {"id": 1}, None), "no_change", "op u has no `after`"),
        (change("d", None, None), "no_change", "REPLICA IDENTITY"),
        (change("d", {"name": "x"}, None), "missing_required", "required column id"),
        (change("c", None, {"id": "x"}), "wrong_value", "id"),
        (change("c", None, 7), "wrong_value", "after"),
    ],
)
def test_what_is_no_change_of_a_row_is_named_and_costs_itself(
    value: dict[str, Any], kind: str, reason: str, wrapped: bool
) -> None:
    good = change("c", None, {"id": 5, "name": "ok"})
    block = unwrapped([good, value, good], wrapped=wrapped)
    assert [row["id"] for row in rows(block)] == [5, 5]
    (reject,) = block.rejects
    assert (reject.index, reject.kind) == (1, kind)
    assert reason in reject.reason
    alone = unwrapped([value], wrapped=wrapped)
    assert (rows(alone), [r.kind for r in alone.rejects]) == ([], [kind])


def test_fields_of_rows_that_the_table_lacks_are_counted_and_those_of_envelopes_are_not() -> None:
    values = [change("u", {"id": 1, "new": 1}, {"id": 1, "new": 1}), change("c", None, {"id": 2, "deep": {"a": 1}})]
    assert set(unwrapped(values).ignored) <= {"new", "deep", "deep.a"}
    assert unwrapped(values).ignored["new"] == 1


def digits(number: int) -> str:
    """As Kafka Connect writes a decimal."""
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


TYPES = {
    "ms": ("timestamp", "epoch_millis", 1767323045006, datetime(2026, 1, 2, 3, 4, 5, 6000)),
    "us": ("timestamp", "epoch_micros", 1767323045000006, datetime(2026, 1, 2, 3, 4, 5, 6)),
    "ns": ("timestamp", "epoch_nanos", 1767323045000006000, datetime(2026, 1, 2, 3, 4, 5, 6)),
    "zoned": ("timestamptz", None, "2026-01-02T05:04:05.000006+02:00", datetime(2026, 1, 2, 3, 4, 5, 6, UTC)),
    "day": ("date", "epoch_days", 20455, date(2026, 1, 2)),
    "t_ms": ("time", "millis_of_day", 3723004, time(1, 2, 3, 4000)),
    "t_us": ("time", "micros_of_day", 3723000004, time(1, 2, 3, 4)),
    "t_ns": ("time", "nanos_of_day", 3723000004000, time(1, 2, 3, 4)),
    "precise": ("decimal(12, 2)", "base64", digits(-123456), Decimal("-1234.56")),
    "wide": ("decimal(38, 10)", "base64", digits(10**38 - 1), Decimal("9999999999999999999999999999.9999999999")),
    "text": ("decimal(12, 2)", None, "1234.56", Decimal("1234.56")),
    "number": ("decimal(12, 2)", None, 12.5, Decimal("12.50")),
    "octets": ("binary", "base64", "AAEC", b"\0\1\2"),
    "uid": ("uuid", None, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
    "tags": ("list<string>", None, ["a", None], ["a", None]),
    "flag": ("boolean", None, True, True),
}


@pytest.mark.parametrize("wrapped", [False, True])
def test_every_type_that_debezium_writes_has_its_rule(wrapped: bool) -> None:
    columns = [{"name": n, "type": kind} for n, (kind, *_) in TYPES.items()]
    rules = {n: rule for n, (_, rule, *_) in TYPES.items() if rule is not None}
    encodings = {n: rule for n, rule in rules.items() if rule == "base64"}
    given = {n: value for n, (_, _, value, _) in TYPES.items()}
    expected = {n: expected_value for n, (*_, expected_value) in TYPES.items()}
    block = unwrapped(
        [change("c", None, given), change("d", given, None), change("c", None, dict.fromkeys(given))],
        columns,
        wrapped,
        timestamps={n: rule for n, rule in rules.items() if n not in encodings},
        encodings=encodings,
    )
    assert block.rejects == ()
    assert rows(block) == [expected, expected, dict.fromkeys(expected)]


@pytest.mark.parametrize("text", [digits(10**12), "not base64", "AB=="])
def test_a_decimal_that_does_not_fit_is_rejected(text: str) -> None:
    columns = [{"name": "amount", "type": "decimal(12, 2)"}]
    block = unwrapped([change("c", None, {"amount": text})], columns, encodings={"amount": "base64"})
    assert [(r.kind, r.column is not None) for r in block.rejects] == [("wrong_value", True)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_row_was_keeps_out_nothing_that_it_became(wrapped: bool) -> None:
    never, micros = 9223372036825200000, 1767323045000006
    values = [
        change("c", None, {"id": 0, "seen": never}),
        change("u", {"id": 1, "seen": never}, {"id": 1, "seen": micros, "more": 1}),
        change("d", {"id": 2, "seen": micros}, None),
        change("d", {"id": 3, "seen": never}, None),
        change("u", {"id": 4, "seen": never}, {"id": "x", "seen": micros}),
        change("u", {"id": "x", "seen": 1}, None),
        change("u", {"id": 6, "seen": micros}, {"id": 6, "seen": None}),
    ]
    landing = landing_of(name="a", topics="a", table="s.t", unwrap=UNWRAP, timestamps={"seen": "epoch_micros"})
    columns = [*ROW, {"name": "seen", "type": "timestamp"}, {"name": "_op", "type": "string"}]
    decoder = block_decoder(landing, {"s.t": schema_of(columns)})
    block = decoder.decode([json.dumps({"schema": {}, "payload": v} if wrapped else v).encode() for v in values])
    decoder.close()
    assert [(r["id"], r["_op"], r["seen"]) for r in rows(block)] == [
        (1, "u", datetime(2026, 1, 2, 3, 4, 5, 6)),
        (2, "d", datetime(2026, 1, 2, 3, 4, 5, 6)),
        (6, "u", None),
    ]
    assert block.tables["s.t"].records == [1, 2, 6]
    rejects = [(r.index, r.column, r.reason.rpartition(": ")[0] or r.reason) for r in block.rejects]
    prefix = "payload." if wrapped else ""
    assert rejects[:2] == [(0, "seen", f"column {prefix}after.seen"), (3, "seen", f"column {prefix}before.seen")]
    assert [(index, column) for index, column, _ in rejects[2:]] == [(4, "id"), (5, "id")]
    assert "after.id" in rejects[2][2]
    assert "before.id" in rejects[3][2]
    assert block.ignored == {"more": 1}


ENVELOPE: dict[str, Any] = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "name", "type": ["null", "string"]},
                        {
                            "name": "credit",
                            "type": {
                                "type": "bytes",
                                "logicalType": "decimal",
                                "precision": 12,
                                "scale": 2,
                                "connect.name": "org.apache.kafka.connect.data.Decimal",
                            },
                        },
                        {"name": "seen", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
                        {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}},
                        {"name": "more", "type": "int"},
                    ],
                },
            ],
        },
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "ts_ms", "type": "long"},
                    {"name": "snapshot", "type": ["null", {"type": "string", "connect.name": "io.debezium.data.Enum"}]},
                    {"name": "lsn", "type": ["null", "long"]},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ],
}
TYPED = [
    *ROW,
    {"name": "credit", "type": "decimal(12, 2)"},
    {"name": "seen", "type": "timestamp"},
    {"name": "day", "type": "date"},
    *(c for c in CHANGE if not c["name"].startswith("_transaction")),
]
RULES = {"timestamps": {"seen": "epoch_micros", "day": "epoch_days"}}


@pytest.mark.parametrize("format", ["avro", "json_schema"])
def test_values_framed_for_a_registry_are_unwrapped_too(format: str) -> None:
    source = {"ts_ms": 1767323045006, "snapshot": "false", "lsn": 7}
    plain = {"id": 1, "name": "a", "seen": 1767323045000006, "day": 20455, "more": 1}
    image = {**plain, "credit": Decimal("-12.34") if format == "avro" else digits(-1234)}
    changes: list[dict[str, Any]] = [
        {"before": None, "after": image, "source": source, "op": "c", "ts_ms": 1},
        {"before": image, "after": {**image, "name": None}, "source": source, "op": "u", "ts_ms": None},
        {"before": image, "after": None, "source": source, "op": "d", "ts_ms": 1},
        {"before": None, "after": None, "source": source, "op": "t", "ts_ms": 1},
    ]
    registry = FakeRegistry()
    if format == "avro":
        number, parsed = registry.register("s-value", ENVELOPE), fastavro.parse_schema(ENVELOPE)
        values = [avro_octets(parsed, each) for each in changes]
    else:
        number = registry.register("s-value", {"type": "object"}, "JSON")
        values = [json.dumps(each).encode() for each in changes]
    more = {} if format == "avro" else {"encodings": {"credit": "base64"}}
    landing = landing_of(name="a", topics="a", table="s.t", unwrap=UNWRAP, format=format, **RULES, **more)
    with registry.running():
        decoder = block_decoder(landing, {"s.t": schema_of(TYPED)}, {f"{PREFIX}url": registry.url})
        framed = [b"\0" + struct.pack(">I", number) + value for value in values]
        block = decoder.decode([*framed, b"not framed"])
        decoder.close()
    row = {"id": 1, "credit": Decimal("-12.34"), "seen": datetime(2026, 1, 2, 3, 4, 5, 6), "day": date(2026, 1, 2)}
    known = {"_source_time": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), "_snapshot": "false", "_lsn": 7}
    assert rows(block) == [
        {**row, **known, "name": "a", "_op": "c", "_is_deleted": False},
        {**row, **known, "name": None, "_op": "u", "_is_deleted": False},
        {**row, **known, "name": "a", "_op": "d", "_is_deleted": True},
    ]
    assert [(r.index, r.kind) for r in block.rejects] == [(3, "truncated"), (4, "not_framed")]


def avro_octets(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("field", ["name", "source.table"])
def test_changes_are_routed_by_a_field_of_the_row_or_of_the_envelope(field: str, wrapped: bool) -> None:
    def of(kind: str) -> dict[str, Any]:
        return {"source": {**SOURCE, "table": kind}}

    values = [
        change("c", None, {"id": 1, "name": "one"}, **of("one")),
        change("d", {"id": 2, "name": "two"}, None, **of("two")),
        change("u", {"id": 3, "name": "one"}, {"id": 3, "name": "two"}, **of("two")),
        change("c", None, {"id": 4, "name": None}, source=None),
        {"ts_ms": 1},
    ]
    route = {"field": field, "tables": {"one": "s.t", "two": "s.u"}}
    landing = landing_of(name="a", topics="a", table="s.t", unwrap=UNWRAP, route=route)
    decoder = block_decoder(landing, {name: schema_of(ROW) for name in ("s.t", "s.u")})
    outer = [{"schema": {}, "payload": v} if wrapped else v for v in values]
    block = decoder.decode([json.dumps(v).encode() for v in outer])
    decoder.close()
    found = {name: decoded.table.column("id").to_pylist() for name, decoded in block.tables.items()}
    assert found == {"s.t": [1], "s.u": [2, 3]}
    of_none = "no_change" if field == "name" else "not_routed"
    assert [(r.index, r.kind) for r in block.rejects] == [(3, "not_routed"), (4, of_none)]


def connect_schema(
    scale: str = "2", moment: str = "MicroTimestamp", day: str = "io.debezium.time.Date"
) -> dict[str, Any]:
    """As Connect's converter writes it."""
    amount = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
    row = [
        {"type": "int64", "optional": False, "field": "id"},
        {**amount, "version": 1, "field": "credit"},
        {"type": "int64", "name": f"io.debezium.time.{moment}", "field": "seen"},
        {"type": "int32", "name": day, "field": "day"},
    ]
    images = [{"type": "struct", "fields": row, "optional": True, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "name": "s.t.Envelope"}


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def test_a_schema_that_contradicts_the_columns_costs_the_records_that_bring_it() -> None:
    row = {"id": 1, "credit": digits(1234), "seen": 1767323045000006, "day": 20455}
    schemas = [
        connect_schema(),
        connect_schema(scale="3"),
        connect_schema(moment="NanoTimestamp"),
        connect_schema(),
        {"type": "struct", "fields": 7},
        connect_schema(scale="many"),
        connect_schema(day="org.apache.kafka.connect.data.Timestamp"),
    ]
    values = [compact({"schema": s, "payload": change("c", None, {**row, "id": n})}) for n, s in enumerate(schemas)]
    landing = landing_of(
        name="a", topics="a", table="s.t", unwrap=UNWRAP, encodings={"credit": "base64"}, timestamps=RULES["timestamps"]
    )
    decoder = block_decoder(landing, {"s.t": schema_of(TYPED)})
    block = decoder.decode([*values, compact(change("c", None, {**row, "id": 7})), b"{"])
    decoder.close()
    assert [r["id"] for r in rows(block)] == [0, 3, 4, 5, 7]
    assert {r["credit"] for r in rows(block)} == {Decimal("12.34")}
    rejects = [(r.index, r.kind, r.column) for r in block.rejects]
    wrong = "wrong_schema"
    assert rejects == [(1, wrong, "credit"), (2, wrong, "seen"), (6, wrong, "day"), (8, "not_json", None)]
    reasons = " | ".join(r.reason for r in block.rejects)
    assert "column credit has 2 decimals, but 3 in the schema of the record" in reasons
    assert "which `timestamps: {seen: epoch_nanos}` reads, not epoch_micros" in reasons


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}


@pytest.mark.parametrize(
    ("kind", "stated", "value", "rules", "message"),
    [
        ({"list": "decimal(9, 2)"}, {"type": "array", "items": DECIMAL}, [digits(150)], {"x.element": "base64"}, None),
        (
            {"list": "decimal(9, 3)"},
            {"type": "array", "items": DECIMAL},
            [digits(150)],
            {"x.element": "base64"},
            "column x.element has 3 decimals, but 2 in the schema of the record",
        ),
        (
            {"list": "timestamp"},
            {"type": "array", "items": MICROS},
            [1_000_000],
            {"x.element": "epoch_millis"},
            "`timestamps: {x.element: epoch_micros}` reads, not epoch_millis",
        ),
        (
            {"struct": [{"name": "at", "type": "timestamp"}]},
            {"type": "struct", "fields": [{**MICROS, "field": "at"}]},
            {"at": 1_000_000},
            {"x.at": "epoch_millis"},
            "`timestamps: {x.at: epoch_micros}` reads, not epoch_millis",
        ),
        (
            {"map": {"key": "string", "value": "timestamp"}},
            {"type": "map", "keys": {"type": "string"}, "values": MICROS},
            {"a": 1_000_000},
            {"x.value": "epoch_millis"},
            "`timestamps: {x.value: epoch_micros}` reads, not epoch_millis",
        ),
        ("binary", {"type": "bytes"}, "abcd", {"x": "base64"}, None),
        ("binary", {"type": "bytes"}, "abcd", {"x": "hex"}, "`format.encodings: {x: base64}` reads, not hex"),
        ("binary", {"type": "string"}, "abcd", {"x": "hex"}, None),
    ],
)
def test_a_schema_is_kept_against_columns_on_every_level_and_against_how_bytes_are_read(
    kind: Any, stated: dict[str, Any], value: Any, rules: dict[str, str], message: str | None
) -> None:
    schema = connect_schema()
    for image in schema["fields"][:2]:
        image["fields"] = [image["fields"][0], {**stated, "field": "x"}]
    times = {path: rule for path, rule in rules.items() if rule.startswith("epoch")}
    octets = {path: rule for path, rule in rules.items() if path not in times}
    landing = landing_of(name="a", topics="a", table="s.t", unwrap="debezium", timestamps=times, encodings=octets)
    decoder = block_decoder(landing, {"s.t": schema_of([{"name": "id", "type": "long"}, {"name": "x", "type": kind}])})
    block = decoder.decode([compact({"schema": schema, "payload": change("c", None, {"id": 1, "x": value})})])
    decoder.close()
    assert [r.kind for r in block.rejects] == ([] if message is None else ["wrong_schema"])
    assert all((message or "") in r.reason for r in block.rejects)


def test_sql_may_follow_an_envelope() -> None:
    record = [*ROW, *CHANGE]
    block = unwrapped(
        [change("c", None, {"id": 1, "name": "a"}), change("d", {"id": 1, "name": "a"}, None)],
        [{"name": "id", "type": "long", "required": True}, {"name": "what", "type": "string"}],
        record_schema=record,
        transform="select id, _op || ':' || name as what from record where not _is_deleted",
    )
    assert rows(block) == [{"id": 1, "what": "c:a"}]
    assert list(block.filtered) == [1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unwrap": "maxwell"}, "'maxwell' is not one of debezium"),
        ({"unwrap": {"columns": {}}}, "envelope None is not one of debezium"),
        ({"unwrap": {"envelope": "debezium", "column": {}}}, "did you mean 'columns'"),
        (
            {"unwrap": {"envelope": "debezium", "columns": {"a": "after.id"}}},
            "'after.id' is neither deleted nor a path",
        ),
        ({"unwrap": "debezium", "format": "raw"}, "unwrap: needs one of the formats json, json_schema, avro"),
        ({"unwrap": "debezium", "unknown_fields": "dead_letter"}, "only `columns.unknown_fields: ignore` is possible"),
    ],
)
def test_a_wrong_section_is_reported(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        landing_of(name="a", topics="a", table="s.t", **fields)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            [*ROW, {"name": "_is_deleted", "type": "string"}],
            "_is_deleted is true for deleted rows: it must be boolean.*LC4046",
        ),
        ([*ROW, {"name": "_op", "type": "long"}], "_op is filled from op: it must be string.*LC4047"),
        ([{"name": "_op", "type": "string"}], "no column for a field of the row.*LC4045"),
        ([{"name": "nam", "type": "string"}], r"no column 'name' \(its columns are nam\) \(did you mean 'nam'.*LC4049"),
    ],
)
def test_a_table_that_an_envelope_cannot_fill_is_reported(columns: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(TableError, match=message):
        unwrapped([], columns, timestamps={"name": "epoch_millis"} if columns[0]["name"] == "nam" else {})
