# SPDX-License-Identifier: Apache-2.0
"""Which partitions are hot, and how far a landing is behind."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.page.partitions import PagePartition, hot, lags


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        ([], set()),
        ([100_000], set()),
        ([100_000, 100_000], set()),
        ([100_000, 10], {0}),
        ([99, 0], set()),
        ([300, 200, 100], set()),
        ([10, 20, 900, 10], {2}),
        ([0, 0, 0, 0], set()),
        ([1000, 1000, 1, 1, 1, 1, 1, 1], {0, 1}),
    ],
)
def test_a_hot_partition_holds_most_of_what_is_behind(behind: list[int], found: set[int]) -> None:
    partitions = [
        PagePartition(topic="orders", partition=n, published=50, end=50 + each) for n, each in enumerate(behind)
    ]
    assert {n for _, n in hot(partitions)} == found


def test_lags_are_two_numbers_and_none_where_nothing_is_known() -> None:
    assert lags({}, {}, {}) == (None, None)
    p, q = ("orders", 0), ("orders", 1)
    assert lags({p: 60}, {p: 40}, {p: 100, q: 5}) == (45, 20)
    assert lags({p: 60}, {p: 60}, {p: 50}) == (0, 0)
