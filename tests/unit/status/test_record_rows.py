# SPDX-License-Identifier: Apache-2.0
"""Rows counted by the record that they are of."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.status.record_rows import _Tally
from tests.support.story import P0, coverage


@pytest.mark.parametrize(("start", "end", "there"), [(0, 30, 3), (0, 10, 0), (0, 22, 2), (22, 40, 1), (24, 26, 0)])
def test_offsets_of_a_reading_that_have_no_row_are_counted_as_none(start: int, end: int, there: int) -> None:
    """Aborted records before the first row, behind the last one and between: none of them may have a row."""
    tally = _Tally.of({7: coverage([(P0, 20, 24), (P0, 26, 28)])})
    offsets = [20, 21, 27]
    tally.add(
        pa.array([P0.topic] * 3),
        pa.array([P0.partition] * 3),
        pa.array(offsets, pa.int64()),
        pa.array([7] * 3, pa.int64()),
    )
    assert tally.there((P0.topic, P0.partition, 7), OffsetRange(start, end)) == there
