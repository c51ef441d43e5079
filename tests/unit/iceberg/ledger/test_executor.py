# SPDX-License-Identifier: Apache-2.0
"""Turns, threads and stages together, as callers see them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import ClosedError
from airflow_provider_lakecommit.iceberg.ledger.blocking_pool import BlockingPool
from airflow_provider_lakecommit.iceberg.ledger.executor import Committer, CommitterThread, TableTask

ROOT = Path(__file__).resolve().parents[4]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def threads() -> int:
    return sum(thread.name.startswith("lakecommit-catalog") for thread in threading.enumerate())


class Tables:
    """What is in tables, written by steps that another writer of the same table would mix up."""

    def __init__(self) -> None:
        self.rows: dict[str, list[str]] = {}
        self.writing: set[str] = set()

    def append(self, table: str, row: str) -> int:
        assert table not in self.writing
        self.writing.add(table)
        before = list(self.rows.get(table, ()))
        self.rows[table] = [*before, row]
        self.writing.remove(table)
        return len(before) + 1


async def publish_all(committer: Committer, tables: Tables, rows: int) -> list[int]:
    """A caller. It knows nothing of stages."""

    async def publish(table: str, row: str) -> int:
        return await committer.run_exclusive(table, lambda: tables.append(table, row), about=row)

    return await asyncio.gather(*(publish(t, f"{t}{n}") for n in range(rows) for t in ("a", "b", "c")))


def test_a_stage_that_is_added_changes_nothing_for_callers() -> None:
    async def audit(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        assert task.table not in under_audit
        under_audit.add(task.table)
        await asyncio.sleep(0.001)
        audited.append((task.table, task.about))
        result = await go_on()
        under_audit.remove(task.table)
        return result

    under_audit: set[object] = set()
    audited: list[tuple[object, object]] = []

    async def test() -> None:
        plain, behind = Tables(), Tables()
        async with Committer() as committer:
            expected = await publish_all(committer, plain, 10)
        async with Committer(interceptors=[audit]) as committer:
            assert await publish_all(committer, behind, 10) == expected
        assert behind.rows == plain.rows == {t: [f"{t}{n}" for n in range(10)] for t in ("a", "b", "c")}
        assert {t: [about for table, about in audited if table == t] for t in ("a", "b", "c")} == plain.rows

    run(test())


def test_a_stage_may_refuse_and_outer_stages_come_first() -> None:
    class RefusedError(Exception):
        pass

    passed: list[str] = []

    async def outer(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Any:
        passed.append(f"outer {task.about}")
        return await go_on()

    def inner(task: TableTask, go_on: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        passed.append(f"inner {task.about}")
        if task.about == "bad":
            raise RefusedError
        return go_on()

    async def test() -> None:
        async with Committer(interceptors=[outer, inner]) as committer:
            with pytest.raises(RefusedError):
                await committer.run_exclusive("t", lambda: passed.append("done"), about="bad")
            await committer.run_exclusive("t", lambda: passed.append("done"), about="good")
        assert passed == ["outer bad", "inner bad", "outer good", "inner good", "done"]

    run(test())


@pytest.mark.heavy(but=("20",))
@pytest.mark.parametrize("stuck", [1, 20])
def test_of_a_thousand_tables_those_that_hang_hold_up_no_other(stuck: int) -> None:
    """While they hang, all others commit, twice, and are read; and those that hang do not fill the threads."""

    async def test() -> None:
        gate, rows = threading.Event(), Tables()
        abandoned: list[int] = []

        def commit(n: int, row: str) -> int:
            if n < stuck and not gate.is_set():
                abandoned.append(n)
                assert gate.wait(60)
            return rows.append(f"t{n}", row)

        committer = Committer(pool=BlockingPool(slow_after=0.02, log=lambda _: None))
        async with committer:
            hanging, others = [], []
            for n in range(1000):
                work = [committer.run_exclusive(n, lambda n=n, r=r: commit(n, r)) for r in ("one", "two")]  # type: ignore[misc]
                work += [
                    committer.run_shared(n, lambda n=n: len(rows.rows[f"t{n}"])) for _ in range(10 if n < stuck else 1)
                ]  # type: ignore[misc]
                (hanging if n < stuck else others).extend(asyncio.create_task(each) for each in work)
            assert await asyncio.gather(*others) == [1, 2, 2] * (1000 - stuck)
            assert committer.table_locks.busy == set(range(stuck))
            assert not any(task.done() for task in hanging)
            # One thread for each, though more is waiting for these tables.
            await until(lambda: len(abandoned) == stuck)
            assert sorted(abandoned) == list(range(stuck))
            gate.set()
            assert await asyncio.gather(*hanging) == [1, 2, *[2] * 10] * stuck
            assert committer.table_locks.busy == frozenset()
        await until(lambda: threads() == 0)

    run(test())


def test_a_caller_that_gives_up_on_a_hanging_call_returns_at_once_and_the_turn_stays() -> None:
    async def test() -> None:
        gate, order = threading.Event(), []

        def stuck() -> None:
            assert gate.wait(60)
            order.append("stuck")

        async with Committer() as committer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await committer.run_exclusive("t", stuck)
            following = asyncio.create_task(committer.run_exclusive("t", lambda: order.append("following")))
            await committer.run_exclusive("other", lambda: order.append("other"))
            gate.set()
            await following
        assert order == ["other", "stuck", "following"]

    run(test())


def test_closing_leaves_no_turn_kept_though_calls_hang() -> None:
    async def test() -> None:
        gate, entered = threading.Event(), threading.Event()

        def stuck() -> None:
            entered.set()
            assert gate.wait(60)

        committer = Committer()
        callers = [asyncio.create_task(committer.run_exclusive("t", stuck)) for _ in range(3)]
        await until(entered.is_set)
        assert await committer.close(0.01) == frozenset()
        assert committer.table_locks.busy == frozenset()
        for caller in callers:
            with pytest.raises(ClosedError):
                await caller
        gate.set()
        await until(lambda: threads() == 0)

    run(test())


class AlarmError(BaseException):
    """As a task's timeout is raised: by a signal, and by no subclass of Exception."""


