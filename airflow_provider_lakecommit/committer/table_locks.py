# SPDX-License-Identifier: Apache-2.0
"""Table locks: who may work on a table now. One works alone, or several read; the others wait in the order they came.

Contract: a turn begins when nobody is before it, and ends when its work has ended: completed, failed, thrown before it
gave anything to await, or cancelled *and* gone. It is never the caller that ends it. So a caller may leave (a timeout,
a cancellation) while its work goes on, and the next turn still waits for that work. What is done in a turn is only
known as something to be awaited: another stage in it, however slow, changes nothing for callers.

Invariants: turns of one table begin in order of arrival; reading turns that stand next to each other run together, and
none of them overtakes a turn that waits, so neither readers nor writers starve. A turn is begun by the end of the one
before it, not by a wake-up of its caller, so none can be lost between the two. Tables know nothing of each other; what
nobody works on or waits for is forgotten. A turn takes no other turn, so turns cannot wait for each other in a circle.

Failure story: whoever stops waiting leaves the line, and those behind move up at once. After :meth:`TableLocks.close`
nobody waits and nothing new begins.

All of it belongs to one event loop. The need for a turn that outlasts its caller, and for readers beside it, is that of
coordinators whose log appends became asynchronous (Apache Kafka, pull request 14705).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import ClosedError

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
"""What is done in a turn; called when the turn has begun."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class _Turn:
    """``outcome`` is what the caller awaits, cancelled when the caller leaves. ``task`` is the work, once begun."""

    owner: TableLocks
    table: Hashable
    shared: bool
    work: Work[Any]
    context: Context
    outcome: asyncio.Future[Any]
    task: asyncio.Task[Any] | None = None


@dataclass(slots=True)
class _Line:
    """Of one table. All that run at a time are of one kind; of the exclusive kind it is one."""

    waiting: OrderedDict[_Turn, None] = field(default_factory=OrderedDict)
    running: set[_Turn] = field(default_factory=set)

    def may_begin(self, turn: _Turn) -> bool:
        return not self.running or (turn.shared and next(iter(self.running)).shared)


_inside: ContextVar[_Turn | None] = ContextVar("lakecommit_turn", default=None)


class TableLocks:
    """The lines of all tables of a process."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line] = {}
        self._closed = False

    @property
    def busy(self) -> frozenset[Hashable]:
        """Tables with a turn that runs or waits."""
        return frozenset(self._lines)

    async def exclusive(self, table: Hashable, work: Work[T]) -> T:
        """Do *work* alone on a table, after all that came before.

        :raises ClosedError: shutting down
        :raises RuntimeError: called in a turn that still runs
        :raises BaseException: whatever *work* raises, or gives to raise
        """
        return await self._take(table, work, shared=False)

    async def shared(self, table: Hashable, work: Work[T]) -> T:
        """Do *work* beside others that read, after all exclusive turns that came before; raises the same."""
        return await self._take(table, work, shared=True)

    async def close(self, grace: float, let_go: Callable[[], None] = lambda: None) -> frozenset[Hashable]:
        """Refuse and tell those that wait; give what runs *grace* seconds to end, then cancel it, and as long again.

        :param let_go: called before the cancellation: ends what cannot be cancelled
        :returns: tables on which work runs on that did not let itself be cancelled
        """
        self._closed = True
        for table, line in list(self._lines.items()):
            for turn in line.waiting:
                _settle(turn, error=_closed_error(table))
            line.waiting.clear()
        try:
            await self._ended(grace)
        finally:
            let_go()
            for task in self._tasks():
                task.cancel()
        await self._ended(grace)
        return self.busy

    # -- the line -----------------------------------------------------------------------------------------------------

    async def _take(self, table: Hashable, work: Work[T], *, shared: bool) -> T:
        self._check(table)
        turn = _Turn(
            owner=self,
            table=table,
            shared=shared,
            work=work,
            context=copy_context(),
            outcome=asyncio.get_running_loop().create_future(),
        )
        self._lines.setdefault(table, _Line()).waiting[turn] = None
        self._move_up(table)
        try:
            result: T = await turn.outcome
        except asyncio.CancelledError:
            self._leave(turn)
            raise
        return result

    def _check(self, table: Hashable) -> None:
        outer = _inside.get()
        if outer is not None and outer.owner is self and not (outer.task and outer.task.done()):
            raise RuntimeError(f"a turn for {table} was requested inside a turn for {outer.table}: this can deadlock")
        if self._closed:
            raise _closed_error(table)

    def _move_up(self, table: Hashable) -> None:
        """Begin every turn that nobody is before."""
        line = self._lines[table]
        while line.waiting and line.may_begin(turn := next(iter(line.waiting))):
            del line.waiting[turn]
            line.running.add(turn)
            turn.context.run(_inside.set, turn)
            turn.task = asyncio.get_running_loop().create_task(_work(turn), context=turn.context)
            turn.task.add_done_callback(partial(self._end, turn))
        if not line.waiting and not line.running:
            del self._lines[table]

    def _leave(self, turn: _Turn) -> None:
        """The caller does not wait any more."""
        if turn.outcome.done() and not turn.outcome.cancelled():
            _unheard(turn, turn.outcome.exception())
        elif turn.task is not None:
            turn.task.cancel()
        elif (line := self._lines.get(turn.table)) and turn in line.waiting:
            del line.waiting[turn]
            self._move_up(turn.table)

    def _end(self, turn: _Turn, task: asyncio.Task[Any]) -> None:
        """The work has ended: the next ones begin, and the caller is told."""
        self._lines[turn.table].running.discard(turn)
        self._move_up(turn.table)
        if task.cancelled():
            _settle(turn, error=_closed_error(turn.table) if self._closed else None)
        elif error := task.exception():
            _settle(turn, error=error)
        elif not turn.outcome.done():
            turn.outcome.set_result(task.result())

    # -- the end ------------------------------------------------------------------------------------------------------

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [turn.task for line in self._lines.values() for turn in line.running if turn.task is not None]

    async def _ended(self, within: float) -> None:
        if tasks := self._tasks():
            await asyncio.wait(tasks, timeout=within)


async def _work(turn: _Turn) -> Any:
    return await turn.work()


def _settle(turn: _Turn, *, error: BaseException | None) -> None:
    """Tell the caller how it ended, if it is still there; ``None`` is a cancellation."""
    if turn.outcome.done():
        _unheard(turn, error)
    elif error is None:
        turn.outcome.cancel()
    else:
        turn.outcome.set_exception(error)


def _unheard(turn: _Turn, error: BaseException | None) -> None:
    if error is not None and not isinstance(error, ClosedError):
        _log.warning("Work on %s failed after its caller had been cancelled: %s", turn.table, error)


def _closed_error(table: Hashable) -> ClosedError:
    return ClosedError(
        "LC3038", f"{table}: the committer of this process is shutting down; the next attempt continues from here"
    )
