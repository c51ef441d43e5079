# SPDX-License-Identifier: Apache-2.0
"""How the tables of one landing are committed: their order, and what becomes of the others when one goes wrong. What is
done to a table is a stand-in here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.cycle.commit import commit
from airflow_provider_lakecommit.cycle.commit.commit import TableCommit, TableCommits
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.cycle.commit.publish import TablePublisher
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable
from airflow_provider_lakecommit.cycle.results import PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.exceptions import CatalogError, ClosedError, ControlTopicError, TableError
from airflow_provider_lakecommit.iceberg.ledger.executor import Committer, Interceptor, TableTask
from tests.fakes.session import DATA, DEAD, FakeLanding


class Commits:
    """The tables of a landing whose first cycle is open, what happened to them, and what goes wrong at which step."""

    def __init__(self, fake: FakeLanding, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.wrong: dict[str, BaseException] = {}
        self.hangs: dict[str, threading.Event] = {}
        self.without_ledger: set[str] = set()
        self.whole: dict[str, bool] = {}
        self.fake = fake
        self.opened = fake.open()
        self.log_away: ControlTopicError | None = None
        self._read_state = fake.session.read_state
        patch.setattr(commit, "prepare_table", self.prepare)
        patch.setattr(TablePublisher, "run", lambda publisher, *rest: self.publish(publisher, *rest))
        patch.setattr(fake.session, "read_state", self.read_state)
        self.commits = TableCommits(session=fake.session, ticket=self.opened.ticket)

    def run(self, *stages: Interceptor) -> TableCommits:
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

    def prepare(self, session: LandingSession, name: str) -> PreparedTable | None:
        self.step(f"prepare {name}")
        return None if name in self.without_ledger else prepare_table(session, name)

    def publish(
        self, publisher: TablePublisher, folded: FoldedLog, published: list[PublishedSnapshot], *_: dict[UUID, str]
    ) -> FoldedLog:
        name = publisher.table.name
        self.whole[name] = publisher.whole
        self.step(f"publish {name}")
        published.append(
            PublishedSnapshot(
                table=name,
                snapshot_id=1,
                commit_id=publisher.ticket.commit_id,
                coverage=Coverage(),
                rows=1,
                files=1,
                counts=Counts(),
            )
        )
        for gate in self.hangs.values():
            # The last one lets go of those that hang.
            gate.set()
        return folded

    def read_state(self, ledgers: Sequence[TableLedger], **more: Any) -> FoldedLog:
        self.steps.append("look")
        if self.log_away:
            raise self.log_away
        return self._read_state(ledgers, **more)


@pytest.fixture
def landing(make_landing: Callable[..., FakeLanding], monkeypatch: pytest.MonkeyPatch) -> Commits:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 30.0)
    return Commits(make_landing(dead_letter_table=DEAD), monkeypatch)


def published(done: TableCommits) -> list[str]:
    return [p.table for p in done.published]


def test_where_all_is_well_the_steps_have_one_order_and_one_check(landing: Commits) -> None:
    done = landing.run()
    assert landing.steps == [f"prepare {DATA}", f"prepare {DEAD}", "look", f"publish {DATA}", f"publish {DEAD}"]
    assert published(done) == [DATA, DEAD]
    assert landing.whole == {DATA: True, DEAD: True}
    done.check()


@pytest.mark.parametrize("step", ["prepare", "publish"])
def test_a_table_that_fails_does_not_stop_the_other_and_is_named(landing: Commits, step: str) -> None:
    landing.wrong[f"{step} {DATA}"] = error = CatalogError("LC9999", "away")
    done = landing.run()
    assert published(done) == [DEAD]
    assert done.failures == {DATA: error}
    # A table that could be read is reckoned with, also when its commit failed.
    assert landing.whole[DEAD] is (step == "publish")
    with pytest.raises(CatalogError, match="LC9999"):
        done.check()


@pytest.mark.parametrize("step", ["prepare", "publish"])
def test_a_table_that_hangs_does_not_hold_up_the_other(
    landing: Commits, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 0.5)
    landing.hangs[f"{step} {DATA}"] = threading.Event()
    done = landing.run()
    assert published(done) == [DATA, DEAD]
    assert landing.steps.index(f"publish {DEAD}") > landing.steps.index(f"{step} {DATA}")
    assert landing.whole[DEAD] is (step == "publish")
    assert {t.table for t in (done.folded or landing.read_state(())).ledgers} == {DATA, DEAD}
    done.check()


def test_a_table_without_a_ledger_of_ours_is_left_alone_and_hides_nothing(landing: Commits) -> None:
    landing.without_ledger.add(DEAD)
    done = landing.run()
    assert published(done) == [DATA]
    assert landing.whole == {DATA: True}
    done.check()


def test_of_a_cycle_that_is_complete_nothing_is_published(landing: Commits) -> None:
    landing.fake.complete(landing.opened)
    done = landing.run()
    assert done.complete
    assert done.published == ()
    done.check()


def test_a_log_that_cannot_be_read_is_requested_once_and_is_no_tables_failure(landing: Commits) -> None:
    landing.log_away = ControlTopicError("LC9999", "brokers away")
    done = landing.run()
    assert landing.steps.count("look") == 1
    assert done.failures == {}
    with pytest.raises(ControlTopicError, match="LC9999"):
        done.check()


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), ValueError("a defect")])
def test_what_is_no_error_of_ours_is_raised_first_and_nothing_is_begun_after_it(
    landing: Commits, error: BaseException
) -> None:
    landing.wrong[f"prepare {DATA}"] = TableError("LC9999", "a table's error")
    landing.wrong[f"prepare {DEAD}"] = error
    done = landing.run()
    assert "look" not in landing.steps
    with pytest.raises(type(error)):
        done.check()


def test_work_that_was_cancelled_behind_our_back_has_failed(landing: Commits) -> None:
    async def cancelled(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        if isinstance(task.about, TableCommit) and task.about.name == DEAD:
            raise asyncio.CancelledError
        return await go_on()

    done = landing.run(cancelled)
    assert published(done) == [DATA]
    with pytest.raises(ClosedError, match=rf"{DEAD}.*LC6201"):
        done.check()
