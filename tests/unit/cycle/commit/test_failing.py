# SPDX-License-Identifier: Apache-2.0
"""Tables that commits fail for: when each is tried again, and what is said of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from airflow_provider_lakecommit.cycle.commit import failing
from airflow_provider_lakecommit.cycle.commit.failing import PAUSES, SPARE, FailingTables
from airflow_provider_lakecommit.exceptions import CatalogError, TableError

A, B, DEAD = "shop.a", "shop.b", "shop.dead"
NONE: frozenset[str] = frozenset()


class Clocked:
    """By a clock of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.lines: list[str] = []
        monkeypatch.setattr(failing, "monotonic", lambda: self.now)
        self.tables = FailingTables((A, B), self.lines.append)

    def commit(self, *fail: str, seconds: float = 0.0, error: str = "away") -> frozenset[str]:
        left, _ = self.tables.begin()
        self.now += seconds
        tried = {A, B, DEAD} - left
        failures = {name: CatalogError("LC9999", f"{error} at {self.now}") for name in fail if name in tried}
        self.tables.note(failures, tried - set(failures), others=True)
        return left


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    return Clocked(monkeypatch)


def test_a_table_is_tried_ever_more_rarely_and_reported_once(clocked: Clocked) -> None:
    tries = []
    for second in range(300):
        clocked.now = float(second)
        if clocked.commit(A) == NONE:
            tries.append(second)
    gaps = [b - a for a, b in pairwise(tries)]
    assert gaps[:5] == [1, *PAUSES[1:5]]
    assert set(gaps[5:]) == {PAUSES[-1]}
    more = "other tables continue, the slices of this one are kept and retried"
    assert clocked.lines == [f"WARNING: {A}: away at 0.0 [LC9999]; {more}"]
    clocked.commit(A, error="no rights")
    clocked.tables.try_all()
    clocked.commit(A, error="no rights")
    clocked.tables.try_all()
    clocked.commit()
    assert clocked.lines[1].startswith(f"WARNING: {A}: no rights at ")
    assert len(clocked.lines) == 3
    row = f"{len(tries) + 1} failed commits in a row"
    assert clocked.lines[-1].startswith(f"WARNING: {A} accepts commits again, after {row}")
    assert clocked.tables.error() is None


def test_one_that_takes_long_is_left_out_for_longer(clocked: Clocked) -> None:
    clocked.commit(A, seconds=1000.0)
    assert clocked.commit(A, seconds=100.0) == NONE, "the first one was patient, this one is not"
    clocked.now += SPARE * 100.0 - 1
    assert clocked.tables.begin() == (frozenset({A}), frozenset({A}))
    clocked.now += 1
    assert clocked.tables.begin() == (NONE, frozenset({A}))


def test_where_no_table_of_rows_would_be_left_none_is_left_out(clocked: Clocked) -> None:
    clocked.commit(A, B, DEAD, seconds=10.0)
    clocked.commit(A, B, DEAD, seconds=10.0)
    assert clocked.tables.begin()[0] == NONE


def test_a_commit_without_waiters_is_patient(clocked: Clocked) -> None:
    clocked.commit(A, seconds=10.0)
    clocked.commit(A, seconds=10.0)
    clocked.tables.try_all()
    assert clocked.tables.begin() == (NONE, NONE)


def test_the_end_is_reported_by_the_names_and_whether_trying_again_can_help(clocked: Clocked) -> None:
    clocked.tables.note(
        {DEAD: TableError("LC9999", "its column is gone"), A: CatalogError("LC9999", f"{A} is away")}, (), others=True
    )
    error = clocked.tables.error()
    assert isinstance(error, TableError)
    message = f"{DEAD}: its column is gone [LC9999]; {A}: {A} is away [LC9999]; the next run publishes"
    assert str(error) == f"{message} the slices that wait for {DEAD}, {A} [LC6241]"
