# SPDX-License-Identifier: Apache-2.0
"""The queue of the pool next to a model: lists, and the rule of which call may begin.

Callers come and leave, threads return or hang, in random order. The threads are stand-ins that the test ends, so that
everything happens in the loop, which comes to rest after each step.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_lakecommit.committer.blocking_pool import BlockingPool, Call
from tests.support.effort import examples

THREADS, MOST = 2, 4
TABLES = ("orders", "returns", "visits")


class Thread:
    """A worker without a thread: it has the call that it was given."""

    def __init__(self) -> None:
        self.inbox = self
        self.call: Call | None = None

    def put(self, call: Call | None) -> None:
        self.call = call


class Pool(BlockingPool):
    def _worker(self) -> Any:
        if self._idle:
            return self._idle.pop()
        return Thread() if self.size < self._most else None


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.pool = self.loop.run_until_complete(self.made())
        self.callers: dict[int, asyncio.Task[Any]] = {}
        self.table_of: dict[int, str] = {}
        self.order: dict[str, list[int]] = defaultdict(list)
        """The calls of each table that were not withdrawn, in order of arrival, until they are over."""
        self.left: set[int] = set()
        self.over: set[int] = set()

    async def made(self) -> Pool:
        return Pool(threads=THREADS, most=MOST, slow_after=3600, log=lambda _: None)

    def rest(self) -> None:
        for _ in range(10):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def begun(self) -> dict[int, Any]:
        return {call.do(): worker for worker, call in self.pool._busy.items()}

    @rule(table=st.sampled_from(TABLES))
    def come(self, table: str) -> None:
        number = len(self.table_of)
        self.table_of[number] = table
        self.order[table].append(number)
        self.callers[number] = self.loop.create_task(self.pool.run(table, lambda: number))
        self.rest()

    @precondition(lambda self: self.begun())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun())))
        worker = self.begun()[number]
        call = self.pool._busy[worker]
        call.run()
        self.pool._over(worker, call)
        self.order[self.table_of[number]].remove(number)
        self.over.add(number)
        self.rest()

    @precondition(lambda self: any(not c.done() for c in self.callers.values()))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([n for n, c in self.callers.items() if not c.done()]))
        if number not in self.begun():
            self.order[self.table_of[number]].remove(number)
        self.left.add(number)
        self.callers[number].cancel()
        self.rest()

    @precondition(lambda self: any(not c.hangs for c in self.pool._busy.values()))
    @rule(data=st.data())
    def hang(self, data: st.DataObject) -> None:
        counted = sorted(n for n, worker in self.begun().items() if not self.pool._busy[worker].hangs)
        self.pool._hangs(self.begun()[data.draw(st.sampled_from(counted))])
        self.rest()

    @invariant()
    def only_the_first_call_of_a_table_has_begun(self) -> None:
        heads = {calls[0] for calls in self.order.values() if calls}
        assert self.begun().keys() <= heads
        assert self.pool.tables == {table for table, calls in self.order.items() if calls}

    @invariant()
    def no_thread_is_idle_while_a_call_could_begin(self) -> None:
        heads = {calls[0] for calls in self.order.values() if calls}
        counted = sum(not call.hangs for call in self.pool._busy.values())
        assert self.pool.size <= MOST
        assert counted <= THREADS
        assert heads <= self.begun().keys() or counted == THREADS or len(self.pool._busy) == MOST

    @invariant()
    def callers_have_their_results(self) -> None:
        for number, caller in self.callers.items():
            if number in self.left:
                assert caller.cancelled()
            else:
                assert caller.done() is (number in self.over)
                assert not caller.done() or caller.result() == number

    def teardown(self) -> None:
        self.pool.close()
        self.rest()
        assert all(caller.done() for caller in self.callers.values())
        for caller in self.callers.values():
            if not caller.cancelled():
                caller.exception()
        self.loop.close()


class TestPool(Machine.TestCase):  # type: ignore[misc, name-defined]
    settings: ClassVar[settings] = settings(
        max_examples=examples(150),
        stateful_step_count=40,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
