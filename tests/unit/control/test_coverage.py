# SPDX-License-Identifier: Apache-2.0
"""Offset ranges as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.coverage import (
    coverage_from_json,
    coverage_to_json,
    offsets_from_json,
    offsets_to_json,
    spans_from_json,
    spans_to_json,
)
from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.values import COVERAGES, FOREIGN, OFFSETS, SPANS, STEADY, corrupted, value_or_error

P = SourcePartition("orders", 3, "id")
READERS = {coverage_from_json: Coverage, offsets_from_json: dict, spans_from_json: tuple}


def through_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


@STEADY
@given(COVERAGES)
def test_a_coverage_survives(coverage: Coverage) -> None:
    assert coverage_from_json(through_json(coverage_to_json(coverage))) == coverage


@STEADY
@given(OFFSETS)
def test_offsets_survive(offsets: dict[SourcePartition, int]) -> None:
    assert offsets_from_json(through_json(offsets_to_json(offsets))) == offsets


@STEADY
@given(SPANS)
def test_spans_survive_with_their_borders(spans: tuple[Span, ...]) -> None:
    assert spans_from_json(through_json(spans_to_json(spans))) == spans


def test_two_touching_spans_stay_two() -> None:
    spans = (Span(P, OffsetRange(0, 5)), Span(P, OffsetRange(5, 9)))
    assert spans_to_json(spans) == [["orders", "id", {"3": [0, 5, 5, 9]}]]
    assert spans_from_json(spans_to_json(spans)) == spans


def test_a_coverage_is_one_entry_a_topic() -> None:
    c = Coverage({P: RangeSet.of((0, 5), (7, 9)), SourcePartition("orders", 10, "id"): RangeSet.of((1, 2))})
    assert coverage_to_json(c) == [["orders", "id", {"3": [0, 5, 7, 9], "10": [1, 2]}]]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([["t", "id", {"0": [1]}]], id="half a range"),
        pytest.param([["t", "id", {"0": [5, 3]}]], id="a range backwards"),
        pytest.param([["t", "id", {"0": [-1, 3]}]], id="below 0"),
        pytest.param([["t", "id", {"0": [0, 1.5]}]], id="a broken number"),
        pytest.param([["t", "id", {"0": ["0", "3"]}]], id="texts"),
        pytest.param([["t", "id", {"0": "12"}]], id="a text for ranges"),
        pytest.param([["t", "id", {"0": {"0": 1}}]], id="an object for ranges"),
        pytest.param([["t", "id", {"-1": [0, 1]}]], id="a partition below 0"),
        pytest.param([["t", "id", {"0": [0, 1], "00": [1, 2]}]], id="a partition told twice"),
        pytest.param([["t", "id", {"0": [0, 1]}], ["t", "id", {"0": [4, 5]}]], id="a topic told twice"),
        pytest.param([[["t"], "id", {"0": [0, 1]}]], id="a topic that is no text"),
        pytest.param([["t", None, {"0": [0, 1]}]], id="a topic id that is no text"),
        pytest.param([["t", {"0": [0, 1]}]], id="no topic id"),
        pytest.param(7, id="no list"),
    ],
)
@pytest.mark.parametrize("read", [coverage_from_json, spans_from_json])
def test_corruption_is_a_wire_error(read: Any, values: Any) -> None:
    with pytest.raises(WireError, match="LC2337"):
        read(values)


@pytest.mark.parametrize("value", ["5", 1.0, True, None, [5]])
def test_an_offset_that_is_no_complete_number_is_a_wire_error(value: object) -> None:
    with pytest.raises(WireError, match="LC2338"):
        offsets_from_json([["t", "id", {"0": value}]])


@STEADY
@given(st.data(), COVERAGES)
def test_no_corruption_does_worse_than_a_wire_error(data: st.DataObject, coverage: Coverage) -> None:
    values = data.draw(corrupted(coverage_to_json(coverage)) | FOREIGN)
    for read, kind in READERS.items():
        assert isinstance(value_or_error(read, values), (kind, WireError))
