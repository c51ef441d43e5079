# SPDX-License-Identifier: Apache-2.0
"""The shapes of the benchmark: each format's values are the expected rows, whoever reads them."""

from __future__ import annotations

import json
import pickle
from urllib.request import urlopen

import pyarrow as pa
import pytest

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decoder import decoder_for
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry
from bench.registered import APICURIO, HEADS, framed, registry
from bench.script_decoders import decoder_of
from bench.shapes import SHAPES, Shape

RECORDS = 400
BYTES = {("narrow", "avro"): (90, 120), ("narrow", "protobuf"): (90, 130), ("orders", "avro"): (80, 105)}


def assert_expected(rows: pa.Table, shape: Shape) -> None:
    expected = shape.expected(0, RECORDS, RECORDS)
    assert rows.select(expected.column_names).cast(expected.schema).equals(expected)


@pytest.mark.heavy(but=("orders-json", "narrow-protobuf", "wide-avro"))
@pytest.mark.parametrize("format", ["json", "avro", "protobuf"])
@pytest.mark.parametrize("name", SHAPES)
def test_landing_and_script_read_the_expected_rows(name: str, format: str) -> None:
    shape = SHAPES[name]
    values = list(framed(shape, format, RECORDS))
    of_json = dict.fromkeys(shape.times, "epoch_millis") if format == "json" else {}
    with registry(shape) as settings:
        source = SchemaRegistry(settings)
        options = FormatOptions(format=format, timestamps=of_json, unknown_fields="dead_letter")
        decoded = decoder_for(shape.schema, options, registry=source).decode(values)
        source.close()

    assert decoded.rejects == ()
    assert_expected(decoded.table, shape)
    # The script's decoder goes to another process.
    assert_expected(pickle.loads(pickle.dumps(decoder_of(shape, format)))(values), shape)
    least, most = BYTES.get((name, format), (1, 10_000))
    assert least <= sum(map(len, values)) / RECORDS <= most


def test_wide_rows_have_300_columns_of_all_kinds_and_nulls_in_some() -> None:
    rows = SHAPES["wide"].expected(0, RECORDS, RECORDS)

    assert rows.num_columns == 300
    assert len(set(rows.schema.types)) == 6
    assert 100 < sum(column.null_count > 0 for column in rows.columns) < 200


def test_a_record_depends_on_its_number_and_on_how_many_there_are() -> None:
    for shape in SHAPES.values():
        for values in shape.values.values():
            assert list(values(0, 30, 100))[10:20] == list(values(10, 20, 100))


def test_the_registry_answers_by_apicurios_interface_too() -> None:
    shape = SHAPES["narrow"]
    number = int.from_bytes(HEADS["avro"][1:])
    with registry(shape) as settings:
        content = f"{settings['url']}/{APICURIO}/ids/contentIds/{number}/"
        with urlopen(content) as answer:
            assert json.load(answer) == shape.avro
        with urlopen(f"{content}references") as answer:
            assert json.load(answer) == []
