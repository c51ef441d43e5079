# SPDX-License-Identifier: Apache-2.0
"""A run of many windows, and a table that its commits fail for: the others go on, nothing is read twice, and what the
table lacks is in it, in order, as soon as it takes commits; whatever dies meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError

from airflow_provider_lakecommit.cycle.commit import failing, publish
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, LakecommitError, TableError
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from tests.faults.test_backpressure import Tasks
from tests.faults.test_routes import FIELDS, check, expected, ids, mixed
from tests.support.declared import changed_landing
from tests.support.world import Killed, World, deaths

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
WINDOW = 40
REFUNDS = "shop.refunds"


@dataclass
class Refusing:
    """A catalog that refuses every commit of some tables; ``asked`` are those that it has refused."""

    tables: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)


@contextmanager
def refusing(*tables: str) -> Iterator[Refusing]:
    state, commit = Refusing(set(tables)), SqlCatalog.commit_table

    def commit_table(self: SqlCatalog, table: Any, *args: Any, **options: Any) -> Any:
        if (name := ".".join(table.name())) in state.tables:
            state.requests.append(name)
            raise ServerError("500: this table is not to be written")
        return commit(self, table, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit_table)
        patch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=0.0))
        patch.setattr(publish, "HASTE", RetryPolicy(seconds=0.0))
        patch.setattr(failing, "SPARE", 0)
        yield state


@dataclass
class Run:
    """A run of many windows in this process."""

    world: World
    outcomes: list[CycleOutcome] = field(default_factory=list)
    error: LakecommitError | None = None
    read: int = 0

    def land(
        self, run: str, first: int = 0, *, most: int | None = None, after: Callable[[CycleOutcome], None] | None = None
    ) -> Run:
        with self.world.session() as session:
            identity = self.world.run_identity(run)
            runner = LandingRunner(session, Tasks(), lambda n: replace(identity, number=n))
            try:
                for outcome in runner.cycles(first, most):
                    self.outcomes.append(outcome)
                    self.read += sum(len(s) for s in outcome.opened.slices)
                    if after is not None:
                        after(outcome)
            except LakecommitError as e:
                self.error = e
        return self


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    """Ten windows; the tables are there."""
    world = make_world(**FIELDS, max_records=WINDOW)
    produce(world.landing.topics, mixed(0, WINDOW))
    assert Run(world).land("before").error is None
    produce(world.landing.topics, mixed(WINDOW, 9 * WINDOW))
    world.lines.clear()
    return world


def lines_with(world: World, text: str) -> int:
    return sum(text in line for line in world.lines)


@pytest.mark.heavy(but=("shop.rows",))
@pytest.mark.parametrize("table", ["shop.rows", REFUNDS, "shop.dead"])
def test_the_others_go_on_and_the_table_has_all_once_it_takes_commits(world: World, table: str) -> None:
    with refusing(table) as refused:

        def after(outcome: CycleOutcome) -> None:
            if outcome.number == 4:
                refused.tables.clear()

        run = Run(world).land("run", after=after)
    assert run.error is None
    assert [bool(o.closed.failed) for o in run.outcomes[:5]] == [True] * 5
    assert all(table not in {p.table for p in o.closed.published} for o in run.outcomes[:5])
    assert all(len(o.closed.published) == 2 for o in run.outcomes[:5])
    assert run.outcomes[-1].closed.valid_through is not None
    assert not run.outcomes[-1].closed.failed
    assert run.read == 9 * WINDOW, "nothing is read twice"
    assert lines_with(world, "this table is not to be written") == 1
    assert lines_with(world, f"{table} accepts commits again") == 1
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
@pytest.mark.parametrize("table", ["shop.rows", REFUNDS, "shop.dead"])
def test_what_a_table_lacks_in_the_end_is_the_runs_error_and_the_next_runs_to_publish(world: World, table: str) -> None:
    with refusing(table):
        run = Run(world).land("run")
    assert len(run.outcomes) == 9
    assert isinstance(run.error, CatalogError)
    assert table in str(run.error)
    assert run.outcomes[-1].closed.valid_through is None
    rows = expected(0, 10 * WINDOW)
    for name in {"shop.rows", REFUNDS} - {table}:
        assert ids(world, name) == rows[name.removeprefix("shop.")]
    again = Run(world).land("next")
    assert (again.error, again.read) == (None, 0)
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
def test_a_retry_goes_on_with_what_the_table_lacks(world: World) -> None:
    with refusing(REFUNDS):
        run = Run(world).land("run")
    number = run.outcomes[-1].number
    again = Run(world).land("run", number)
    assert (again.error, [o.number for o in again.outcomes], again.read) == (None, [number], WINDOW)
    assert [p.table for p in again.outcomes[0].closed.published].count(REFUNDS) == 1
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
def test_where_no_table_of_rows_takes_commits_the_run_ends_there(world: World) -> None:
    with refusing("shop.rows", REFUNDS):
        run = Run(world).land("run")
    assert isinstance(run.error, CommitUnknownError)
    assert run.outcomes == []
    world.settle(20)
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
def test_the_budget_in_front_of_the_table_ends_the_run_by_its_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LandingRunner, "_pause", lambda *_: None)
    small = replace(world, landing=changed_landing(world.landing, max_pending_slices=6))
    with refusing(REFUNDS):
        run = Run(small).land("run")
    assert run.outcomes[-1].deferred
    assert f"slices are pending in {REFUNDS}, backpressure.max_pending_slices is 6; its commits failed in" in str(
        run.outcomes[-1].opened.plan.reason
    )
    assert REFUNDS in str(run.error)
    assert Run(small).land("next").error is None
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
def test_a_table_that_hangs_is_requested_rarely(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    monkeypatch.setattr(failing, "monotonic", lambda: seconds[0])
    with refusing(REFUNDS) as refused:

        def after(_: CycleOutcome) -> None:
            seconds[0] += 1.5

        run = Run(world).land("run", after=after)
    failed = [o.number for o in run.outcomes if o.closed.failed]
    assert failed == list(range(9))
    assert run.outcomes[-1].closed.failed[REFUNDS].startswith("5 failed commits in a row")
    assert len(refused.requests) == 5
    assert Run(world).land("next").error is None
    check(world, 0, 10 * WINDOW)


@pytest.mark.heavy
def test_a_table_that_is_dropped_meanwhile_is_reported_once_with_what_helps(world: World) -> None:
    def after(outcome: CycleOutcome) -> None:
        if outcome.number == 1:
            with world.session() as session:
                session.tables.catalog.drop_table(REFUNDS)

    run = Run(world).land("run", after=after)
    assert isinstance(run.error, TableError)
    assert "LandingOperationOperator" in str(run.error)
    assert len(run.outcomes) == 9
    assert ids(world, "shop.rows") == expected(0, 10 * WINDOW)["rows"]
    assert lines_with(world, "LandingOperationOperator") <= 3, (
        "with the first plan, for its explanation, and by the first commit"
    )
    assert lines_with(world, "WARNING: shop.refunds is left out of this plan") <= 1


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [3, 11, 17, 26, 37])
def test_whatever_dies_while_a_table_fails_each_record_is_in_its_table_once(world: World, at: int, when: Any) -> None:
    with refusing(REFUNDS), deaths(at, when), suppress(Killed):
        Run(world).land("dies", most=5)
    with refusing(REFUNDS):
        Run(world).land("dies", most=3)
    world.settle(20)
    check(world, 0, 10 * WINDOW)
    assert ids(world, REFUNDS) == Counter(expected(0, 10 * WINDOW)["refunds"])
