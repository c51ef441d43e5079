# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from pathlib import Path

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError, ServerError, UnauthorizedError
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import OutcomeLookup, RetryPolicy
from tests.fakes.lake import Lake


def lookup(folder: Path) -> OutcomeLookup:
    return OutcomeLookup(
        tables=Lake(folder).tables, identifier="shop.orders", retry_policy=RetryPolicy(clock=lambda: 0.0)
    )


def after(tried: OutcomeLookup, *errors: Exception) -> OutcomeLookup:
    for error in errors:
        assert tried.may_send()
        tried.requests += 1
        tried.ended_with(error)
    return tried


def database_full() -> Exception:
    """What a database on a full disk really says."""
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE TABLE facts (fact TEXT)")
            connection.exec_driver_sql("PRAGMA max_page_count = 2")
            with pytest.raises(OperationalError) as full:
                connection.exec_driver_sql("INSERT INTO facts VALUES (?)", ("x" * 100_000,))
    finally:
        engine.dispose()
    return full.value


REFUSALS = [
    ForbiddenError("403"),
    UnauthorizedError("401"),
    BadRequestError("400"),
    OSError(errno.ENOSPC, "No space left on device"),
    database_full(),
]


@pytest.mark.parametrize("error", REFUSALS, ids=lambda e: type(e).__name__)
def test_three_refusals_in_a_row_are_enough(tmp_path: Path, error: Exception) -> None:
    assert not after(lookup(tmp_path), error, error, error).may_send()


def test_refusals_that_are_not_in_a_row_are_not(tmp_path: Path) -> None:
    refused, failed = ForbiddenError("403"), ServerError("500")
    assert after(lookup(tmp_path), refused, refused, failed, refused, refused).may_send()


def test_a_refused_commit_names_the_missing_right(tmp_path: Path) -> None:
    text = str(after(lookup(tmp_path), ForbiddenError("Principal may not write")).gave_up())
    assert "shop.orders" in text
    assert "Principal may not write: give the credentials of the connection the right to commit" in text
    text = str(after(lookup(tmp_path), ServerError("500")).gave_up())
    assert "500: check that the catalog runs and can be written" in text


def test_where_there_is_no_room_that_is_reported(tmp_path: Path) -> None:
    text = str(after(lookup(tmp_path), database_full()).gave_up())
    assert "database or disk is full" in text
    assert "free space for the catalog's database" in text
