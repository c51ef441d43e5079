# SPDX-License-Identifier: Apache-2.0
"""What a reject says of a value: never Arrow's words, always the value, and a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
)

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats import decoder_for
from airflow_provider_lakecommit.formats.arrow_texts import plain_reason
from airflow_provider_lakecommit.formats.avro.scalars import decimal_of, each_converted
from airflow_provider_lakecommit.formats.decoder import Refusal, Reject
from airflow_provider_lakecommit.formats.reading import whole_numbers
from tests.support.story import STEADY

ARROWS = re.compile(
    r"assume_timezone|Failed to|scalar of type|[Cc]asting|decimal(128|256)|timestamp\[|int(32|64)|Rescal"
)


def reasons(format: str, kind: IcebergType, values: list[bytes], **options: Any) -> list[str]:
    decoder = decoder_for(Schema(NestedField(1, "c", kind)), FormatOptions(format=format, **options))
    return [r.reason for r in decoder.decode(values).rejects]


def of_json(kind: IcebergType, value: str, rules: Mapping[str, str] | None = None) -> str:
    (found,) = reasons("json", kind, [b'{"c": %s}' % value.encode()], timestamps=rules or {})
    return found


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (
            DecimalType(10, 2),
            "123456789012345.12",
            "column c: 123456789012345.12 has 15 digits before the point, and the table has decimal(10, 2): widen the "
            "column to decimal(17, 2), or set `evolve: widen`",
        ),
        (DecimalType(10, 2), "-1e10", "widen the column to decimal(13, 2)"),
        (DecimalType(38, 2), "1e50", "no decimal has so many digits; make the column a string"),
        (DecimalType(10, 2), "1.234", "round it in the producer, or make a new column with 3 decimals"),
        (DecimalType(9, 2), "9999999.994", "9999999.994 has 3 decimals, and the table has decimal(9, 2): round it in"),
        (
            DecimalType(38, 38),
            "1e-39",
            "1e-39 has 39 decimals, and the table has decimal(38, 38): round it in the prod",
        ),
        (DecimalType(38, 38), "1e-39", "or make a new column of type string"),
        (TimestamptzType(), '"2026-01-01T00:00:00"', "has no zone offset, and the table has timestamptz"),
        (TimestamptzType(), '"soon"', "'soon' cannot be read as an ISO 8601 time: state its form in `timestamps`"),
        (TimestamptzType(), '"2026-13-01T00:00:00Z"', "cannot be read as an ISO 8601 time"),
        (TimestampType(), '"2026-01-01T00:00:00Z"', "make the column a timestamptz"),
        (TimestampType(), "\"it's ' as a scalar of type date\"", "cannot be read as an ISO 8601 time"),
        (DateType(), '"2026-02-30"', "'2026-02-30' cannot be read as a date (YYYY-MM-DD)"),
        (LongType(), "1.5", "column c: 1.5 is not written as a whole number"),
        (IntegerType(), "3000000000", "3000000000 does not fit in 32 bits: widen an int to long, or set"),
    ],
)
def test_a_value_of_json_is_refused_with_its_remedy(kind: IcebergType, value: str, reason: str) -> None:
    found = of_json(kind, value)
    assert reason in found
    assert not ARROWS.search(found.replace("' as a scalar of type", ""))


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (DecimalType(10, 2), "123456789012.12", "a number has more digits than the 10 of its decimal column"),
        (DecimalType(10, 2), "1.234", "a number has more decimals than its column"),
        (TimestamptzType(), "2026-01-01", "has no zone offset"),
        (DecimalType(10, 2), "1e20", "'1e20' has more than the 10 digits of decimal(10, 2)"),
        (IntegerType(), "3000000000", "column c: '3000000000' does not fit the column's type"),
    ],
)
def test_a_text_of_csv_is_refused_with_its_remedy(kind: IcebergType, value: str, reason: str) -> None:
    (found,) = reasons("csv", kind, [value.encode()], csv={"columns": ["c"]})
    assert reason in found
    assert not ARROWS.search(found)


@pytest.mark.parametrize(
    ("convert", "values", "target"),
    [
        (whole_numbers, pa.array([10**15]), pa.int32()),
        (whole_numbers, pa.array([10**15]), pa.decimal128(10, 2)),
        (decimal_of(0), pa.array([10**15], pa.decimal128(20, 0)), pa.decimal128(10, 2)),
        (decimal_of(3), pa.array(["0.001"]).cast(pa.decimal128(20, 3)), pa.decimal128(10, 2)),
    ],
)
def test_a_number_of_avro_is_refused_without_arrows_texts(convert: Any, values: Any, target: pa.DataType) -> None:
    ((_, why),) = each_converted(convert, values, target)[1]
    found = Reject.of(0, Refusal("wrong_value", "c", f"column c: {why}")).reason
    assert found != f"column c: {why}"
    assert "column" in found.removeprefix("column c")
    assert not ARROWS.search(found)


@pytest.mark.parametrize(
    ("values", "target", "remedy"),
    [
        (pa.array([2**31]), pa.int32(), "widen an int column, or set `evolve: widen`"),
        (pa.array([2**63], pa.uint64()), pa.int64(), "does not fit in 64 bits: make the column a decimal"),
        (pa.array([10**15]), pa.decimal128(10, 2), "widen the column, or set `evolve: widen`"),
        (pa.array([10**15]), pa.decimal128(38, 25), "make a new column with fewer decimals, or of type string"),
    ],
)
def test_no_column_is_to_be_widened_that_is_as_wide_as_can_be(values: Any, target: pa.DataType, remedy: str) -> None:
    ((_, why),) = each_converted(whole_numbers, values, target)[1]
    found = plain_reason(why)
    assert remedy in found
    assert not ARROWS.search(found)


def test_a_null_in_a_required_nested_field_is_named_with_its_path_and_what_to_do() -> None:
    inner = StructType(NestedField(2, "b", LongType(), required=True))
    message = "; send it in each record, or make this nested column optional in the table"
    assert of_json(inner, '{"b": null}') == f"required column c.b is missing or null{message}"
    elements = ListType(2, LongType(), element_required=True)
    assert of_json(elements, "[null]") == f"required column c.element is missing or null{message}"
    values = MapType(2, StringType(), 3, LongType(), value_required=True)
    assert of_json(values, '{"x": null}') == f"required column c.value is missing or null{message}"


@STEADY
@given(
    st.sampled_from([DateType(), TimestampType(), TimestamptzType(), TimestampNanoType(), DecimalType(9, 2)]),
    st.text(max_size=20),
)
def test_no_text_brings_arrows_texts_to_light(kind: IcebergType, text: str) -> None:
    import json

    for found in reasons("json", kind, [json.dumps({"c": text}).encode()]):
        assert not ARROWS.search(found.replace(text, ""))


@pytest.mark.parametrize("message", ["", "column c is a string, not a number", "Decimal value", "fits as it is"])
def test_other_messages_stay_as_they_are(message: str) -> None:
    assert plain_reason(message) == message
