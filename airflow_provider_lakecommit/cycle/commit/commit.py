# SPDX-License-Identifier: Apache-2.0
"""Commit the tables of one landing in turns: each table by itself, without waiting for a failing one.

Contract: each table is prepared in one turn and published in another, in the landing's order. A table proceeds when the
previous one is done, or after :data:`NEXT_TABLE_AFTER` seconds; so a table that hangs or fails delays no other by more
than that, and normally the durable steps have one order. Work is submitted as a
:class:`~airflow_provider_lakecommit.iceberg.ledger.executor.TableTask` about a :class:`TableCommit`; other work of a
turn (an audit) is unknown here.

Invariants: the cycle is read once, with the tables known by then; if it is complete, nothing is published. A table
publishes on the newest read of the log, a late table on its own. The control position moves only if all tables were
readable.

Failure story: a table's error is kept under its name. Foreign exceptions, such as an exit, are kept too and stop all
further work; the caller raises them first. A table without a known result has failed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from uuid import UUID

from airflow_provider_lakecommit.core import CycleState, TableLedger
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_table
from airflow_provider_lakecommit.cycle.commit.publish import TablePublisher
from airflow_provider_lakecommit.cycle.commit.refusals import Refusals, block_over_ratio
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable
from airflow_provider_lakecommit.cycle.plan.start import cycle_of_ticket
from airflow_provider_lakecommit.cycle.results import CycleTicket, PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError, FencedError, LakecommitError
from airflow_provider_lakecommit.iceberg import Committer, ExitError

NEXT_TABLE_AFTER = 3.0
"""Seconds that a table of a landing waits for the previous one."""

_NO_TABLES = (ClosedError, ControlTopicError, FencedError)
"""Errors in the commit of a table that are not the table's own."""

