# SPDX-License-Identifier: Apache-2.0
"""Budgets of rejected records as a truth table."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.budgets import over_budget
from airflow_provider_lakecommit.core.model import Budget


@pytest.mark.parametrize(
    ("rejected", "records", "max_records", "max_ratio", "over"),
    [
        pytest.param(0, 0, 0, 0.0, None, id="an empty slice is within any budget"),
        pytest.param(0, 100, 0, 0.0, None, id="nothing rejected is within any budget"),
        pytest.param(10, 10_000, 10, 0.01, None, id="the count may be reached"),
        pytest.param(11, 10_000, 10, 0.01, "max_records=10", id="the count may not be passed"),
        pytest.param(1, 1, 10, 0.01, None, id="one bad record alone says nothing about a ratio"),
        pytest.param(99, 100, 1000, 0.01, None, id="below 1/ratio rejected records no ratio is judged"),
        pytest.param(100, 9_999, 1000, 0.01, "max_ratio=0.01", id="from 1/ratio on it is"),
        pytest.param(100, 10_000, 1000, 0.01, None, id="the ratio may be reached"),
        pytest.param(3, 3, 1000, 1.0, None, id="a ratio of 1 allows all"),
        pytest.param(1, 10_000, 1000, 0.0, "max_ratio=0", id="a ratio of 0 allows none"),
    ],
)
def test_over_budget(rejected: int, records: int, max_records: int, max_ratio: float, over: str | None) -> None:
    reason = over_budget(rejected, records, Budget(max_records=max_records, max_ratio=max_ratio))
    if over is None:
        assert reason is None
    else:
        assert reason == f"{rejected} rejected records of {records} are over dead_letters.{over}"


@pytest.mark.parametrize("max_ratio", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("max_records", [0, 3, 1000])
def test_what_is_over_with_the_rest_good_stays_so_whatever_comes(max_records: int, max_ratio: float) -> None:
    budget, most = Budget(max_records=max_records, max_ratio=max_ratio), 500
    for rejected in range(0, 501, 7):
        if over_budget(rejected, most, budget) is None:
            continue
        assert all(over_budget(rejected + more, most, budget) for more in range(0, most - rejected + 1, 11))
        # Fewer records, as of a compacted range, make it no better.
        assert over_budget(rejected, max(rejected, 1), budget)
