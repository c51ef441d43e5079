# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation that says which field of a message becomes which column."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.protobuf.decode_protobuf import ProtobufDecoder
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec

TABLE = Path(__file__).parents[4] / "docs" / "reference" / "protobuf_types.csv"
FILES = ("timestamp", "duration", "wrappers", "struct", "any")
HEAD = "".join(
    (
        'syntax = "proto3";\n',
        *(f'import "google/protobuf/{name}.proto";\n' for name in FILES),
        'import "google/type/date.proto"; import "google/type/timeofday.proto";\n',
        'import "confluent/type/decimal.proto";\n',
        "enum Status { UNKNOWN = 0; }\nmessage Item { string sku = 1; }\n",
    )
)


def rows() -> list[dict[str, str]]:
    with TABLE.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row['Field']} {row['Column']}")
def test_each_pair_is_taken(row: dict[str, str]) -> None:
    schema, _, _ = create_from_spec({"schema": [{"name": "c", "type": row["Column"]}]})
    text = f"{HEAD} message Row {{ {row['Field']} = 1; }}"
    decoder = ProtobufDecoder(schema, FormatOptions(format="protobuf", schema=text, message="Row"))
    assert decoder.schema.names == ["c"]
