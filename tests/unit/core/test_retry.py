# SPDX-License-Identifier: Apache-2.0
"""Which blocked ranges are tried again by themselves, and under which budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_lakecommit.core.blocks import lifted, outdated, own_budget
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.state import Blocked

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
P = SourcePartition("orders", 0, "id")


def block(start: int, spec: str, rules: str) -> Blocked:
    coverage = Coverage.of([(P, OffsetRange(start, start + 10))])
    return Blocked(coverage=coverage, reason="bad", offset=start, at=NOON, spec_version=spec, rules=rules)


@pytest.mark.parametrize(
    ("spec", "rules", "again"),
    [
        pytest.param("a", "a/1", False, id="nothing has changed"),
        pytest.param("b", "b/1", True, id="the spec has changed"),
        pytest.param("b", "", True, id="the spec has changed since it was blocked"),
        pytest.param("a", "", False, id="nothing is known of the columns when it was blocked"),
        pytest.param("a", "a/2", True, id="the columns have changed"),
    ],
)
def test_a_block_is_outdated_by_the_spec_or_by_the_columns(spec: str, rules: str, again: bool) -> None:
    state = replace(fold((), (), timedelta(hours=1)), blocked=(block(0, spec, rules), block(20, "a", "a/1")))
    found = outdated(state, "a", "a/1")
    assert found == (state.blocked[:1] if again else ())
    after, raised = lifted(state, found, Budget(max_records=5, max_ratio=0.5))
    assert after.blocked == (state.blocked[1:] if again else state.blocked)
    assert [coverage for coverage, _ in raised] == ([state.blocked[0].coverage] if again else [])


def test_without_a_dead_letter_table_no_record_may_be_rejected() -> None:
    stated = Budget(max_records=5, max_ratio=0.5)
    assert own_budget(stated, "shop.dead") == stated
    assert own_budget(stated, None) == Budget(max_records=0, max_ratio=0.0)
