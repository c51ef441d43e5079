# SPDX-License-Identifier: Apache-2.0
"""The pool with real threads. Calls wait at gates; nothing here depends on how long something takes."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import ClosedError
from airflow_provider_lakecommit.iceberg.ledger import blocking_pool as pool_module
from airflow_provider_lakecommit.iceberg.ledger.blocking_pool import BlockingPool

NEVER = 3600.0


class Call:
    """A call that is in its thread until it is let go."""

    def __init__(self, result: Any = None) -> None:
        self.begun = threading.Event()
        self.gate = threading.Event()
        self.over = threading.Event()
        self._result = result

    def __call__(self) -> Any:
        self.begun.set()
        try:
            assert self.gate.wait(60)
            if isinstance(self._result, BaseException):
                raise self._result
            return self._result
        finally:
            self.over.set()


async def until(holds: Callable[[], bool]) -> None:
    """A while of polling, bounded by the test's own limit."""
    while not holds():
        await asyncio.sleep(0.001)


async def at_rest() -> None:
    """Whatever could begin has begun: threads that are given a job take it within this."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def threads() -> int:
    return sum(thread.name.startswith("lakecommit-catalog") for thread in threading.enumerate())


def test_calls_are_bounded_in_order_and_reuse_threads() -> None:
    async def test() -> None:
        pool = BlockingPool(threads=3, most=3, slow_after=NEVER)
        calls = [Call(n) for n in range(9)]
        waiting = [asyncio.create_task(pool.run(n, call)) for n, call in enumerate(calls)]
        for n, call in enumerate(calls):
            await until(call.begun.is_set)
            await at_rest()
            assert [c.begun.is_set() for c in calls] == [m <= max(n, 2) for m in range(9)]
            if n >= 2:
                calls[n - 2].gate.set()
        for call in calls:
            call.gate.set()
        assert await asyncio.gather(*waiting) == list(range(9))
        assert pool.size == 3
        pool.close()
        await until(lambda: threads() == 0)

    run(test())


def test_a_call_that_hangs_gives_its_turn_to_another() -> None:
    async def test() -> None:
        lines: list[str] = []
        pool = BlockingPool(threads=1, most=3, slow_after=0.01, warn_after=0.01, log=lines.append)
        stuck = [Call(), Call()]
        hanging = [asyncio.create_task(pool.run(f"stuck{n}", call)) for n, call in enumerate(stuck)]
        await until(lambda: len(pool.hanging) == 2)
        assert await pool.run("orders", lambda: "done") == "done"
        await until(lambda: len({line.split(" has not")[0] for line in lines}) == 2)
        assert lines[0].startswith("stuck0: a catalog call has not returned for 0.01 s; other tables continue")
        assert pool.size == 3
        for call in stuck:
            call.gate.set()
        await asyncio.gather(*hanging)
        assert pool.size == 1
        assert pool.hanging == ()
        count = len(lines)
        await asyncio.sleep(0.05)
        assert len(lines) == count
        pool.close()

    run(test())


def test_threads_are_bounded_also_when_all_hang() -> None:
    async def test() -> None:
        pool = BlockingPool(threads=2, most=4, slow_after=0.01, log=lambda _: None)
        calls = [Call(n) for n in range(6)]
        waiting = [asyncio.create_task(pool.run(n, call)) for n, call in enumerate(calls)]
        await until(lambda: len(pool.hanging) == 4)
        await at_rest()
        assert threads() == pool.size == 4
        assert [call.begun.is_set() for call in calls] == [True] * 4 + [False] * 2
        calls[3].gate.set()
        await until(calls[4].begun.is_set)
        for call in calls:
            call.gate.set()
        assert await asyncio.gather(*waiting) == list(range(6))
        pool.close()

    run(test())


def test_one_table_takes_no_more_than_its_share() -> None:
    async def test() -> None:
        pool = BlockingPool(threads=4, most=4, per_table=2, slow_after=NEVER)
        calls = [Call(n) for n in range(5)]
        waiting = [asyncio.create_task(pool.run("stuck", call)) for call in calls]
        await until(lambda: calls[0].begun.is_set() and calls[1].begun.is_set())
        for table in range(10):
            assert await pool.run(table, lambda: "done") == "done"
        assert [call.begun.is_set() for call in calls] == [True, True, False, False, False]
        waiting.pop(3).cancel()
        calls[0].gate.set()
        await until(calls[2].begun.is_set)
        calls[1].gate.set()
        await until(calls[4].begun.is_set)
        assert not calls[3].begun.is_set()
        for call in calls:
            call.gate.set()
        assert await asyncio.gather(*waiting) == [0, 1, 2, 4]
        pool.close()

    run(test())


def test_a_call_that_was_not_begun_is_withdrawn_at_once() -> None:
    async def test() -> None:
        pool = BlockingPool(threads=1, most=1, slow_after=NEVER)
        first, second, third = Call("first"), Call(), Call("third")
        ahead = asyncio.create_task(pool.run("a", first))
        left = asyncio.create_task(pool.run("b", second))
        behind = asyncio.create_task(pool.run("c", third))
        await until(first.begun.is_set)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        first.gate.set()
        third.gate.set()
        assert await asyncio.gather(ahead, behind) == ["first", "third"]
        assert not second.begun.is_set()
        pool.close()

    run(test())


@pytest.mark.parametrize("result", ["done", ValueError("no")], ids=["returns", "raises"])
def test_a_caller_cancelled_in_a_call_waits_until_it_is_over(result: Any) -> None:
    async def test() -> None:
        pool = BlockingPool(slow_after=NEVER)
        call = Call(result)
        caller = asyncio.create_task(pool.run("a", call))
        await until(call.begun.is_set)
        for _ in range(3):
            caller.cancel()
            await at_rest()
            assert not caller.done()
        call.gate.set()
        await asyncio.wait([caller])
        assert call.over.is_set()
        assert caller.cancelled()
        pool.close()

    run(test())


@pytest.mark.parametrize(
    ("thrown", "caught"),
    [(ValueError("v"), ValueError), (StopIteration(1), RuntimeError), (SystemExit(3), RuntimeError)],
    ids=lambda e: type(e).__name__,
)
def test_what_a_call_throws_is_thrown_where_it_is_awaited(thrown: BaseException, caught: type[Exception]) -> None:
    async def test() -> None:
        pool = BlockingPool()
        call = Call(thrown)
        call.gate.set()
        with pytest.raises(caught):
            await pool.run("a", call)
        assert await pool.run("a", lambda: "the thread goes on") == "the thread goes on"
        assert pool.size == 1
        pool.close()

    run(test())


def test_a_call_sees_the_context_of_its_caller() -> None:
    name_of: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    async def test() -> None:
        pool = BlockingPool(threads=1)
        for name in ("first", "second"):
            name_of.set(name)
            assert await pool.run("a", name_of.get) == name
        pool.close()

    run(test())


def test_closing_lets_go_of_calls_that_hang() -> None:
    async def test() -> None:
        pool = BlockingPool(threads=1, most=1, slow_after=NEVER)
        stuck = Call()
        callers = [asyncio.create_task(pool.run(n, stuck)) for n in range(2)]
        await until(stuck.begun.is_set)
        pool.close()
        for caller in callers:
            with pytest.raises(ClosedError):
                await caller
        with pytest.raises(ClosedError):
            await pool.run("a", lambda: None)
        stuck.gate.set()
        await until(lambda: threads() == 0)

    run(test())


def test_without_more_threads_it_goes_on_with_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = 0

    class Scarce(pool_module._Worker):
        def start(self) -> None:
            if threads() >= allowed:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(pool_module, "_Worker", Scarce)

    async def test() -> None:
        nonlocal allowed
        lines: list[str] = []
        pool = BlockingPool(threads=4, slow_after=NEVER, log=lines.append)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await pool.run("a", lambda: 0)
        allowed = 1
        assert await asyncio.gather(*(pool.run(n, lambda: 1) for n in range(5))) == [1] * 5
        assert lines == ["The committer continued with 1 threads: can't start new thread"]
        pool.close()
        await until(lambda: threads() == 0)

    run(test())


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"threads": 9, "most": 8}, {"per_table": 0}])
def test_impossible_bounds_are_refused(wrong: dict[str, int]) -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match="at least 1"):
            BlockingPool(**wrong)  # type: ignore[arg-type]

    run(test())
