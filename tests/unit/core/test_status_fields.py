# SPDX-License-Identifier: Apache-2.0
"""What `status --json`, `history --json` and the status API share bears one name in all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.core import status_fields
from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.page.answers import LandingAnswer, PendingAnswer
from airflow_provider_lakecommit.page.cycle_answers import CycleAnswer, WindowAnswer
from airflow_provider_lakecommit.page.detail_answers import PartitionAnswer

PACKAGE = Path(status_fields.__file__).parents[1]
SHARED: dict[Callable[..., dict[str, Any]], dict[str, Any]] = {
    status_fields.pending_fields: {"slices": 1, "files": 2, "bytes": 3},
    status_fields.lag_fields: {"read_lag": 1, "commit_lag": 2, "valid_through": None},
    status_fields.cycle_fields: {"commit_id": "c", "dag": "d", "run": "r"},
    status_fields.partition_fields: {"partition": "t[0]", "landed": 1, "reported": 2, "stable": 3, "lag": 2},
}


@pytest.mark.parametrize("made", SHARED, ids=lambda made: made.__name__)
def test_a_name_is_what_the_value_is_given_by(made: Callable[..., dict[str, Any]]) -> None:
    assert made(**SHARED[made]) == SHARED[made]


def test_an_account_is_a_sum_and_its_parts() -> None:
    statuses = status_fields.account_fields(Counts(landed=5, rejected=4, filtered=3, gaps=2, skipped=1))
    assert statuses == {"read": 15, "landed": 5, "rejected": 4, "filtered": 3, "gaps": 2, "skipped": 1}


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        (LandingAnswer, status_fields.lag_fields),
        (PendingAnswer, status_fields.pending_fields),
        (PartitionAnswer, status_fields.partition_fields),
        (CycleAnswer, status_fields.cycle_fields),
        (WindowAnswer, status_fields.cycle_fields),
    ],
)
def test_the_api_has_all_of_them(answer: Any, made: Callable[..., dict[str, Any]]) -> None:
    assert set(SHARED[made]) <= set(answer.model_fields)


@pytest.mark.parametrize("answer", [CycleAnswer, WindowAnswer])
def test_cycles_of_the_api_have_accounts(answer: Any) -> None:
    assert set(status_fields.account_fields(Counts())) <= set(answer.model_fields)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("status/status.py", {"lag", "pending", "cycle", "partition"}),
        ("status/landing_history.py", {"account", "cycle"}),
        ("page/answers.py", {"lag", "pending"}),
        ("page/detail_answers.py", {"partition"}),
        ("page/cycle_answers.py", {"account", "cycle"}),
    ],
)
def test_both_sides_take_them_from_there(module: str, expected: set[str]) -> None:
    text = (PACKAGE / module).read_text(encoding="utf-8")
    assert set(re.findall(r"\*?\*?\b(\w+)_fields\(", text)) == expected
