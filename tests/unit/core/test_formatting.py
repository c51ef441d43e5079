# SPDX-License-Identifier: Apache-2.0
"""Numbers, times and partitions as people read them."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.formatting import duration_text, partitions_text, short_number
from airflow_provider_lakecommit.core.offsets import SourcePartition


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1k"),
        (1000, "1k"),
        (1234, "1.2k"),
        (9960, "10k"),
        (240_000, "240k"),
        (1_500_000, "1.5M"),
        (2_000_000_000, "2G"),
    ],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short_number(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (90, "1 min"), (5399, "89 min"), (9000, "2.5 h")]
)
def test_times_are_as_users_state_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([("orders", 4), ("orders", 0), ("orders", 4)], "orders[0,4]"),
        ([("b", 1), ("a", 0)], "a[0] b[1]"),
        ([("a", n) for n in range(6)], "a[0,1,2,3, 2 more]"),
        ([(topic, 0) for topic in "abcde"], "a[0] b[0] c[0] and 2 topics"),
        ([], ""),
    ],
)
def test_partitions_are_named_by_topic(places: list[tuple[str, int]], text: str) -> None:
    assert partitions_text(SourcePartition(topic, number, "id") for topic, number in places) == text
