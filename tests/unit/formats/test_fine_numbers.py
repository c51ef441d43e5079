# SPDX-License-Identifier: Apache-2.0
"""Numbers that are too fine are found whatever stands beside them, and zeros cost no look at each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField, StringType

from airflow_provider_lakecommit.formats import fine_numbers
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder

AMOUNTS = [f"amount{n}" for n in range(50)]
SCHEMA = Schema(
    *(NestedField(n, name, DecimalType(9, 2)) for n, name in enumerate(AMOUNTS, 1)),
    NestedField(99, "note", StringType()),
)


@pytest.mark.parametrize("written", ["1e-60", "9E-0061", f"0.{'0' * 60}1", '"1e-60"'])
def test_the_one_that_is_too_fine_is_found_among_zeros(written: str) -> None:
    zeros = json.dumps(dict.fromkeys(AMOUNTS, 0)).encode()
    fine = zeros.replace(b'"amount31": 0', b'"amount31": ' + written.encode())
    found = JsonDecoder(SCHEMA).decode([zeros, fine, zeros])
    assert [(r.index, r.column) for r in found.rejects] == [(1, "amount31")]
    assert set(found.table["amount31"].to_pylist()) == {0}


def test_a_record_is_read_once_more_at_most_however_many_zeros_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[bytes]()

    def record(value: bytes) -> dict[str, Any]:
        read.append(value)
        return dict(json.loads(value, parse_float=str, parse_int=str))

    monkeypatch.setattr(fine_numbers, "_record", record)
    zeros = json.dumps(dict.fromkeys(AMOUNTS, 0)).encode()
    suspect = json.dumps({**dict.fromkeys(AMOUNTS, 0), "note": "1e-60 "}).encode()
    assert JsonDecoder(SCHEMA).decode([zeros, suspect, zeros]).rejects == ()
    assert read == [suspect]
