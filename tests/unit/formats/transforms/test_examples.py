# SPDX-License-Identifier: Apache-2.0
"""The specs that the pages about records show are read, and their tables can be filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from airflow_provider_lakecommit.landing import load_spec
from airflow_provider_lakecommit.spark.decoders import block_decoder

EXAMPLES = Path(__file__).parents[4] / "docs" / "examples"


@pytest.mark.parametrize("name", ["routed.yaml", "transformed.yaml", "changes.yaml"])
def test_a_printed_spec_fills_the_tables_that_it_makes(name: str) -> None:
    landing = load_spec(EXAMPLES / name).landing
    schemas = {table: create_from_spec(landing.create_of(table) or {})[0] for table in landing.data_tables}
    block_decoder(landing, schemas).close()
