# SPDX-License-Identifier: Apache-2.0
"""The pool and its thread as callers see them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.committer import executor
from airflow_provider_lakecommit.committer.blocking_pool import BlockingPool
from airflow_provider_lakecommit.committer.executor import CommitterThread
from airflow_provider_lakecommit.exceptions import ClosedError

ROOT = Path(__file__).resolve().parents[3]


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


@pytest.mark.heavy(but=("20",))
@pytest.mark.parametrize("stuck", [1, 20])
def test_of_a_thousand_tables_those_that_hang_hold_up_no_other(stuck: int) -> None:
    """While they hang, all others commit, three times; and those that hang do not fill the threads."""

    async def test() -> None:
        gate, rows = threading.Event(), Tables()
        abandoned: list[int] = []

        def commit(n: int, row: str) -> int:
            if n < stuck and not gate.is_set():
                abandoned.append(n)
                assert gate.wait(60)
            return rows.append(f"t{n}", row)

        pool = BlockingPool(slow_after=0.02, log=lambda _: None)
        hanging, others = [], []
        for n in range(1000):
            work = [pool.run(n, lambda n=n, r=r: commit(n, r)) for r in ("one", "two", "three")]  # type: ignore[misc]
            (hanging if n < stuck else others).extend(asyncio.create_task(each) for each in work)
        assert await asyncio.gather(*others) == [1, 2, 3] * (1000 - stuck)
        assert pool.tables == set(range(stuck))
        assert not any(task.done() for task in hanging)
        # One thread for each, though more is waiting for these tables.
        await until(lambda: len(abandoned) == stuck)
        assert sorted(abandoned) == list(range(stuck))
        gate.set()
        assert await asyncio.gather(*hanging) == [1, 2, 3] * stuck
        assert pool.tables == frozenset()
        await pool.drain(5)
        await until(lambda: threads() == 0)

    run(test())


def test_a_caller_that_gives_up_on_a_hanging_call_returns_at_once_and_the_turn_stays() -> None:
    async def test() -> None:
        gate, order = threading.Event(), []

        def stuck() -> None:
            assert gate.wait(60)
            order.append("stuck")

        pool = BlockingPool()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await pool.run("t", stuck)
        following = asyncio.create_task(pool.run("t", lambda: order.append("following")))
        await pool.run("other", lambda: order.append("other"))
        gate.set()
        await following
        await pool.drain(5)
        assert order == ["other", "stuck", "following"]

    run(test())


def test_closing_leaves_no_turn_kept_though_calls_hang() -> None:
    async def test() -> None:
        gate, entered = threading.Event(), threading.Event()

        def stuck() -> None:
            entered.set()
            assert gate.wait(60)

        pool = BlockingPool()
        callers = [asyncio.create_task(pool.run("t", stuck)) for _ in range(3)]
        await until(entered.is_set)
        await pool.drain(0.01)
        assert pool.tables == frozenset()
        for caller, code in zip(callers, ("LC3006", "LC3038", "LC3038"), strict=True):
            with pytest.raises(ClosedError, match=code):
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

    async def work(pool: BlockingPool) -> None:
        try:
            await pool.run("t", stuck)
        except asyncio.CancelledError:
            signalled.set()
            raise

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with CommitterThread(grace=0.05) as committer:
            assert committer.run(lambda c: c.run("t", lambda: "done")) == "done"
            with pytest.raises(AlarmError):
                committer.run(work)
            assert signalled.wait(30)
            assert committer.run(lambda c: c.run("other", lambda: "goes on")) == "goes on"
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

    async def work(pool: BlockingPool) -> None:
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


def test_what_keeps_a_pool_from_being_made_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> BlockingPool:
        raise ValueError("no")

    monkeypatch.setattr(executor, "BlockingPool", make)
    with pytest.raises(ValueError, match="no"), CommitterThread():
        raise AssertionError("never")


ENDLESS = """
import asyncio, threading
from airflow_provider_lakecommit.committer.executor import CommitterThread

async def work(pool):
    async with asyncio.timeout(0.1):
        await pool.run("t", threading.Event().wait)

with CommitterThread(grace=0.1) as committer:
    try:
        committer.run(work)
    except TimeoutError:
        print("gave up")
"""


def test_a_call_that_never_comes_back_does_not_keep_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gave up\n", "")
