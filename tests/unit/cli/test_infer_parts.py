# SPDX-License-Identifier: Apache-2.0
"""`infer-schema` of CSV and raw records: columns that take them, read by the landing's own decoder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from airflow_provider_lakecommit.cli.infer_output import output_of
from airflow_provider_lakecommit.cli.infer_parts import csv_as_json, raw_columns
from airflow_provider_lakecommit.cli.infer_schema import Question, infer_schema, rejected
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.infer_values import infer, schema_of
from airflow_provider_lakecommit.formats.sampled import sample_values
from airflow_provider_lakecommit.landing import Landing
from tests.support.declared import landing_of

CSV = FormatOptions(format="csv", csv={"columns": ["id", "zip", "amount", "paid", "day", "note"], "delimiter": ";"})
ROWS = [
    b'1;01219;1.50;true;2026-01-31;"a ""b"";\n"',
    b"-2;80331;20;false;2026-02-01;",
    b'9007199254740993;"01067";0.10;true;2026-02-28;x',
]
BAD = [b"3;1", b'4;"1;2;true;2026-01-01;x', b"x;02345;1;true;2026-01-01;secret"]
TYPES = {"id": "long", "zip": "string", "amount": "double", "paid": "boolean", "day": "date", "note": "string"}


def taken(*values: bytes | None) -> list[tuple[str, bytes | None]]:
    return [(f"t[0]@{n}", value) for n, value in enumerate(values)]


def test_fields_of_csv_become_the_types_that_they_are_written_as() -> None:
    rows = [row.replace(b"80331", b"03042") for row in ROWS]
    found = sample_values(csv_as_json(taken(*rows, None), CSV))
    columns = infer(sample_values(csv_as_json(taken(*rows * 200), CSV)))
    assert {c.name: c.type for c in columns} == TYPES
    assert {c.name for c in columns if not c.required} == {"note"}
    assert (found.values, found.tombstones) == (4, 1)
    assert rejected(taken(*rows), columns, CSV, examples=True) == []


def test_a_row_of_csv_reports_the_same_as_json() -> None:
    (place, value), *_ = csv_as_json(taken(*BAD[:2], *ROWS), CSV)
    assert place == "t[0]@2"
    row = {"id": 1, "zip": "01219", "amount": 1.5, "paid": True, "day": "2026-01-31", "note": 'a "b";\n'}
    assert json.loads(value or b"") == row


def test_records_of_several_rows_are_all_checked() -> None:
    many = FormatOptions(format="csv", csv={"columns": ["a", "b"], "rows": "many", "null_text": "-"})
    found = csv_as_json(taken(b"1,x\n2,-\n", b"", b'3,"-"'), many)
    assert [(place, json.loads(value or b"")) for place, value in found] == [
        ("t[0]@0", {"a": 1, "b": "x"}),
        ("t[0]@0", {"a": 2, "b": None}),
        ("t[0]@2", {"a": 3, "b": "-"}),
    ]


def test_what_is_no_row_is_reported_by_its_form_and_never_by_its_value() -> None:
    sample = taken(*ROWS, *ROWS, *BAD)
    columns = infer(sample_values(csv_as_json(sample, CSV)))
    values = {reason: n for reason, n, _ in rejected(sample, columns, CSV, examples=False)}
    assert values["a row has 2 fields, `csv.columns` names 6"] == 1
    assert values["id: wrong value"] == 1
    assert "secret" not in str(values)


@pytest.mark.parametrize(("values", "kind"), [((b"a", b"", "é".encode()), "string"), ((b"a", b"\xff"), "binary")])
def test_bytes_as_they_are_become_one_column_that_takes_them(values: tuple[bytes, ...], kind: str) -> None:
    columns = raw_columns(taken(*values, None))
    assert [(c.type, c.required) for c in columns] == [(kind, True)]
    assert schema_of(columns) is not None
    assert rejected(taken(*values, None), columns, FormatOptions(format="raw"), examples=True) == []
    assert raw_columns(taken(None)) == []


@pytest.mark.parametrize(
    "landing",
    [
        landing_of(name="o", topics="o", table="a.b", dead_letter_table="a.d", format="csv", csv=dict(CSV.csv)),
        Landing(name="o", topics="o", table="a.b", dead_letter_table="a.d", format="raw"),
    ],
    ids=["csv", "raw"],
)
def test_what_is_printed_is_a_landing_of_that_format(
    landing: Landing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:9"}
    question = Question(kafka=kafka, topics=["o"], landing=landing, catalog=None, records=10, examples=False)
    assert output_of(infer_schema(question, taken=taken(*ROWS)), Output()) == Exit.DONE
    printed = tmp_path / "printed.yaml"
    printed.write_text(capsys.readouterr().out)
    again = Landing.from_yaml(printed)
    assert (again.format, again.decoding.csv) == (landing.format, landing.decoding.csv)
    assert yaml.safe_load(printed.read_text())["create"]["schema"]


def test_rules_of_the_spec_decide_which_columns_are_times(capsys: pytest.CaptureFixture[str]) -> None:
    rules = {"ts": "epoch_millis", "day": "%d.%m.%Y", "clock": "seconds_of_day"}
    landing = landing_of(name="o", topics="o", table="a.b", dead_letter_table="a.d", timestamps=rules)
    kafka = {"bootstrap.servers": "127.0.0.1:9"}
    question = Question(kafka=kafka, topics=["o"], landing=landing, catalog=None, records=10, examples=False)
    value = b'{"ts": 1767355200000, "day": "31.01.2026", "clock": 5, "n": 1}'
    assert output_of(infer_schema(question, taken=taken(value)), Output()) == Exit.DONE
    printed = yaml.safe_load(capsys.readouterr().out)
    assert {c["name"]: c["type"] for c in printed["create"]["schema"]} == {
        "ts": "timestamptz",
        "day": "timestamptz",
        "clock": "time",
        "n": "long",
    }
    assert printed["timestamps"] == rules


@pytest.mark.parametrize(
    ("format", "value", "why"),
    [
        ("csv", b"1,2026,x", "a row has 1 fields, `csv.columns` names 6: check `csv.delimiter`: 2 (t[0]@0, t[0]@1)"),
        ("json", gzip.compress(b"{}", mtime=0), "is not JSON; it is gzip: leave compression to Kafka"),
        ("json", b"\x00\x00\x00\x00\x07x", "magic byte (schema 7): state `format: avro`"),
    ],
)
def test_a_sample_without_a_row_is_answered_by_the_reason(
    format: str, value: bytes, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    csv = dict(CSV.csv) if format == "csv" else {}
    landing = landing_of(
        name="o", topics="o", table="a.b", dead_letter_table="a.d", format=format, csv=csv, timestamps={"at": "iso8601"}
    )
    question = Question(kafka={}, topics=["o"], landing=landing, catalog=None, records=10, examples=False)
    assert output_of(infer_schema(question, taken=taken(value, value)), Output()) == Exit.REFUSED
    output = capsys.readouterr().err
    assert "no column could be found in 2 records; " in output
    assert why in output


def test_without_examples_no_reason_quotes_a_value() -> None:
    kind = {"type": "string", "logicalType": "uuid"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": kind}]}
    options = FormatOptions(format="avro", schema=json.dumps(schema))
    sample = taken(b"\x16123-45-6789", b"\x02")
    columns = infer(sample_values(taken(b'{"u": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}')))
    assert [c.type for c in columns] == ["uuid"]
    values = {reason for reason, _, _ in rejected(sample, columns, options, examples=False)}
    assert values == {"u: wrong value", "u: its length exceeds the record"}
    assert "123-45-6789" in str(rejected(sample, columns, options, examples=True))
