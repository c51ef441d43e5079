# SPDX-License-Identifier: Apache-2.0
"""Columns whose records spell their names in another case, where the records have nested fields."""

from __future__ import annotations

import json

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from airflow_provider_lakecommit.core import DEFAULTS
from airflow_provider_lakecommit.formats.decoder import decoder_for
from airflow_provider_lakecommit.formats.time_values import Suspects
from airflow_provider_lakecommit.formats.unknown_fields import cased_names

ADDRESS = StructType(
    NestedField(5, "zip", StringType(), required=False), NestedField(6, "town", StringType(), required=False)
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "address", ADDRESS, required=False),
    NestedField(3, "former", ListType(element_id=7, element_type=ADDRESS, element_required=False), required=False),
    NestedField(4, "ID2", LongType(), required=False),
)


def found(*records: dict[str, object]) -> dict[str, Suspects]:
    return cased_names(decoder_for(SCHEMA, DEFAULTS).decode([json.dumps(r).encode() for r in records]))


def test_a_nested_column_is_compared_among_the_records_that_have_its_parent() -> None:
    records = [{"id": n, "address": {"Zip": "1", "town": "x"} if n % 2 else None} for n in range(20)]
    assert found(*records) == {"address.zip": Suspects(10, 10, "address.Zip")}


def test_records_with_the_column_are_no_suspects() -> None:
    assert found({"id": 1, "id2": 5}, {"id": 2, "ID2": 5}) == {"ID2": Suspects(1, 2, "id2")}
    assert found({"id": 1, "id2": 5, "ID2": 5}) == {"ID2": Suspects(0, 1, "id2")}


def test_lists_and_unlike_names_are_left_out() -> None:
    assert found({"id": 1, "former": [{"Zip": "1"}], "more": 1, "more.ID2": 2}) == {}
