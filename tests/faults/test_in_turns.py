# SPDX-License-Identifier: Apache-2.0
"""Commits on real parts while one table hangs, fails or takes its thread along: what becomes of all others."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.cycle.commit import commit
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.commit.commit import TableCommit
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import CatalogError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger import executor
from airflow_provider_lakecommit.iceberg.ledger.executor import TableTask
from tests.support.waiting import PATIENCE, until
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]


@dataclass(slots=True)
class Faults:
    """What becomes of commit requests, by table; those that are ``away`` cannot even be read."""

    gate: threading.Event = field(default_factory=threading.Event)
    hangs: set[str] = field(default_factory=set)
    raises: dict[str, BaseException] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)

    def before(self, table: str) -> None:
        if error := self.raises.get(table):
            raise error
        if table in self.hangs:
            self.waiting.append(table)
            assert self.gate.wait(PATIENCE)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    faults, load, commit = Faults(), SqlCatalog.load_table, SqlCatalog.commit_table

    def load_table(self: SqlCatalog, identifier: Any) -> Any:
        if identifier in faults.away:
            raise ConnectionRefusedError("catalog away")
        return load(self, identifier)

    def commit_table(self: SqlCatalog, table: Any, *args: Any, **kwargs: Any) -> Any:
        faults.before(".".join(table.name()))
        return commit(self, table, *args, **kwargs)

    monkeypatch.setattr(SqlCatalog, "load_table", load_table)
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    yield faults
    faults.gate.set()
    until(lambda: not committing(), what="threads that called the catalog to be gone")


def committing() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("lakecommit-")]


def produced(world: World, produce: Produce, first: int, count: int) -> World:
    produce(world.landing.topics, records(first, count))
    return world


def written(world: World, produce: Produce) -> tuple[World, Opened]:
    """Twenty rows and a dead letter, reported by the cycle of run `a`."""
    produced(world, produce, 0, 20)
    produce(world.landing.topics, [("x", "no json")])
    opened = world.open("a")
    world.write(opened)
    return world, opened


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """Run something next to; what it returned or raised."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except BaseException as e:
            ended.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def test_a_table_that_hangs_holds_up_no_other_of_its_landing(
    make_world: Make, produce: Produce, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 0.05)
    world, opened = written(make_world(), produce)
    faults.hangs.add("shop.rows")
    thread, ended = in_thread(lambda: world.close("a", opened))
    until(lambda: len(world.rows("shop.dead")) == 1, what="the dead letters' commit")
    assert faults.waiting == ["shop.rows"]
    assert ended == []
    assert world.rows() == []
    faults.gate.set()
    thread.join(PATIENCE)
    assert [p.table for p in ended[0].published] == ["shop.rows", "shop.dead"]
    assert ended[0].valid_through is not None
    assert world.run().reason == "nothing new"
    world.check(Counter(range(20)))