def test_a_signal_reaches_a_caller_without_a_loop_whatever_hangs() -> None:
    gate, signalled = threading.Event(), threading.Event()

    def ring(number: int, frame: object) -> None:
        raise AlarmError

    def stuck() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert gate.wait(60)

    async def work(committer: Committer) -> None:
        try:
            await committer.run_exclusive("t", stuck)
        except asyncio.CancelledError:
            signalled.set()
            raise

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with CommitterThread(grace=0.05) as committer:
            assert committer.run(lambda c: c.run_exclusive("t", lambda: "done")) == "done"
            with pytest.raises(AlarmError):
                committer.run(work)
            assert signalled.wait(30)
            assert committer.run(lambda c: c.run_exclusive("other", lambda: "goes on")) == "goes on"
    finally:
        signal.signal(signal.SIGUSR1, before)
        gate.set()


def test_a_signal_before_anybody_holds_the_work_cancels_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def interrupted(*arguments: Any) -> None:
        submit(*arguments)
        assert begun.wait(60)
        raise AlarmError

    async def work(committer: Committer) -> None:
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    with CommitterThread(grace=0.05) as committer:
        monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
        with pytest.raises(AlarmError):
            committer.run(work)
        assert ended.wait(60)


def test_what_keeps_a_committer_from_being_made_is_reported() -> None:
    def make() -> Committer:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), CommitterThread(make):
        raise AssertionError("never")


ENDLESS = """
import asyncio, threading
from airflow_provider_lakecommit.iceberg.ledger.executor import Committer, CommitterThread

async def work(committer):
    async with asyncio.timeout(0.1):
        await committer.run_exclusive("t", threading.Event().wait)

with CommitterThread(grace=0.1) as committer:
    try:
        committer.run(work)
    except TimeoutError:
        print("gave up")
"""


def test_a_call_that_never_comes_back_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gave up\n", "")
