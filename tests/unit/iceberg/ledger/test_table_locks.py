# SPDX-License-Identifier: Apache-2.0
"""Turns, one promise at a time. The promises all together: `test_turns_model.py`."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import ClosedError
from airflow_provider_lakecommit.iceberg.ledger.table_locks import TableLocks


class WorkError(Exception):
    pass


class Steps:
    """Work that tells when it begins and ends, and ends when it is let."""

    def __init__(self) -> None:
        self.observed: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def work(self, name: str) -> Callable[[], Awaitable[str]]:
        gate = self._gates[name] = asyncio.Event()

        async def do() -> str:
            self.observed.append(f"{name} begins")
            try:
                await gate.wait()
            finally:
                self.observed.append(f"{name} ends")
            return name

        return do

    def let(self, name: str) -> None:
        self._gates[name].set()


async def at_rest() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def test_a_reader_does_not_overtake_a_writer_that_waits() -> None:
    async def test() -> None:
        turns, steps = TableLocks(), Steps()
        order = (("r1", turns.shared), ("w1", turns.exclusive), ("r2", turns.shared), ("r3", turns.shared))
        callers = [asyncio.create_task(take("t", steps.work(name))) for name, take in order]
        await at_rest()
        assert steps.observed == ["r1 begins"]
        steps.let("r1")
        await at_rest()
        assert steps.observed[1:] == ["r1 ends", "w1 begins"]
        steps.let("w1")
        await at_rest()
        assert steps.observed[3:] == ["w1 ends", "r2 begins", "r3 begins"]
        steps.let("r3")
        steps.let("r2")
        assert await asyncio.gather(*callers) == ["r1", "w1", "r2", "r3"]
        assert turns.busy == frozenset()

    run(test())


def test_a_writer_that_leaves_the_line_lets_the_readers_behind_it_go_on() -> None:
    async def test() -> None:
        turns, steps = TableLocks(), Steps()
        one = asyncio.create_task(turns.shared("t", steps.work("r1")))
        writer = asyncio.create_task(turns.exclusive("t", steps.work("w1")))
        two = asyncio.create_task(turns.shared("t", steps.work("r2")))
        await at_rest()
        writer.cancel()
        await at_rest()
        assert steps.observed == ["r1 begins", "r2 begins"]
        steps.let("r1")
        steps.let("r2")
        await asyncio.gather(one, two)

    run(test())


def test_work_outlives_a_caller_whose_time_is_up_and_keeps_its_turn() -> None:
    async def test() -> None:
        turns, observed, gate = TableLocks(), [], asyncio.Event()

        async def like_a_thread() -> None:
            observed.append("begins")
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    observed.append("told to end")
            observed.append("ends")

        async def next_one() -> None:
            observed.append("next")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turns.exclusive("t", like_a_thread), 0.01)
        following = asyncio.create_task(turns.exclusive("t", next_one))
        await at_rest()
        assert observed == ["begins", "told to end"]
        gate.set()
        await following
        assert observed == ["begins", "told to end", "ends", "next"]

    run(test())


def throws() -> Awaitable[None]:
    raise WorkError("before there was anything to await")


async def fails() -> None:
    await asyncio.sleep(0)
    raise WorkError("later")


def gives_nothing() -> Any:
    return None


@pytest.mark.parametrize(
    ("work", "error"), [(throws, WorkError), (fails, WorkError), (gives_nothing, TypeError)], ids=lambda w: w.__name__
)
def test_a_turn_ends_however_its_work_fails(work: Callable[[], Any], error: type[Exception]) -> None:
    async def test() -> None:
        turns = TableLocks()
        with pytest.raises(error):
            await turns.exclusive("t", work)
        assert turns.busy == frozenset()

    run(test())


def test_tables_do_not_wait_for_each_other() -> None:
    async def test() -> None:
        turns, steps = TableLocks(), Steps()
        callers = [asyncio.create_task(turns.exclusive(name, steps.work(name))) for name in ("a", "b")]
        await at_rest()
        assert steps.observed == ["a begins", "b begins"]
        assert turns.busy == {"a", "b"}
        steps.let("a")
        steps.let("b")
        await asyncio.gather(*callers)

    run(test())


def test_a_turn_in_a_turn_is_refused_while_the_outer_one_runs() -> None:
    async def test() -> None:
        turns, steps, later = TableLocks(), Steps(), []

        async def nested() -> None:
            await turns.shared("b", steps.work("b"))

        async def leaves_something_to_do() -> None:
            async def afterwards() -> str:
                await at_rest()
                return await turns.exclusive("a", steps.work("a"))

            later.append(asyncio.create_task(afterwards()))

        with pytest.raises(RuntimeError, match="a turn for b was requested inside a turn for a"):
            await turns.exclusive("a", nested)
        await turns.exclusive("a", leaves_something_to_do)
        await at_rest()
        await at_rest()
        steps.let("a")
        assert await later[0] == "a"

    run(test())


def test_work_sees_the_context_of_its_own_caller() -> None:
    name_of: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    async def test() -> None:
        turns, observed = TableLocks(), []

        async def read() -> None:
            await asyncio.sleep(0)
            observed.append(name_of.get())

        async def call(name: str) -> None:
            name_of.set(name)
            await turns.exclusive("t", read)

        await asyncio.gather(call("first"), call("second"), call("third"))
        assert observed == ["first", "second", "third"]

    run(test())


def test_a_failure_without_a_caller_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        turns = TableLocks()

        async def work() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise WorkError("while it was told to end")

        caller = asyncio.create_task(turns.exclusive("shop.orders", work))
        await at_rest()
        caller.cancel()
        await asyncio.wait([caller])
        await at_rest()
        assert turns.busy == frozenset()

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "shop.orders failed after its caller had been cancelled: while it was told to end" in caplog.text


def test_closing_lets_work_end_and_begins_nothing_more() -> None:
    async def test() -> None:
        turns, steps = TableLocks(), Steps()
        first = asyncio.create_task(turns.exclusive("t", steps.work("first")))
        second = asyncio.create_task(turns.exclusive("t", steps.work("second")))
        await at_rest()
        closing = asyncio.create_task(turns.close(30))
        await at_rest()
        with pytest.raises(ClosedError):
            await second
        with pytest.raises(ClosedError):
            await turns.shared("t", steps.work("third"))
        steps.let("first")
        assert await first == "first"
        assert await closing == frozenset()
        assert steps.observed == ["first begins", "first ends"]

    run(test())


def test_closing_cancels_what_does_not_end_by_itself() -> None:
    async def test() -> None:
        turns, steps, let_go = TableLocks(), Steps(), []
        caller = asyncio.create_task(turns.exclusive("t", steps.work("endless")))
        await at_rest()
        assert await turns.close(0.01, lambda: let_go.append(tuple(steps.observed))) == frozenset()
        with pytest.raises(ClosedError):
            await caller
        assert let_go == [("endless begins",)]
        assert steps.observed == ["endless begins", "endless ends"]

    run(test())


def test_closing_names_what_refuses_to_end() -> None:
    async def test() -> None:
        turns, gate = TableLocks(), asyncio.Event()

        async def refuses() -> None:
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue

        caller = asyncio.create_task(turns.exclusive("t", refuses))
        await at_rest()
        assert await turns.close(0.01) == {"t"}
        gate.set()
        await caller
        assert turns.busy == frozenset()

    run(test())
