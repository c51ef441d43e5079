# SPDX-License-Identifier: Apache-2.0
"""Warnings on empty, expired, compacted and partly removed topics: at most one for each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.headroom import source_notes
from airflow_provider_lakecommit.core.planning.missing import Watermark

EMPTY = "topic orders is empty: nothing was produced to it"
EXPIRED = "topic orders has no records: its retention removed all 60,000 offsets before they were landed"
LATE = "topic orders begins late: its retention removed 60,000 of 100,000 offsets before they were landed"
COMPACTED = "topic orders is compacted"


def marks(*of_orders: tuple[int, int]) -> Mapping[SourcePartition, Watermark]:
    return {
        SourcePartition("orders", n, "id"): Watermark(start=start, stable=end, high=end)
        for n, (start, end) in enumerate(of_orders)
    }


@pytest.mark.parametrize(
    ("found", "compacted", "earliest", "message"),
    [
        ([(0, 0), (0, 0)], (), True, EMPTY),
        ([(0, 0)], ("orders",), False, EMPTY),
        ([(60_000, 60_000)], (), True, EXPIRED),
        ([(50_000, 50_000), (10_000, 10_000)], ("orders",), True, EXPIRED),
        ([(60_000, 100_000)], (), True, LATE),
        ([(60_000, 60_000), (0, 40_000)], (), True, LATE),
        ([(5, 100)], ("orders",), True, COMPACTED),
        ([(0, 100)], ("orders",), False, COMPACTED),
        ([(0, 100), (0, 0)], (), True, None),
        ([(60_000, 60_000)], (), False, None),
        ([(60_000, 100_000)], ("others",), False, None),
    ],
)
def test_a_topic_has_one_warning(
    found: Sequence[tuple[int, int]], compacted: Sequence[str], earliest: bool, message: str | None
) -> None:
    notes = list(source_notes(marks(*found), Coverage(), compacted, earliest=earliest))
    assert len(notes) == (message is not None)
    assert message is None or notes[0].startswith(message)


def test_a_topic_with_landed_records_has_none() -> None:
    landed = Coverage.of([(SourcePartition("orders", 0, "id"), OffsetRange(0, 5))])
    assert not list(source_notes(marks((60_000, 60_000), (0, 0)), landed, ("orders",), earliest=True))
