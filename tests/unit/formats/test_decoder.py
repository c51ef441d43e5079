# SPDX-License-Identifier: Apache-2.0
"""What all formats share: their registry, and how bad values are isolated by halving."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from airflow_provider_lakecommit.core.formats import DEFAULTS, FORMATS, ONE_ROW_EACH, FormatOptions
from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.decoder import REASON_LENGTH, Decoded, Refusal, Reject, decoder_for, halved
from airflow_provider_lakecommit.landing import Landing
from tests.support.declared import landing_of
from tests.support.lines import LINES, SCHEMA, LineDecoder

METADATA = frozenset({"kafka_partition", "kafka_offset"})
BAD = b"\xff"


def lines() -> LineDecoder:
    return LineDecoder(SCHEMA, DEFAULTS, METADATA)


OPTIONS: Mapping[str, dict[str, Any]] = {
    "csv": {"csv": {"columns": ["id"]}},
    "protobuf": {"schema": 'syntax = "proto3"; message M { int64 id = 1; }'},
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_can_be_loaded(name: str) -> None:
    kind = BinaryType() if name == "raw" else LongType()
    decoder = decoder_for(Schema(NestedField(1, "id", kind)), FormatOptions(format=name, **OPTIONS.get(name, {})))
    assert decoder.schema.names == ["id"]
    decoder.close()


def test_json_is_the_default_and_gives_one_row_of_each_record() -> None:
    assert isinstance(decoder_for(Schema(NestedField(1, "id", LongType())), DEFAULTS), JsonDecoder)
    assert set(FORMATS) >= ONE_ROW_EACH


def test_a_format_that_is_registered_can_be_declared_and_gets_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="LC1102"):
        Landing(name="a", topics="a", table="a.b", format="lines")
    monkeypatch.setitem(FORMATS, "lines", LINES)

    landing = landing_of(name="a", topics="a", table="a.b", format="lines", encodings={"line": "utf8"})
    decoder = decoder_for(SCHEMA, landing.format_options, METADATA)

    assert isinstance(decoder, LineDecoder)
    assert decoder.options == FormatOptions(format="lines", encodings={"line": "utf8"})
    with pytest.raises(TableError, match="LC9999"):
        decoder_for(SCHEMA, landing.format_options)


def test_a_clean_block_costs_one_pass() -> None:
    decoder = lines()
    decoded = decoder.decode([b"x"] * 10_000)
    assert (decoder.blocks, decoded.table.num_rows, decoded.rejects) == ([10_000], 10_000, ())


def test_a_bad_value_costs_a_logarithm() -> None:
    decoder = lines()
    decoded = decoder.decode([b"x"] * 7000 + [BAD] + [b"x"] * 9000)
    assert [r.index for r in decoded.rejects] == [7000]
    assert len(decoder.blocks) <= 2 * math.log2(16_001) + 16
    assert sum(decoder.blocks) <= 3 * 16_001


@pytest.mark.parametrize("seed", range(30))
def test_every_value_is_in_its_place_however_many_are_bad(seed: int) -> None:
    draw = random.Random(seed)
    share = draw.choice([0.01, 0.2, 0.9, 1.0])
    values = [
        BAD if draw.random() < share else b"\n".join([b"%d" % i] * draw.choice([0, 1, 1, 3]))
        for i in range(draw.choice([1, 2, 17, 300]))
    ]

    decoded = lines().decode(values)

    assert decoded.records is not None
    assert decoded.table["line"].to_pylist() == [str(i) for i in decoded.records]
    assert list(decoded.records) == [i for i, v in enumerate(values) if v != BAD for _ in v.splitlines()]
    assert list(decoded.filtered) == [i for i, v in enumerate(values) if v == b""]
    assert [r.index for r in decoded.rejects] == [i for i, v in enumerate(values) if v == BAD]
    assert decoded.table.schema == lines().schema


def test_values_that_fail_alike_are_found_at_once_and_all_are_in_their_position() -> None:
    bad = {n: b"b" if n % 3 else b"c" for n in range(0, 1000, 2)}
    values = [bad.get(n, b"%d" % n) for n in range(1000)]
    passes = list[int]()

    def decode(block: Sequence[bytes]) -> Decoded:
        passes.append(len(block))
        if (first := next((v for v in block if v in (b"b", b"c")), None)) is not None:
            raise Refusal(first.decode(), None, "bad")
        return Decoded(table=pa.table({"v": pa.array([int(v) for v in block], pa.int64())}))

    def alike(block: Sequence[bytes], refusal: Refusal) -> dict[int, Refusal]:
        return {i: refusal for i, v in enumerate(block) if v == refusal.kind.encode()}

    found = halved(values, decode, alike=alike)
    assert {r.index: r.kind.encode() for r in found.rejects} == bad
    assert found.records == found.table.column("v").to_pylist() == [n for n in range(1000) if n not in bad]
    assert len(passes) < 20


def test_a_reason_is_cut_and_printable() -> None:
    reject = Reject.of(3, Refusal("wrong_value", "a\ud800", "x" * 1000))
    assert (reject.index, reject.column, len(reject.reason)) == (3, "a\\ud800", REASON_LENGTH)
