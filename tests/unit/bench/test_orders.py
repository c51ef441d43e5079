# SPDX-License-Identifier: Apache-2.0
"""The orders of the benchmark: the JSON and the expected rows are the same records."""

from __future__ import annotations

import json

import pytest

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from bench.orders import BLOCK, SCHEMA, expected, values


@pytest.mark.parametrize("iso", [False, True])
def test_the_json_decodes_to_the_expected_rows(iso: bool) -> None:
    first, last, records = BLOCK - 1500, BLOCK + 1500, 200_000

    decoded = JsonDecoder(SCHEMA, FormatOptions(timestamps={} if iso else {"ts": "epoch_millis"})).decode(
        list(values(first, last, records, iso=iso))
    )

    rows = expected(first, last, records)
    assert decoded.rejects == ()
    assert decoded.table.cast(rows.schema).equals(rows)


def test_a_record_is_a_function_of_its_number_and_has_the_size_that_is_reported() -> None:
    some = list(values(5, 1005, 1000))

    assert some[10:20] == list(values(15, 25, 1000))
    assert len(set(some)) == 1000
    assert 230 < sum(map(len, some)) / 1000 < 290
    notes = [json.loads(v)["note"] for v in some]
    assert 0.5 < notes.count(None) / 1000 < 0.8
