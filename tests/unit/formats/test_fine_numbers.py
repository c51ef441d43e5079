# SPDX-License-Identifier: Apache-2.0
"""Numbers that are too fine never reach the parser, however they are written; other records are not read twice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField, StringType

from airflow_provider_lakecommit.formats import guards
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from tests.support.forks import Forks
from tests.unit.formats import fuzz_values

FORKS = Forks(("tests.unit.formats.fuzz_values",))
AMOUNTS = [f"amount{n}" for n in range(50)]
SCHEMA = Schema(
    *(NestedField(n, name, DecimalType(9, 2)) for n, name in enumerate(AMOUNTS, 1)),
    NestedField(99, "note", StringType()),
)


@pytest.mark.parametrize("written", ["1e-60", "9E-0061", f"0.{'0' * 60}1", '"1e-60"', "0e-60"])
def test_the_one_that_is_too_fine_is_found_among_zeros(written: str) -> None:
    zeros = json.dumps(dict.fromkeys(AMOUNTS, 0)).encode()
    fine = zeros.replace(b'"amount31": 0', b'"amount31": ' + written.encode())
    found = JsonDecoder(SCHEMA).decode([zeros, fine, zeros])
    assert [(r.index, r.column) for r in found.rejects] == [(1, "amount31")]
    assert set(found.table["amount31"].to_pylist()) == {0}


def test_numbers_just_within_what_the_parser_counts_are_its_own() -> None:
    values = [b'{"amount0":0e-40}', b'{"amount0":0E-18}', f'{{"amount0":0.5{"0" * 39}}}'.encode(), b'{"amount0":1e-41}']
    found = JsonDecoder(SCHEMA).decode(values)
    assert found.table["amount0"].to_pylist()[:2] == [0, 0]
    assert [r.index for r in found.rejects] == [2, 3]


def test_only_suspects_are_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def loads(value: str, **how: Any) -> Any:
        read.append(value)
        return json.loads(value, **how)

    monkeypatch.setattr(guards, "json", SimpleNamespace(loads=loads))
    zeros = json.dumps(dict.fromkeys(AMOUNTS, 0)).encode()
    suspect = json.dumps({**dict.fromkeys(AMOUNTS, 0), "note": "1e-60 "}).encode()
    assert JsonDecoder(SCHEMA).decode([zeros, suspect, zeros]).rejects == ()
    assert read == [suspect.decode()]
    assert JsonDecoder(Schema(NestedField(99, "note", StringType()))).decode([suspect, suspect]).rejects == ()
    assert len(read) == 1


@pytest.mark.parametrize("story", fuzz_values.STORIES)
def test_no_record_ends_the_process(story: str) -> None:
    done = FORKS.run("tests.unit.formats.fuzz_values:main", story, timeout=600)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}"
