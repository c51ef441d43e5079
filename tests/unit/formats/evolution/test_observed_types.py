# SPDX-License-Identifier: Apache-2.0
"""From sampled JSON to wanted columns: by values alone, relative to the columns that a table has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from airflow_provider_lakecommit.core.formats import DEFAULTS, FormatOptions
from airflow_provider_lakecommit.formats.evolution.inferred import InferredTypes
from airflow_provider_lakecommit.formats.evolution.observed_types import observed_types
from airflow_provider_lakecommit.formats.evolution.paths import plain
from airflow_provider_lakecommit.formats.evolution.sampled_columns import row_in
from airflow_provider_lakecommit.formats.sampled import sample_values
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec


def observed(columns: dict[str, str], *records: Any, options: FormatOptions = DEFAULTS) -> InferredTypes:
    fields = [{"name": name, "type": kind} for name, kind in {"id": "long", **columns}.items()]
    schema: Schema = create_from_spec({"schema": fields})[0]
    texts = (r if isinstance(r, str) else json.dumps(r) for r in records)
    return observed_types(schema, sample_values((f"t[0]@{n}", text.encode()) for n, text in enumerate(texts)), options)


def inferred(found: InferredTypes) -> dict[str, str]:
    return {f.name: plain(f.field_type).replace("optional ", "") for f in found.columns.fields}


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        (['{"c": 1}', '{"c": null}', "{}"], "long"),
        (['{"c": 1}', '{"c": 1.5}'], "double"),
        (['{"c": 9007199254740992}', '{"c": 0.30000000000000004}', '{"c": 100000000000000000000.0}'], "double"),
        (['{"c": "2026-01-01"}'], "string"),
        (['{"c": true}'], "boolean"),
        (['{"c": {"a": 1}}', '{"c": {"b": "x"}}'], "struct<a: long, b: string>"),
        (['{"c": [1, 2.5]}', '{"c": []}'], "list<double>"),
        (['{"c": [{"a": 1}, {"b": 2}]}'], "list<struct<a: long, b: long>>"),
    ],
)
def test_a_new_field_has_the_type_that_holds_all_its_values(records: list[str], kind: str) -> None:
    assert inferred(observed({}, *records)) == {"c": kind}


@pytest.mark.parametrize("record", ['{"c": null}', '{"c": []}', '{"c": {}}', '{"c": {"a": null}}', '{"c": [null]}'])
def test_a_field_without_a_value_waits_in_silence(record: str) -> None:
    found = observed({}, record)
    assert (inferred(found), found.left_out, found.misfits) == ({}, (), ())


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (['{"c": 1}', '{"c": "x"}', '{"c": "y"}'], "its values disagree: a text in 2 (t[0]@1, t[0]@2), a whole number"),
        (['{"c": {"a": 1}}', '{"c": {"a": []}}'], "c.a is not added: its values disagree"),
        (['{"c": 9223372036854775808}'], "exceed a long"),
        (['{"c": 1e400}'], "exceed a double"),
        (['{"c": 9007199254740993}', '{"c": 1.5}'], "a double would round some of its numbers"),
        (['{"c": 0.123456789012345678}'], "a double would round some of its numbers"),
    ],
)
def test_a_field_whose_values_disagree_is_named_with_counts_and_positions(records: list[str], why: str) -> None:
    found = observed({}, *records)
    assert "c" not in inferred(found)
    assert why in str(found.left_out[0])


def test_names_that_are_data_become_no_columns() -> None:
    found = observed({}, *({"c": {f"user-{n}": 1}} for n in range(30)))
    assert inferred(found) == {}
    assert "30 names in 30 objects are probably a map" in str(found.left_out)


@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [
        ("int", "7", "int"),
        ("int", str(2**31 - 1), "int"),
        ("int", str(2**31), "long"),
        ("int", str(-(2**31) - 1), "long"),
        ("float", "3e38", "float"),
        ("float", "1e39", "double"),
        ("decimal(4, 2)", "99.99", "decimal(4, 2)"),
        ("decimal(4, 2)", "100.5", "decimal(5, 2)"),
        ("decimal(4, 2)", '"12.30"', "decimal(4, 2)"),
        ("decimal(4, 2)", '"-100.5"', "decimal(5, 2)"),
        ("decimal(4, 2)", '"1e3"', "decimal(6, 2)"),
        ("decimal(4, 2)", "1.500", "decimal(4, 2)"),
        ("decimal(4, 2)", "0.000", "decimal(4, 2)"),
        ("decimal(2, 2)", "0", "decimal(2, 2)"),
        ("decimal(4, 2)", "12.500", "decimal(5, 2)"),
        ("date", '"2026-01-01"', "date"),
        ("uuid", '"x"', "uuid"),
        ("list<int>", "[4294967296]", "list<long>"),
        ("map<string, int>", '{"a": 1, "b": 4294967296}', "map<string, long>"),
        ("map<string, struct<a: long>>", '{"k": {"a": 1}, "l": {"b": "x"}}', "map<string, struct<a: long, b: string>>"),
    ],
)
def test_a_column_of_the_table_keeps_its_type_unless_only_width_is_lacking(column: str, value: str, kind: str) -> None:
    found = observed({"c": column}, f'{{"c": {value}}}')
    assert (inferred(found), found.misfits) == ({"c": kind}, ())


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("int", '"7"', "a text in 1 (t[0]@0)"),
        ("int", "1.0", "a number with a fraction in 1"),
        ("int", str(2**63), "a whole number beyond a long"),
        ("long", str(2**63), "a whole number beyond a long"),
        ("double", "1e999", "a number beyond a double"),
        ("boolean", "0", "a whole number in 1"),
        ("string", "0", "a whole number in 1"),
        ("string", "{}", "an object in 1"),
        ("date", "true", "a boolean in 1"),
        ("decimal(4, 2)", "1.234", "a number with 3 decimals"),
        ("decimal(38, 2)", "1" * 37, "a number with 37 digits before the point"),
        ("decimal(4, 2)", "1." + "0" * 38, "a number that is written with 39 digits"),
        ("decimal(4, 2)", '"1.234"', "a number with 3 decimals"),
        ("decimal(4, 2)", '"1_0"', "a text that is not a number in 1"),
        ("timestamptz", "1700000000", "a whole number in 1"),
        ("uuid", "5", "a whole number in 1"),
        ("struct<a: long>", "[]", "a list in 1"),
        ("list<long>", '["x"]', "c.element is long in the table and a text in 1"),
        ("map<string, long>", '{"k": "x"}', "c.value is long in the table and a text in 1"),
    ],
)
def test_values_that_a_column_cannot_take_are_misfits(column: str, value: str, what: str) -> None:
    found = observed({"c": column}, f'{{"c": {value}}}')
    assert what in str(found.misfits[0])


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ('{"s": {"x": 1}}', "column id is required long in the table and missing or null in 1 in the records"),
        ('{"id": null, "s": {"x": 1}}', "column id is required long"),
        ('{"id": 1, "s": {"x": 1}}', ""),
        ('{"id": 1}', ""),
        ('{"id": 1, "s": {}}', "column s.x is required int"),
    ],
)
def test_a_required_column_without_a_value_is_a_misfit(record: str, what: str) -> None:
    inner = StructType(NestedField(3, "x", IntegerType(), required=True))
    fields = NestedField(1, "id", LongType(), required=True), NestedField(2, "s", inner, required=False)
    found = observed_types(Schema(*fields), sample_values([("t[0]@0", record.encode()), ("t[0]@1", None)]))
    assert [what in str(misfit) for misfit in found.misfits] == ([True] if what else [])


@pytest.mark.parametrize(
    ("value", "misfit"), [("1700000000", ""), ('"2026-01-01T00:00:00Z"', "a text in 1"), ("1.5", "a number with a")]
)
def test_times_are_what_their_rule_reads(value: str, misfit: str) -> None:
    found = observed(
        {"c": "timestamptz"}, f'{{"c": {value}}}', options=FormatOptions(timestamps={"c": "epoch_seconds"})
    )
    assert [misfit in str(m) for m in found.misfits] == ([True] if misfit else [])


@pytest.mark.parametrize(
    ("value", "kind", "misfit"),
    [("AeJA", "decimal(6, 2)", False), ("Aeo", "decimal(4, 2)", True), ("Aeo=", "decimal(4, 2)", False)],
)
def test_digits_that_are_kept_as_bytes_count_as_what_they_state(value: str, kind: str, misfit: bool) -> None:
    found = observed({"c": "decimal(4, 2)"}, {"c": value}, options=FormatOptions(encodings={"c": "base64"}))
    assert (inferred(found), bool(found.misfits)) == ({"c": kind}, misfit)


@pytest.mark.parametrize("column", ["", "int", "float", "double", "decimal(9, 2)", "list<double>"])
@pytest.mark.parametrize("number", ["1e1000000", "-1e1000000", "1e-1000000", "-1e99999999999999", f"1e{'9' * 20}"])
def test_no_number_is_too_large_to_be_checked(column: str, number: str) -> None:
    """One record is never the end of all plans."""
    found = observed({"c": column} if column else {}, f'{{"c": {f"[{number}]" if "list" in column else number}}}')
    assert inferred(found).get("c", column) in (column, "double")


def test_of_envelopes_the_rows_are_checked() -> None:
    change = {"op": "d", "before": {"c": 1}, "after": {"other": 1}}
    values = (change, {"schema": {}, "payload": {"op": "u", "before": {"old": 1}, "after": {"c": 2.5}}}, {"op": "t"})
    found = sample_values([("t[0]@0", json.dumps(v).encode()) for v in values], row_in)
    assert inferred(observed_types(Schema(), found)) == {"c": "double"}


def test_what_is_no_record_at_all_wants_nothing() -> None:
    found = observed({}, "no json", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}')
    assert (inferred(found), found.left_out, found.misfits) == ({}, (), ())
