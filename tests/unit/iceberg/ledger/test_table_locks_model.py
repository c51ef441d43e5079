# SPDX-License-Identifier: Apache-2.0
"""Turns next to a model: lists, and the rule of who may begin.

Two machines do the same things in random order: callers come, leave before or in their turn, work ends in every way it
can. The first lets the loop come to rest after each thing, and then reality has to be the model. The second goes on
after any number of the loop's rounds, so that things meet in the middle; there the rules that always hold are checked,
and that nobody is forgotten in the end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_lakecommit.iceberg.ledger.table_locks import TableLocks
from tests.support.effort import examples

TABLES = ("orders", "returns")
KINDS = ("plain", "plain", "plain", "stubborn", "ready", "throws")


class WorkError(Exception):
    pass


@dataclass(eq=False, kw_only=True)
class Job:
    """*stubborn* work is like a call in a thread: it is not over before its gate is open, cancelled or not."""

    number: int
    table: str
    shared: bool
    kind: str
    gate: asyncio.Future[int]
    caller: asyncio.Task[int] | None = None
    left: bool = False
    ended_as: str | None = None

    @property
    def over(self) -> bool:
        """Is its work over as soon as it has begun?"""
        return self.kind == "throws" or self.ended_as is not None or (self.left and self.kind != "stubborn")


@dataclass
class Line:
    """The model of one table."""

    waiting: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)

    def rest(self) -> None:
        """Let everything happen that can."""
        while True:
            over = [job for job in self.running if job.over]
            self.running = [job for job in self.running if not job.over]
            head = self.waiting[0] if self.waiting else None
            free = head and (not self.running or (head.shared and all(job.shared for job in self.running)))
            if head and free:
                self.running.append(self.waiting.pop(0))
                self.begun.append(head.number)
            elif not over:
                return


class Machine(RuleBasedStateMachine):
    """What both do."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.unforeseen: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unforeseen.append(context))
        self.table_locks = TableLocks()
        self.jobs: list[Job] = []
        self.inside: dict[str, list[Job]] = defaultdict(list)
        self.begun: dict[str, list[int]] = defaultdict(list)

    def after(self) -> None:
        raise NotImplementedError

    def round(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def settle(self) -> None:
        live = sum(job.caller is None or not job.caller.done() for job in self.jobs)
        for _ in range(6 * live + 6):
            self.round()

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule(table=st.sampled_from((*TABLES[:1] * 3, *TABLES)), shared=st.booleans(), kind=st.sampled_from(KINDS))
    def come(self, table: str, shared: bool, kind: str) -> None:
        job = Job(number=len(self.jobs), table=table, shared=shared, kind=kind, gate=self.loop.create_future())
        if kind == "ready":
            self.open(job, "value")
        take = self.table_locks.shared if shared else self.table_locks.exclusive
        job.caller = self.loop.create_task(take(table, self.work_of(job)))
        self.jobs.append(job)
        self.arrived(job)
        self.after()

    @precondition(lambda self: any(not job.gate.done() for job in self.jobs))
    @rule(data=st.data(), how=st.sampled_from(("value", "error")))
    def end(self, data: st.DataObject, how: str) -> None:
        self.open(data.draw(st.sampled_from([job for job in self.jobs if not job.gate.done()])), how)
        self.after()

    @precondition(lambda self: any(self.stays(job) for job in self.jobs))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.go(data.draw(st.sampled_from([job for job in self.jobs if self.stays(job)])))
        self.after()

    @precondition(lambda self: any(self.stays(job) and not job.gate.done() for job in self.jobs))
    @rule(data=st.data(), how=st.sampled_from(("value", "error")), first=st.booleans())
    def leave_as_it_ends(self, data: st.DataObject, how: str, first: bool) -> None:
        job = data.draw(st.sampled_from([job for job in self.jobs if self.stays(job) and not job.gate.done()]))
        if first:
            self.go(job)
            self.open(job, how)
        else:
            self.open(job, how)
            self.go(job)
        self.after()

    def arrived(self, job: Job) -> None:
        """For the model."""

    def departed(self, job: Job) -> None:
        """For the model."""

    def stays(self, job: Job) -> bool:
        return not job.left and job.caller is not None and not job.caller.done()

    def open(self, job: Job, how: str) -> None:
        job.ended_as = how
        if how == "error":
            job.gate.set_exception(WorkError(job.number))
            # Nobody may be there to request it.
            job.gate.exception()
        else:
            job.gate.set_result(job.number)

    def go(self, job: Job) -> None:
        assert job.caller is not None
        job.left = True
        job.caller.cancel()
        self.departed(job)

    def work_of(self, job: Job) -> Callable[[], Any]:
        def enter() -> None:
            self.inside[job.table].append(job)
            self.begun[job.table].append(job.number)
            self.alone_or_all_shared()

        def throws() -> Any:
            enter()
            self.inside[job.table].remove(job)
            raise WorkError(job.number)

        async def awaited() -> int:
            enter()
            try:
                if job.kind == "stubborn":
                    return await stubborn(job.gate)
                return await asyncio.shield(job.gate)
            finally:
                self.inside[job.table].remove(job)

        return throws if job.kind == "throws" else awaited

    # -- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def alone_or_all_shared(self) -> None:
        for jobs in self.inside.values():
            assert len(jobs) < 2 or all(job.shared for job in jobs)

    @invariant()
    def in_order_of_arrival(self) -> None:
        for numbers in self.begun.values():
            assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        try:
            self.settle()
            for job in self.jobs:
                if not job.gate.done():
                    self.open(job, "value")
            self.settle()
            self.no_caller_is_forgotten()
            assert self.unforeseen == []
        finally:
            self.loop.close()

    def no_caller_is_forgotten(self) -> None:
        assert self.table_locks.busy == frozenset()
        for job in self.jobs:
            assert job.caller is not None
            assert job.caller.done()
            if job.caller.cancelled():
                assert job.left
            else:
                self.result_is_true(job, job.caller)
            assert job.left or job.number in self.begun[job.table]

    def result_is_true(self, job: Job, caller: asyncio.Task[int]) -> None:
        if error := caller.exception():
            assert isinstance(error, WorkError)
            assert error.args == (job.number,)
            assert job.kind == "throws" or job.ended_as == "error"
        else:
            assert caller.result() == job.number
            assert job.kind != "throws"
            assert job.ended_as == "value"


async def stubborn(gate: asyncio.Future[int]) -> int:
    cancelled: asyncio.CancelledError | None = None
    while not gate.done():
        try:
            await asyncio.wait([gate])
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled:
        raise cancelled
    return gate.result()


class AtRest(Machine):
    """Reality is the model whenever the loop has come to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.model = {table: Line() for table in TABLES}

    def arrived(self, job: Job) -> None:
        self.model[job.table].waiting.append(job)

    def departed(self, job: Job) -> None:
        waiting = self.model[job.table].waiting
        if job in waiting:
            waiting.remove(job)

    def after(self) -> None:
        self.settle()
        for line in self.model.values():
            line.rest()

    @invariant()
    def reality_is_the_model(self) -> None:
        for table, line in self.model.items():
            assert self.begun[table] == line.begun
            assert set(self.inside[table]) == set(line.running)
            assert (table in self.table_locks.busy) == bool(line.running or line.waiting)
        busy = {job for line in self.model.values() for job in (*line.running, *line.waiting)}
        for job in self.jobs:
            assert job.caller is not None
            assert job.caller.done() == (job.left or job not in busy)


class InBetween(Machine):
    """Things happen while others are under way."""

    def after(self) -> None:
        """The next thing comes at once."""

    @rule(rounds=st.integers(1, 4))
    def some_rounds(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()


SETTINGS = settings(
    max_examples=examples(150),
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class TestAtRest(AtRest.TestCase):  # type: ignore[misc, name-defined]
    settings: ClassVar[settings] = SETTINGS


class TestInBetween(InBetween.TestCase):  # type: ignore[misc, name-defined]
    settings: ClassVar[settings] = SETTINGS
