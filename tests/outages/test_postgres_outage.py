# SPDX-License-Identifier: Apache-2.0
"""A catalog in PostgreSQL that goes away and comes back under a steady load.

Time is scaled down: there are as many cycles as fifteen minutes have at thirty seconds each, and a cycle takes what it
takes. The server is really stopped, killed and frozen; the driver, the sockets and the error messages are the real
ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.core.log import CycleOpened
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError
from airflow_provider_lakecommit.iceberg import catalog as table
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.stall.verdict import Verdict
from dev.servers.postgres import Postgres
from tests.outages.runs import Runs

pytestmark = pytest.mark.postgres

CYCLES = 30
"""Of thirty seconds each, fifteen minutes."""


def test_an_outage_of_thirty_cycles_costs_nothing_but_its_own_time(
    make_runs: Callable[..., Runs], postgres: Postgres
) -> None:
    runs = make_runs()
    for _ in range(3):
        assert isinstance(runs.loaded(), CycleOutcome)
    before = runs.story()
    assert set(before.verdicts[-3:]) == {Verdict.HEALTHY}

    # The server goes while a window is being written: what is written is kept, and that is the last window.
    first = runs.loaded(meanwhile=postgres.stop)
    errors = [first, *(runs.loaded() for _ in range(CYCLES - 1))]
    assert {type(e) for e in errors} == {CatalogError}
    assert all("LC3361" in str(e) for e in errors)
    during = runs.story().since(len(before))
    assert len(during.opened) == CYCLES
    assert during.failed == set(during.opened)
    assert during.planned == during.opened[:1]
    assert during.complete == []
    assert during.published == []
    # A START and its evidence a cycle, and the slices of the one window.
    reasons = [e.plan.reason for e in during.entries if isinstance(e, CycleOpened)]
    assert all("catalog away" in str(reason) for reason in reasons[1:])
    third = [i for i, e in enumerate(during.entries) if e.commit_id == during.opened[2]][-1]
    assert set(during.verdicts[third:]) == {Verdict.STALLED}

    postgres.start()
    back = runs.loaded()
    assert isinstance(back, CycleOutcome)
    after = runs.story().since(len(before) + len(during))
    assert after.complete == after.opened
    assert after.verdicts[-1] is Verdict.HEALTHY
    assert runs.drained(within=2) <= 2
    runs.check()
    story = runs.story()
    assert len(story.published) == len(set(story.published))


def test_a_catalog_that_takes_no_commits_gets_no_windows_after_three_cycles(
    make_runs: Callable[..., Runs], postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_runs()
    runs.loaded()
    before = len(runs.story())
    with postgres.read_only(), monkeypatch.context() as patch:
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=1.0))
        errors = [runs.loaded() for _ in range(8)]
    assert {type(e) for e in errors} <= {CatalogError, CommitUnknownError}
    during = runs.story().since(before)
    assert during.failed == set(during.opened)
    assert during.planned == during.opened[: runs.world.landing.backpressure.stalled_cycles]
    assert during.complete == []
    assert isinstance(runs.loaded(), CycleOutcome)
    assert runs.story().verdicts[-1] is Verdict.HEALTHY
    runs.drained(within=2)
    runs.check()


@pytest.mark.parametrize("end", [Postgres.stop, Postgres.kill])
def test_a_catalog_that_comes_and_goes_lands_all_in_the_cycles_in_which_it_is_there(
    make_runs: Callable[..., Runs], postgres: Postgres, end: Callable[[Postgres], None]
) -> None:
    runs = make_runs()
    for turn in range(6):
        outcome = runs.loaded(meanwhile=lambda: end(postgres)) if turn % 2 else runs.loaded()
        assert isinstance(outcome, CatalogError if turn % 2 else CycleOutcome)
        postgres.start()
    runs.drained()
    runs.check()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_request_is_waited_out_by_the_same_run(
    make_runs: Callable[..., Runs], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    runs = make_runs()
    runs.loaded()
    runs.load()
    real, coming_back = SqlCatalog.commit_table, threading.Thread(target=postgres.start)

    def crash(self: SqlCatalog, *args: object, **kwargs: object) -> object:
        monkeypatch.setattr(SqlCatalog, "commit_table", real)
        if when == "after":
            real(self, *args, **kwargs)  # type: ignore[arg-type]
        postgres.kill()
        coming_back.start()
        if when == "after":
            raise ConnectionError("the answer is lost")
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(SqlCatalog, "commit_table", crash)
    outcome = runs.run()
    coming_back.join()
    assert isinstance(outcome, CycleOutcome)
    assert outcome.closed.rows == runs.portion
    runs.check()
    assert runs.story().failed == set()


def test_a_commit_whose_outcome_cannot_be_learned_is_found_by_a_later_run(
    make_runs: Callable[..., Runs], postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = make_runs()
    runs.loaded()
    runs.load()
    real = SqlCatalog.commit_table

    def crash(self: SqlCatalog, *args: object, **kwargs: object) -> object:
        real(self, *args, **kwargs)  # type: ignore[arg-type]
        postgres.kill()
        raise ConnectionError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", crash)
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=1.0))
        unknown = runs.run()
    assert isinstance(unknown, CommitUnknownError)
    assert "LC3019" in str(unknown)
    assert isinstance(runs.loaded(), CatalogError)
    postgres.start()
    runs.drained()
    runs.check()
    story = runs.story()
    assert len(story.published) == len(set(story.published))
    assert len(story.failed) == 2


@pytest.mark.parametrize("where", ["between runs", "at the commit request"])
def test_a_catalog_that_stalls_is_given_up_in_time_and_may_do_late_what_it_was_requested(
    make_runs: Callable[..., Runs], postgres: Postgres, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    runs = make_runs()
    runs.loaded()
    runs.load()
    real = SqlCatalog.commit_table

    def freeze(self: SqlCatalog, *args: object, **kwargs: object) -> object:
        postgres.freeze()
        return real(self, *args, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        # The request is the last of several questions; those before it must be answered in this time.
        patch.setattr(table, "ANSWER_SECONDS", 10.0)
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=1.0))
        if where == "between runs":
            postgres.freeze()
        else:
            patch.setattr(SqlCatalog, "commit_table", freeze)
        first, second = runs.run(), runs.loaded()
    assert isinstance(first, CatalogError if where == "between runs" else CommitUnknownError)
    assert isinstance(second, CatalogError)
    assert "no answer within 10 s" in str(second)
    # What hangs in the driver goes on now, next to the runs that come.
    postgres.thaw()
    runs.drained()
    runs.check()
    story = runs.story()
    assert len(story.failed) == 2
    assert len(story.published) == len(set(story.published))