Step = Literal["prepare", "publish", "audit", "trim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The subject of a table task. ``table`` is set from the step ``publish`` on: its ledger, schema and head."""

    landing: str
    lane: str
    commit_id: UUID
    name: str
    step: Step
    table: PreparedTable | None = None


@dataclass(slots=True, kw_only=True)
class TableCommits:
    """One attempt to commit all tables of a cycle; its progress may be read at any time.

    :param left_out: tables to skip
    :param fast_fail: tables whose commits give up quickly
    :param logs: log the failures of tables
    :ivar voided: attempts that no table takes any more
    :ivar not_taken: by table, the attempts that it does not take; others may
    :ivar folded: the newest read of the log, ``None`` if no table could be prepared
    :ivar ledgers: the ledgers after the commits
    :ivar state: the cycle at the first read
    :ivar on_main: what checks let through to ``main``
    """

    session: LandingSession
    ticket: CycleTicket
    left_out: frozenset[str] = frozenset()
    fast_fail: frozenset[str] = frozenset()
    logs: bool = True
    voided: dict[UUID, str] = field(default_factory=dict)
    not_taken: dict[str, dict[UUID, str]] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)
    folded: FoldedLog | None = None
    state: CycleState | None = None
    on_main: tuple[PublishedSnapshot, ...] = ()
    ledgers: dict[str, TableLedger] = field(default_factory=dict)
    _published: dict[str, list[PublishedSnapshot]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _others: list[BaseException] = field(default_factory=list)
    _blind: LakecommitError | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def published(self) -> tuple[PublishedSnapshot, ...]:
        """Return what readers have: of a landing with checks what ``main`` has."""
        return self.on_main if self.session.landing.checks else self.landed

    @property
    def landed(self) -> tuple[PublishedSnapshot, ...]:
        """Return what is on the landing's branch."""
        return tuple(p for name in self.session.landing.tables for p in self._published.get(name, ()))

    @property
    def done(self) -> frozenset[str]:
        """Return the tables that were tried and have not failed."""
        return frozenset(self._done)

    @property
    def others_go_on(self) -> bool:
        """Return True if all failures are those of single tables, and another table of rows continues."""
        whole = not self._others and self._blind is None
        alone = not any(isinstance(error, _NO_TABLES) for error in self.failures.values())
        return whole and alone and bool(self._done & set(self.session.landing.data_tables))

    @property
    def refused(self) -> dict[UUID, str]:
        """Return the attempts that at least one table does not take, with the reason."""
        return {**self.voided, **{attempt: why for some in self.not_taken.values() for attempt, why in some.items()}}

    @property
    def complete(self) -> bool:
        """Return True if the cycle was complete before."""
        return self.state is not None and self.state.complete

    async def prepare(self, committer: Committer) -> tuple[PreparedTable, ...]:
        """Prepare every table, without a commit; return those with a ledger of this stream."""
        running: list[asyncio.Task[Any]] = []
        try:
            preparing = await self._preparing(committer, running)
            await asyncio.wait(preparing)
        finally:
            _cancel(running)
        found = [_found(each) for each in preparing]
        self._account(name for name, table in zip(self.session.landing.tables, found, strict=True) if table is None)
        return tuple(table for table in found if table is not None)

    async def run(self, committer: Committer) -> None:
        """Prepare and publish every table that is tried."""
        tables = self._tried
        running: list[asyncio.Task[Any]] = []
        try:
            preparing = await self._preparing(committer, running)
            await asyncio.wait(preparing, timeout=NEXT_TABLE_AFTER)
            publish = [partial(self._publish, committer, n, preparing) for n in range(len(tables))]
            await asyncio.wait(await _in_order(publish, running))
        finally:
            _cancel(running)
        self._account(tables)

    def check_exits(self) -> None:
        """Raise a foreign exception after all tables are done.

        :raises BaseException: the exception that ended a table and is no error of this package
        """
        if self._others:
            raise self._others[0]

    def check(self) -> None:
        """Raise as :meth:`check_exits`, then the first table's failure, or the log's error."""
        self.check_exits()
        if self.failures:
            raise next(iter(self.failures.values()))
        if self._blind is not None:
            raise self._blind

    def read_log(self, known: Sequence[TableLedger]) -> FoldedLog:
        """Return the newest read of the log, covering at least the given tables.

        :raises LakecommitError: the log cannot be read; it is not retried
        """
        with self._lock:
            if self._blind is not None:
                raise self._blind
            try:
                if self.folded is None:
                    folded = self.session.read_state(known)
                    self.state = own_cycle(self.session, self.ticket, folded)
                    if not self.complete:
                        folded = block_over_ratio(self.session, self.ticket, folded)
                    self.folded = folded
                elif {t.table for t in known} - {t.table for t in self.folded.ledgers}:
                    self.folded = self.session.read_state([self.ledgers.get(t.table, t) for t in known])
            except LakecommitError as e:
                self._blind = e
                raise
            return self.folded

    @property
    def _tried(self) -> tuple[str, ...]:
        return tuple(name for name in self.session.landing.tables if name not in self.left_out)

    # -- one table ----------------------------------------------------------------------------------------------------

    async def _preparing(
        self, committer: Committer, running: list[asyncio.Task[Any]]
    ) -> list[asyncio.Task[PreparedTable | None]]:
        return await _in_order([partial(self._prepare, committer, n) for n in self._tried], running)

    async def _prepare(self, committer: Committer, name: str) -> PreparedTable | None:
        """Return ``None`` if the table has no ledger of this stream, or failed."""
        about = self.about(name, "prepare")
        found: PreparedTable | None = None
        with self._keeping(name):
            found = await committer.run_exclusive(
                self.session.key(name), partial(prepare_table, self.session, name), about=about
            )
            if found is None:
                self._done.add(name)
        return found

    async def _publish(
        self, committer: Committer, index: int, preparing: Sequence[asyncio.Task[PreparedTable | None]]
    ) -> None:
        # Waited for, not awaited: cancelling this must not cancel that.
        await asyncio.wait([preparing[index]])
        table = _found(preparing[index])
        if table is None or self._others:
            return
        known = [found for each in preparing if (found := _found(each)) is not None]
        without = [name for name in self.session.landing.tables if name not in {t.name for t in known}]
        whole = all(name in self._done for name in without)
        about = self.about(table.name, "publish", table)
        call = partial(self._published_by, table, [t.ledger for t in known], whole)
        with self._keeping(table.name):
            await committer.run_exclusive(self.session.key(table.name), call, about=about)
            self._done.add(table.name)

    def _published_by(self, table: PreparedTable, known: Sequence[TableLedger], whole: bool) -> None:
        """Publish the table; runs in a thread."""
        folded = self.read_log(known)
        if self.complete:
            return
        not_taken = self.not_taken.setdefault(table.name, {})
        publisher = TablePublisher(
            session=self.session,
            ticket=self.ticket,
            table=table,
            whole=whole,
            refusals=Refusals(session=self.session, table=table.name, voided=self.voided, not_taken=not_taken),
            fast_fail=table.name in self.fast_fail,
        )
        try:
            folded = publisher.run(folded, self._published.setdefault(table.name, []))
        finally:
            with self._lock:
                self.ledgers[table.name] = publisher.table.ledger
        with self._lock:
            if self.folded is None or len(folded.ledgers) >= len(self.folded.ledgers):
                self.folded = folded

    def about(self, name: str, step: Step, table: PreparedTable | None = None) -> TableCommit:
        """Return the subject of a task about a table."""
        landing, commit_id = self.session.landing.name, self.ticket.commit_id
        return TableCommit(
            landing=landing, lane=self.session.lane, commit_id=commit_id, name=name, step=step, table=table
        )

    def _account(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._done and name not in self.failures:
                self.failures[name] = ClosedError(
                    "LC6201", f"{name}: the commit was stopped; the next attempt continues"
                )

    @contextmanager
    def _keeping(self, name: str) -> Iterator[None]:
        """Keep the error of a table, except a cancellation. An unreadable log is not a table's failure."""
        try:
            yield
        except asyncio.CancelledError:
            raise
        except BaseException as e:
            error = e.__cause__ or e if isinstance(e, ExitError) else e
            if error is self._blind:
                self._done.add(name)
            elif isinstance(error, LakecommitError):
                if self.logs:
                    self.session.log(f"{name}: {error}")
                self.failures[name] = error
            else:
                if isinstance(error, Exception):
                    self.failures[name] = error
                self._others.append(error)


def own_cycle(session: LandingSession, ticket: CycleTicket, folded: FoldedLog) -> CycleState | None:
    """Return the run's cycle. If a later cycle closed it, no ledger needs its part of the log any more."""
    return folded.state.cycles.get(ticket.commit_id) or cycle_of_ticket(session, ticket)


def _found(preparing: asyncio.Task[PreparedTable | None]) -> PreparedTable | None:
    return preparing.result() if preparing.done() and not preparing.cancelled() else None


def _cancel(running: Sequence[asyncio.Task[Any]]) -> None:
    for task in running:
        task.cancel()


async def _in_order(works: Sequence[Callable[[], Any]], running: list[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Start each when the previous ones are done or late."""
    tasks: list[asyncio.Task[Any]] = []
    for work in works:
        if tasks:
            await asyncio.wait(tasks, timeout=NEXT_TABLE_AFTER)
        tasks.append(asyncio.create_task(work()))
        running.append(tasks[-1])
    return tasks
