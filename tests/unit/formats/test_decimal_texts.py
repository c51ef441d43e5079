# SPDX-License-Identifier: Apache-2.0
"""Texts become the decimals that they write: held against Python's own decimals, however long or fine they are."""

from __future__ import annotations

from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_csv import CsvDecoder
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.formats.text_columns import decimals_of
from airflow_provider_lakecommit.spark.record_parts import parts_of

WIDE = Context(prec=500, Emax=10_000, Emin=-10_000)
FINE = [f"{digit}e-{n}" for digit in (1, 9) for n in range(1, 320, 3)]
LONG = [f"{k * 2**bits + d}" for bits in (64, 127, 128, 255, 256, 320) for k in (1, 3) for d in (0, 1, 25)]
MESSAGE = 'syntax = "proto3"; message M { string c = 1; }'


def held(text: str, precision: int, scale: int) -> Decimal | None:
    """The number, if a decimal of so many digits holds it."""
    shifted = WIDE.create_decimal(text).scaleb(scale, WIDE)
    whole = shifted == shifted.to_integral_value(context=WIDE)
    return WIDE.create_decimal(text) if whole and abs(shifted) < 10**precision else None


digits = st.text("0123456789", min_size=1, max_size=90)
written = st.builds(
    lambda sign, whole, rest, exponent: sign + whole + rest + exponent,
    st.sampled_from(["", "-"]),
    digits,
    st.one_of(st.just(""), digits.map(lambda d: f".{d}")),
    st.one_of(st.just(""), st.integers(-130, 90).map(lambda n: f"e{n}")),
)
sizes = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))


@given(st.one_of(written, st.sampled_from([*FINE, *LONG])), sizes)
def test_a_number_is_kept_exactly_or_refused(text: str, size: tuple[int, int]) -> None:
    target = pa.decimal128(*size)
    try:
        found = decimals_of(pa.array([text, None]), target)
    except ValueError:
        assert held(text, *size) is None
    else:
        assert found.type == target
        assert found.to_pylist() == [held(text, *size), None]


@pytest.mark.parametrize(
    "text", ["1e-41", "1e-100", f"{2**128 + 1}", f"{2**256 + 1}", "0.5e-99999999999", "9e999999999"]
)
def test_what_no_decimal_holds_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="more than the"):
        decimals_of(pa.array([text]), pa.decimal128(9, 2))


def refused(column: DecimalType, text: str) -> list[bool]:
    """Whether a field of CSV, a key and a text of Protobuf are all refused."""
    schema = Schema(NestedField(1, "c", column))
    csv = CsvDecoder(schema, FormatOptions(format="csv", csv={"columns": ["c"]})).decode([text.encode()])
    (key,) = parts_of(schema, FormatOptions(), {"column": "c"}, {})
    value = b"\x0a" + bytes([len(text)]) + text.encode()
    message = ProtobufDecoder(schema, FormatOptions(format="protobuf", schema=MESSAGE)).decode([value])
    return [bool(csv.rejects), 0 in key.filled([text.encode()])[1], bool(message.rejects)]


@pytest.mark.parametrize("text", [*FINE[40::9], *LONG])
def test_every_format_of_texts_refuses_what_is_too_fine_or_too_long(text: str) -> None:
    assert refused(DecimalType(9, 2), text) == [True, True, True]
