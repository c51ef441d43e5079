# SPDX-License-Identifier: Apache-2.0
"""Blocking calls that an event loop waits for, and the order in which they begin.

Contract: a call runs in any thread and is settled in its loop; what it gives or raises is given or raised there. Calls
leave the queue in the order in which they came, but for those of tables that have ``per_table`` calls out of it: they
stand aside, hold up nobody, and come back in their own order.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

_log = logging.getLogger(__name__)


class ExitError(RuntimeError):
    """A call ended with what no event loop may see: an exit of its thread, or a StopIteration. ``__cause__`` has it."""


@dataclass(eq=False, slots=True, kw_only=True)
class Call:
    table: Hashable
    do: Callable[[], Any]
    context: Context
    done: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    begun: bool = False

    def run(self) -> None:
        """In a thread."""
        try:
            self.result = self.context.run(self.do)
        except BaseException as e:
            self.error = e

    def settle(self) -> None:
        """In the loop."""
        if self.done.done():
            if self.error is not None:
                _log.warning("A catalog call for %s failed after it was abandoned: %s", self.table, self.error)
        elif self.error is None:
            self.done.set_result(self.result)
        elif isinstance(self.error, Exception) and not isinstance(self.error, StopIteration):
            self.done.set_exception(self.error)
        else:
            # An exit of a thread is none of the loop's, and futures refuse to carry StopIteration.
            error = ExitError(f"a call of {self.table} ended with {self.error!r}")
            error.__cause__ = self.error
            self.done.set_exception(error)


@dataclass(slots=True)
class CallQueue:
    """Calls that wait, in order; those of tables at their limit stand aside."""

    per_table: int
    ready: OrderedDict[Call, None] = field(default_factory=OrderedDict)
    aside: dict[Hashable, OrderedDict[Call, None]] = field(default_factory=dict)
    taken: Counter[Hashable] = field(default_factory=Counter)

    def add(self, call: Call) -> None:
        if self.taken[call.table] < self.per_table:
            self.taken[call.table] += 1
            self.ready[call] = None
        else:
            self.aside.setdefault(call.table, OrderedDict())[call] = None

    def free(self, table: Hashable) -> None:
        """A call of the table that was ready or begun is over."""
        self.taken[table] -= 1
        if waiting := self.aside.get(table):
            call, _ = waiting.popitem(last=False)
            self.taken[table] += 1
            self.ready[call] = None
        self._forget(table)

    def withdraw(self, call: Call) -> None:
        if call in self.ready:
            del self.ready[call]
            self.free(call.table)
        elif call in (waiting := self.aside.get(call.table, OrderedDict())):
            del waiting[call]
            self._forget(call.table)

    def _forget(self, table: Hashable) -> None:
        if not self.aside.get(table, True):
            del self.aside[table]
        if not self.taken[table]:
            del self.taken[table]
