# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation that says what JSON becomes in each type."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.landing.checks import ENCODINGS

TABLE = Path(__file__).parents[3] / "docs" / "reference" / "types.csv"


def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['Type']}-{row['JSON']}")
def test_each_row_is_true(row: dict[str, str]) -> None:
    schema, _, _ = create_from_spec({"schema": [{"name": "c", "type": row["Type"]}]})
    rule = row["Rule or encoding"]
    rules = {"c": rule} if rule else {}
    encodings, timestamps = (rules, {}) if rule in ENCODINGS else ({}, rules)

    decoded = JsonDecoder(schema, FormatOptions(timestamps=timestamps, encodings=encodings)).decode(
        [f'{{"c":{row["JSON"]}}}'.encode()]
    )

    if row["Becomes"].startswith("refused: "):
        (reject,) = decoded.rejects
        assert row["Becomes"].removeprefix("refused: ") in reject.reason
    else:
        assert str(decoded.table["c"][0].as_py()).replace("\n", "↵") == row["Becomes"]
