# SPDX-License-Identifier: Apache-2.0
"""Brokers at the other end of a connection that is slow, half open, reset or closed late; brokers that are restarted in
the middle of a cycle, or are away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import ControlTopicError, SourceUnavailableError, Terminal
from dev.servers.kafka import Broker
from dev.servers.toxiproxy import Proxy
from tests.outages.runs import FarRuns

pytestmark = pytest.mark.toxiproxy

Far = tuple[Broker, Proxy]
Spoil = Callable[[Proxy], AbstractContextManager[None]]


@pytest.fixture
def at_the_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object], str], None]:
    """`at_the_commit(act, "before" | "after")`: the next commit request has that happen around it, once."""
    real = SqlCatalog.commit_table

    def hang(act: Callable[[], object], when: str) -> None:
        def commit(self: SqlCatalog, *args: object, **kwargs: object) -> object:
            monkeypatch.setattr(SqlCatalog, "commit_table", real)
            if when == "before":
                act()
            answer = real(self, *args, **kwargs)  # type: ignore[arg-type]
            if when == "after":
                act()
            return answer

        monkeypatch.setattr(SqlCatalog, "commit_table", commit)

    return hang


@pytest.mark.parametrize(
    "spoil", [partial(Proxy.slow, milliseconds=100, jitter=50), partial(Proxy.closing_late, milliseconds=5000)]
)
def test_a_connection_that_is_only_slow_is_no_failure(far_runs: FarRuns, far_broker: Far, spoil: Spoil) -> None:
    far_runs.loaded()
    with spoil(far_broker[1]):
        assert isinstance(far_runs.loaded(), CycleOutcome)
    far_runs.check()
    assert far_runs.story().failed == set()


@pytest.mark.parametrize("spoil", [Proxy.half_open, Proxy.resetting, Proxy.down])
def test_a_run_that_finds_no_brokers_reports_it_and_the_next_one_goes_on(
    far_runs: FarRuns, far_broker: Far, spoil: Spoil
) -> None:
    far_runs.loaded()
    with spoil(far_broker[1]):
        error = far_runs.loaded()
    assert isinstance(error, SourceUnavailableError)
    assert f"127.0.0.1:{far_broker[1].port}" in str(error)
    assert "check bootstrap.servers, security.protocol and that the brokers are up" in str(error)
    far_runs.drained()
    far_runs.check()


@pytest.mark.parametrize(("spoil", "when"), [(Proxy.half_open, "before"), (Proxy.resetting, "after")])
def test_brokers_that_are_lost_around_the_commit_are_reported_by_a_later_run(
    far_runs: FarRuns, far_broker: Far, at_the_commit: Callable[..., None], spoil: Spoil, when: str
) -> None:
    far_runs.loaded()
    with ExitStack() as spoilt, far_runs.world.impatient(10.0):
        at_the_commit(lambda: spoilt.enter_context(spoil(far_broker[1])), when)
        error = far_runs.loaded()
    assert isinstance(error, ControlTopicError)
    far_runs.drained()
    far_runs.check()
    published = far_runs.story().published
    assert len(published) == len(set(published)) == len(far_runs.story().planned)


@pytest.mark.parametrize("spoil", [Proxy.half_open, Proxy.resetting])
def test_brokers_that_are_lost_while_slices_are_written_cost_the_slices_in_hand(
    far_runs: FarRuns, far_broker: Far, spoil: Spoil
) -> None:
    far_runs.loaded()
    with ExitStack() as spoilt, far_runs.world.impatient(10.0):
        error = far_runs.loaded(meanwhile=lambda: spoilt.enter_context(spoil(far_broker[1])))
    assert isinstance(error, ControlTopicError)
    far_runs.drained()
    far_runs.check()


@pytest.mark.parametrize("size", [100, 1000, 5000])
def test_connections_that_end_in_the_middle_of_an_answer_lose_and_double_nothing(
    far_runs: FarRuns, far_broker: Far, size: int
) -> None:
    far_runs.loaded()
    with far_broker[1].cut_after(size), far_runs.world.impatient(10.0):
        outcome = far_runs.loaded()
        assert isinstance(outcome, CycleOutcome) or not isinstance(outcome, Terminal)
    far_runs.drained()
    far_runs.check()


@pytest.mark.parametrize(("where", "end"), [("writing", Broker.kill), ("before", Broker.stop), ("after", Broker.kill)])
def test_brokers_that_are_restarted_in_the_middle_of_a_cycle_are_waited_for(
    far_runs: FarRuns, far_broker: Far, at_the_commit: Callable[..., None], end: Callable[[Broker], None], where: str
) -> None:
    broker = far_broker[0]

    def restart() -> None:
        end(broker)
        broker.start()

    far_runs.loaded()
    if where == "writing":
        outcome = far_runs.loaded(meanwhile=restart)
    else:
        at_the_commit(restart, where)
        outcome = far_runs.loaded()
    assert isinstance(outcome, CycleOutcome)
    assert outcome.closed.rows == far_runs.portion
    far_runs.drained()
    far_runs.check()


def test_brokers_that_are_away_for_some_runs_cost_those_runs(far_runs: FarRuns, far_broker: Far) -> None:
    broker = far_broker[0]
    far_runs.loaded()
    far_runs.load()
    broker.stop()
    errors = [far_runs.run(), far_runs.run()]
    assert {type(e) for e in errors} == {SourceUnavailableError}
    broker.start()
    far_runs.drained()
    far_runs.check()
