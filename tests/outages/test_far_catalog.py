# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL at the other end of a connection that is slow, half open, reset in mid-commit, or closed late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError
from airflow_provider_lakecommit.iceberg import catalog as table
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from dev.servers.toxiproxy import Proxy
from tests.outages.runs import Runs

pytestmark = [pytest.mark.postgres, pytest.mark.toxiproxy]

Make = Callable[..., Runs]
Spoil = Callable[[Proxy], AbstractContextManager[None]]


@contextmanager
def impatient(seconds: float) -> Iterator[None]:
    """Answers are waited for that long, and an unknown outcome is not looked for again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "ANSWER_SECONDS", seconds)
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=1.0))
        yield


@contextmanager
def spoilt_from_the_request_on(proxy: Proxy, spoil: Spoil) -> Iterator[None]:
    """The first commit request finds the connection spoilt, and so does all that comes after it."""
    real = SqlCatalog.commit_table
    # All that comes before the request must be answered in this time, on a busy machine too.
    with ExitStack() as spoilt, pytest.MonkeyPatch.context() as patch, impatient(10.0):

        def commit(self: SqlCatalog, *args: object, **kwargs: object) -> object:
            patch.setattr(SqlCatalog, "commit_table", real)
            spoilt.enter_context(spoil(proxy))
            return real(self, *args, **kwargs)  # type: ignore[arg-type]

        patch.setattr(SqlCatalog, "commit_table", commit)
        yield


@pytest.mark.parametrize(
    "spoil", [partial(Proxy.slow, milliseconds=150, jitter=50), partial(Proxy.closing_late, milliseconds=5000)]
)
def test_a_connection_that_is_only_slow_is_no_failure(make_runs: Make, before_postgres: Proxy, spoil: Spoil) -> None:
    runs = make_runs(before_postgres.port)
    runs.loaded()
    with spoil(before_postgres):
        for _ in range(2):
            assert isinstance(runs.loaded(), CycleOutcome)
    runs.check()
    assert runs.story().failed == set()


@pytest.mark.parametrize(
    ("spoil", "message"), [(Proxy.half_open, "no answer within 2 s"), (Proxy.resetting, ""), (Proxy.down, "refused")]
)
def test_runs_end_with_what_is_wrong_and_the_first_good_one_goes_on(
    make_runs: Make, before_postgres: Proxy, spoil: Spoil, message: str
) -> None:
    runs = make_runs(before_postgres.port)
    runs.loaded()
    with spoil(before_postgres), impatient(2.0):
        for error in (runs.loaded(), runs.loaded()):
            assert isinstance(error, CatalogError)
            assert message in str(error)
            assert "LC3361" in str(error)
    assert len(runs.story().failed) == 2
    runs.drained()
    runs.check()


@pytest.mark.parametrize("spoil", [Proxy.half_open, Proxy.resetting, partial(Proxy.cut_after, size=1)])
def test_a_commit_request_whose_answer_never_comes_is_found_or_sent_again_by_a_later_run(
    make_runs: Make, before_postgres: Proxy, spoil: Spoil
) -> None:
    runs = make_runs(before_postgres.port)
    runs.loaded()
    with spoilt_from_the_request_on(before_postgres, spoil):
        error = runs.loaded()
        assert isinstance(error, CommitUnknownError)
        assert "nothing was deleted" in str(error)
    runs.drained()
    runs.check()
    published = runs.story().published
    assert len(published) == len(set(published))


@pytest.mark.parametrize("size", [0, 90, 400, 700, 1500, 3000, 6000])
def test_connections_that_end_in_the_middle_of_an_answer_lose_and_double_nothing(
    make_runs: Make, before_postgres: Proxy, size: int
) -> None:
    runs = make_runs(before_postgres.port)
    runs.loaded()
    with before_postgres.cut_after(size), impatient(10.0):
        for _ in range(2):
            assert isinstance(runs.loaded(), CycleOutcome | CatalogError | CommitUnknownError)
    runs.drained()
    runs.check()
