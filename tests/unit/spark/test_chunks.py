# SPDX-License-Identifier: Apache-2.0
"""Chunks: every record stays with its span, however what was polled is trimmed and cut."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider_lakecommit.spark.chunks import Chunk, Run, bounded, chunk_of


@dataclass(frozen=True)
class Record:
    """A record that knows its span."""

    span: int | None
    content: bytes | None

    def value(self) -> bytes | None:
        return self.content


def chunk(records: list[Any], runs: list[Run]) -> Chunk:
    return chunk_of(records, runs)


def owners(part: Chunk) -> list[int]:
    """The span of each record by the runs, which must cover the chunk without a hole."""
    assert [r.start for r in part.runs] == [0, *(r.end for r in part.runs[:-1])]
    assert part.runs[-1].end == len(part.messages) == len(part.values)
    return [r.span for r in part.runs for _ in range(r.start, r.end)]


def test_what_belongs_to_no_span_is_left_out() -> None:
    records = [Record(s, b"%d" % i) for i, s in enumerate([None, 3, 3, None, None, 0, 3, None])]

    trimmed = chunk(records, [Run(3, 1, 3), Run(0, 5, 6), Run(3, 6, 7)])

    assert [m.span for m in trimmed.messages] == [3, 3, 0, 3] == owners(trimmed)  # type: ignore[attr-defined]
    assert trimmed.values == [b"1", b"2", b"5", b"6"]


def test_nothing_that_belongs_to_a_span_is_an_empty_chunk() -> None:
    empty = chunk([Record(None, b"x")], [])

    assert (list(empty.messages), list(empty.runs), empty.bytes) == ([], [], 0)
    assert list(bounded(empty, 10)) == []


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_bounded_and_every_record_stays_with_its_span(seed: int) -> None:
    draw = random.Random(seed)
    spans = sorted(draw.choices(range(9), k=60)) if seed % 2 else draw.choices(range(9), k=60)
    records = [Record(s, draw.choice([None, b"", b"x" * draw.choice([1, 40, 99, 300])])) for s in spans]
    runs = [Run(s, i, i + 1) for i, s in enumerate(spans)]

    parts = list(bounded(chunk(records, runs), 100))

    assert [id(m) for p in parts for m in p.messages] == [id(r) for r in records]
    assert [s for p in parts for s in owners(p)] == spans
    assert all(p.bytes <= 100 or sum(1 for v in p.values if v) == 1 for p in parts)
    assert [p.bytes for p in parts] == [sum(len(v or b"") for v in p.values) for p in parts]
