# SPDX-License-Identifier: Apache-2.0
"""Where corruption ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.kafka.partition_tail import next_readable
from tests.support.story import STEADY


@STEADY
@given(st.integers(0, 50), st.integers(1, 200), st.integers(0, 300), st.integers(0, 5))
def test_the_end_of_corruption_is_found_by_trying(start: int, length: int, bad: int, gap: int) -> None:
    limit, tries = start + length, []

    def readable(offset: int) -> int | None:
        tries.append(offset)
        assert start <= offset < limit
        return None if offset < start + bad else offset + gap * (offset == start + bad)

    end = next_readable(readable, start, limit)
    assert end == min(limit, start + bad + (gap if bad == 0 else 0))
    assert len(tries) <= 20