@pytest.mark.heavy
def test_a_stage_added_before_the_commit_is_passed_and_callers_do_not_know(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[tuple[str, str]] = []
    refused = {"shop.rows"}

    async def audit(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        about = task.about
        assert isinstance(about, TableCommit)
        passed.append((about.step, about.name))
        if about.step == "publish":
            assert about.table is not None
            if about.name in refused:
                raise TableError("LC9999", f"the audit of {about.name} found something")
        return await go_on()

    world, opened = written(make_world(), produce)
    monkeypatch.setattr(executor, "INTERCEPTORS", (audit,))
    with pytest.raises(TableError, match="LC9999"):
        world.close("a", opened)
    assert (world.rows(), len(world.rows("shop.dead"))) == ([], 1)
    assert passed == [(step, table) for step in ("prepare", "publish") for table in ("shop.rows", "shop.dead")]
    refused.clear()
    assert world.close("a", opened, retry=True).rows == 20
    world.check(Counter(range(20)))


@pytest.mark.heavy
def test_what_ends_the_thread_of_one_table_is_raised_when_the_other_is_done(
    make_world: Make, produce: Produce, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "NEXT_TABLE_AFTER", 0.05)
    world, opened = written(make_world(), produce)
    faults.hangs.add("shop.rows")
    faults.raises["shop.dead"] = SystemExit(7)
    thread, ended = in_thread(lambda: world.close("a", opened))
    until(lambda: "shop.rows" in faults.waiting, what="the data table's commit")
    faults.gate.set()
    thread.join(PATIENCE)
    assert [type(e) for e in ended] == [SystemExit]
    until(lambda: not committing(), what="no thread to be left")
    faults.raises.clear()
    world.settle()
    world.check(Counter(range(20)))
    assert len(world.rows("shop.dead")) == 1


class Interrupted(BaseException):
    """A task's timeout, a signal of the command line."""


@contextmanager
def interrupting() -> Iterator[Callable[[], None]]:
    """Gives what interrupts the main thread."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        yield lambda: os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_caller_leaves_and_a_hanging_call_does_nothing_more_when_it_comes_back(
    make_world: Make, produce: Produce, faults: Faults
) -> None:
    world = produced(make_world(dead_letter_table=None), produce, 0, 20)
    opened = world.open("a")
    world.write(opened)
    faults.hangs.add("shop.rows")
    with interrupting() as interrupt:

        def when_it_hangs() -> None:
            until(lambda: bool(faults.waiting), what="the commit to hang")
            interrupt()

        thread, _ = in_thread(when_it_hangs)
        with pytest.raises(Interrupted):
            world.close("a", opened)
        thread.join(PATIENCE)
    assert [name for name in committing() if "catalog" in name], "the call hangs on"
    faults.gate.set()
    until(lambda: not committing(), what="the call's thread to be gone")
    world.check(Counter(range(20)))
    faults.hangs.clear()
    world.lines.clear()
    result = world.close("a", opened, retry=True)
    assert any("was published but not announced; announcing it now" in line for line in world.lines), world.lines
    assert result.rows == 20


def work_of(
    concurrent: ConcurrentLandings, tables: Tables, world: World, opened: Any, ended: list[str]
) -> Callable[[], Closed]:
    def close() -> Closed:
        own = LandingSession.connect(world.landing, world.kafka, world.catalog, log=world.lines.append)
        with concurrent.session(lambda: replace(own, tables=tables, lent=True)) as session:
            closed = close_cycle(session, world.run_identity("a"), opened.ticket, executor=concurrent.executor)
        ended.append(world.landing.table)
        return closed

    return close


@pytest.mark.heavy
def test_of_many_landings_one_that_hangs_and_one_that_fails_hold_up_no_other(
    make_world: Make, produce: Produce, faults: Faults
) -> None:
    worlds = [
        produced(make_world(1, name=f"l{n}", table=f"shop.t{n}", dead_letter_table=None), produce, 0, 10)
        for n in range(6)
    ]
    opened = [world.open("a") for world in worlds]
    for world, each in zip(worlds, opened, strict=True):
        world.write(each)
    faults.hangs.add("shop.t0")
    faults.away.add("shop.t3")
    ended: list[str] = []

    def run() -> dict[str, Closed | BaseException]:
        with closing(Tables(worlds[0].catalog)) as tables, ConcurrentLandings(threads=2, slow_after=0.2) as concurrent:
            return concurrent.run(
                {w.landing.name: work_of(concurrent, tables, w, o, ended) for w, o in zip(worlds, opened, strict=True)}
            )

    thread, result = in_thread(run)
    until(lambda: {"shop.t1", "shop.t2", "shop.t4", "shop.t5"} <= set(ended), what="the others' commits")
    assert "shop.t0" not in ended
    assert faults.waiting == ["shop.t0"]
    faults.gate.set()
    thread.join(PATIENCE)
    reported = result[0]
    assert {name: each.rows for name, each in reported.items() if isinstance(each, Closed)} == {
        f"l{n}": 10 for n in (0, 1, 2, 4, 5)
    }
    assert isinstance(reported["l3"], CatalogError)
    assert "catalog away" in str(reported["l3"])
    until(lambda: not committing(), what="no thread to be left")
    faults.away.clear()
    worlds[3].settle()
    for world in worlds:
        world.check(Counter(range(10)))
