# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError, ServerError, UnauthorizedError

from airflow_provider_lakecommit.committer.outcome_lookup import OutcomeLookup, RetryPolicy
from tests.fakes.lake import Lake


def lookup(folder: Path) -> OutcomeLookup:
    return OutcomeLookup(
        tables=Lake(folder).tables, identifier="shop.orders", retry_policy=RetryPolicy(clock=lambda: 0.0)
    )


def after(looked: OutcomeLookup, *errors: Exception) -> OutcomeLookup:
    for error in errors:
        assert looked.may_send()
        looked.requests += 1
        looked.ended_with(error)
    return looked


@pytest.mark.parametrize("error", [ForbiddenError("403"), UnauthorizedError("401"), BadRequestError("400")])
def test_three_refusals_in_a_row_are_enough(tmp_path: Path, error: Exception) -> None:
    assert not after(lookup(tmp_path), error, error, error).may_send()


def test_refusals_that_are_not_in_a_row_are_not(tmp_path: Path) -> None:
    refused, failed = ForbiddenError("403"), ServerError("500")
    assert after(lookup(tmp_path), refused, refused, failed, refused, refused).may_send()


def test_who_may_not_commit_is_told_to_get_the_right(tmp_path: Path) -> None:
    told = str(after(lookup(tmp_path), ForbiddenError("Principal may not write")).gave_up())
    assert "shop.orders" in told
    assert "Principal may not write: give the credentials of the connection the right to commit" in told
    told = str(after(lookup(tmp_path), ServerError("500")).gave_up())
    assert "500: check that the catalog runs and can be written" in told
