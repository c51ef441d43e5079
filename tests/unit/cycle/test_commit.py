# SPDX-License-Identifier: Apache-2.0
"""How the tables of one landing are committed: their order, and what becomes of the others when one goes wrong. What is
done to a table is a stand-in here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.committer.executor import Committer, TableTask
from airflow_provider_lakecommit.cycle import commit
from airflow_provider_lakecommit.cycle.commit import TableCommits
from airflow_provider_lakecommit.exceptions import CatalogError, ClosedError, ControlTopicError, TableError

DATA, DEAD = "shop.rows", "shop.dead"


class Landing:
    """A landing of two tables, what happened to them, and what goes wrong at which step."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.wrong: dict[str, BaseException] = {}
        self.hangs: dict[str, threading.Event] = {}
        self.without_ledger: set[str] = set()
        self.log_away: ControlTopicError | None = None
        self.whole: dict[str, bool] = {}
        patch.setattr(commit, "prepare_table", self.prepare)
        patch.setattr(commit, "TablePublisher", self.publisher)
        patch.setattr(commit, "own_cycle", lambda *_: SimpleNamespace(complete=self.complete))
        self.complete = False
        session: Any = SimpleNamespace(
            landing=SimpleNamespace(name="rows", tables=(DATA, DEAD)),
            lane="live",
            key=lambda name: name,
            read_state=self.read_state,
            log=lambda _: None,
        )
        self.commits = TableCommits(session=session, ticket=SimpleNamespace(commit_id=None))  # type: ignore[arg-type]

    def run(self, *stages: Any) -> TableCommits:
        async def go() -> None:
            async with Committer(interceptors=stages) as committer:
                await asyncio.wait_for(self.commits.run(committer), 60)

        asyncio.run(go())
        return self.commits

    def step(self, what: str) -> None:
        self.steps.append(what)
        if what in self.hangs:
            assert self.hangs[what].wait(60)
        if what in self.wrong:
            raise self.wrong[what]

    def prepare(self, _: Any, name: str) -> Any:
        self.step(f"prepare {name}")
        ledger = SimpleNamespace(table=name)
        return None if name in self.without_ledger else SimpleNamespace(name=name, ledger=ledger)

    def publisher(self, *, table: Any, whole: bool, **_: Any) -> Any:
        def run(look: Any, published: list[Any], voided: Any) -> Any:
            self.whole[table.name] = whole
            self.step(f"publish {table.name}")
            published.append(table.name)
            for gate in self.hangs.values():
                # The last one lets go of those that hang.
                gate.set()
            return look

        return SimpleNamespace(table=table, run=run)

    def read_state(self, ledgers: Any) -> Any:
        self.steps.append("look")
        if self.log_away:
            raise self.log_away
        return SimpleNamespace(ledgers=tuple(ledgers))


@pytest.fixture
def landing(monkeypatch: pytest.MonkeyPatch) -> Landing:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 30.0)
    return Landing(monkeypatch)


def test_where_all_is_well_the_steps_have_one_order_and_one_look(landing: Landing) -> None:
    done = landing.run()
    assert landing.steps == [
        f"prepare {DATA}",
        f"prepare {DEAD}",
        "look",
        f"publish {DATA}",
        f"publish {DEAD}",
    ]
    assert done.published == (DATA, DEAD)
    assert landing.whole == {DATA: True, DEAD: True}
    done.check()


@pytest.mark.parametrize("step", ["prepare", "publish"])
def test_a_table_that_fails_does_not_stop_the_other_and_is_named(landing: Landing, step: str) -> None:
    landing.wrong[f"{step} {DATA}"] = error = CatalogError("away")
    done = landing.run()
    assert done.published == (DEAD,)
    assert done.failures == {DATA: error}
    # A table that could be read is reckoned with, also when its commit failed.
    assert landing.whole[DEAD] is (step == "publish")
    with pytest.raises(CatalogError, match="away"):
        done.check()


@pytest.mark.parametrize("step", ["prepare", "publish"])
def test_a_table_that_hangs_does_not_hold_up_the_other(
    landing: Landing, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 0.01)
    landing.hangs[f"{step} {DATA}"] = threading.Event()
    done = landing.run()
    assert done.published == (DATA, DEAD)
    assert landing.steps.index(f"publish {DEAD}") > landing.steps.index(f"{step} {DATA}")
    assert landing.whole[DEAD] is (step == "publish")
    assert {t.table for t in (done.folded or landing.read_state(())).ledgers} == {DATA, DEAD}
    done.check()


def test_a_table_without_a_ledger_of_ours_is_left_alone_and_hides_nothing(landing: Landing) -> None:
    landing.without_ledger.add(DEAD)
    done = landing.run()
    assert done.published == (DATA,)
    assert landing.whole == {DATA: True}
    done.check()


def test_of_a_cycle_that_is_complete_nothing_is_published(landing: Landing) -> None:
    landing.complete = True
    done = landing.run()
    assert done.complete
    assert done.published == ()
    done.check()


def test_a_log_that_cannot_be_read_is_asked_once_and_is_no_tables_failure(landing: Landing) -> None:
    landing.log_away = ControlTopicError("brokers away")
    done = landing.run()
    assert landing.steps.count("look") == 1
    assert done.failures == {}
    with pytest.raises(ControlTopicError, match="brokers away"):
        done.check()


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), ValueError("a defect")])
def test_what_is_no_error_of_ours_is_raised_first_and_nothing_is_begun_after_it(
    landing: Landing, error: BaseException
) -> None:
    landing.wrong[f"prepare {DATA}"] = TableError("a table's error")
    landing.wrong[f"prepare {DEAD}"] = error
    done = landing.run()
    assert "look" not in landing.steps
    with pytest.raises(type(error)):
        done.check()


def test_work_that_was_cancelled_behind_our_back_has_failed(landing: Landing) -> None:
    async def gone(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        if task.about.name == DEAD:  # type: ignore[attr-defined]
            raise asyncio.CancelledError
        return await go_on()

    done = landing.run(gone)
    assert done.published == (DATA,)
    with pytest.raises(ClosedError, match=DEAD):
        done.check()
