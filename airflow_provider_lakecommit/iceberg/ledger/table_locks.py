# SPDX-License-Identifier: Apache-2.0
"""Table locks: one exclusive turn, or several shared ones, at a time per table; the others wait in order of arrival.

Contract: a turn begins when no turn is before it, and ends when its work has ended: completed, failed, raised before it
returned an awaitable, or cancelled *and* finished. The caller never ends it. So a caller may leave (a timeout, a
cancellation) while its work continues, and the next turn still waits for that work. The work of a turn is only known as
an awaitable: a further stage in it, however slow, changes nothing for callers.

Invariants: turns of one table begin in order of arrival; adjacent shared turns run together, and none overtakes a
waiting turn, so neither readers nor writers starve. The end of a turn begins the next one, not a wake-up of its caller,
so none is lost in between. Tables are independent; a table without turns is forgotten. A turn takes no other turn, so
turns cannot wait for each other in a circle.

Failure story: a caller that stops waiting leaves the line, and the next ones move up at once. After
:meth:`TableLocks.close`, no caller waits and nothing new begins.

All of it belongs to one event loop. Turns that outlast their caller, with concurrent readers, are also needed by
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
"""The work of a turn; called when the turn has begun."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True, kw_only=True)
class _Turn:
    """``outcome`` is awaited by the caller, and cancelled when the caller leaves. ``task`` is the work, once begun."""

    owner: TableLocks
    table: Hashable
    shared: bool
    work: Work[Any]
    context: Context
    outcome: asyncio.Future[Any]
    task: asyncio.Task[Any] | None = None


@dataclass(slots=True)
class _Line:
    """The turns of one table. Those that run at a time are all shared, or one is exclusive."""

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
        """Return the tables with a running or waiting turn."""
        return frozenset(self._lines)

    async def exclusive(self, table: Hashable, work: Work[T]) -> T:
        """Do *work* alone on a table, after all earlier turns.

        :raises ClosedError: shutting down
        :raises RuntimeError: called in a turn that still runs
        :raises BaseException: the error of *work*
        """
        return await self._take(table, work, shared=False)

    async def shared(self, table: Hashable, work: Work[T]) -> T:
        """Do *work* alongside other readers, after all earlier exclusive turns; raises the same."""
        return await self._take(table, work, shared=True)

    async def close(self, grace: float, let_go: Callable[[], None] = lambda: None) -> frozenset[Hashable]:
        """Refuse all waiting turns; give running ones *grace* seconds to end, then cancel them, and wait as long again.

        :param let_go: called before the cancellation: ends what cannot be cancelled
        :returns: tables whose work could not be cancelled and continues
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
        """Begin every turn that has no turn before it."""
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
        """Drop the caller's interest in a turn."""
        if turn.outcome.done() and not turn.outcome.cancelled():
            _unheard(turn, turn.outcome.exception())
        elif turn.task is not None:
            turn.task.cancel()
        elif (line := self._lines.get(turn.table)) and turn in line.waiting:
            del line.waiting[turn]
            self._move_up(turn.table)

    def _end(self, turn: _Turn, task: asyncio.Task[Any]) -> None:
        """End the turn of finished work: begin the next ones, and notify the caller."""
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
    """Pass the result to the caller, if it still waits; ``None`` is a cancellation."""
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
