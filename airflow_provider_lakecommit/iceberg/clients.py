# SPDX-License-Identifier: Apache-2.0
"""Clients of one catalog, each lent to one call at a time and reused, and a deadline for their calls.

pyiceberg makes no promise for shared clients: Hive's has one connection, which any call opens and closes; REST's
refreshes its token without a lock; a SQL client has 15 connections, and as many hanging calls block all others. Its
calls, and those of database drivers, have no deadline: they wait forever for a server that hangs.

Contract: a client belongs to its borrower until the end of the block, from any thread. A client that did not answer in
time is not reused: its connection may be dead, and its call may still hang. :func:`within` returns or raises a call's
result, an interrupt of the process included, or raises ``TimeoutError`` at the deadline. Its own thread makes the call,
so the caller can be interrupted wherever the call hangs.

Failure story: after :meth:`CatalogClients.close` none is lent, not even to a thread that was in a hanging call. A
thread cannot be stopped: an abandoned call may still complete, so its outcome is unknown; its thread is a daemon and
does not keep the process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_lakecommit.exceptions import ClosedError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

T = TypeVar("T")

MANY = 1000
ROOM_SECONDS = 1.0
"""For which a client is waited for where there are to be few."""
FIRST_SECONDS = 10.0
"""For which the others wait while the first client is made, as that may create the catalog's own tables."""


class CatalogClients:
    """The clients that are not lent, and a way to create more.

    :param connect: creates one
    :param name: of the catalog, for messages
    :param few: number in use at a time while none is slow
    """

    def __init__(self, connect: Callable[[], Catalog], name: Callable[[], str], few: int = MANY) -> None:
        self._connect = connect
        self._name = name
        self._idle: list[Catalog] = []
        self._connected_before = False
        self._closed = False
        self._lock = threading.Lock()
        self._first = threading.Lock()
        self._room = threading.Semaphore(few)

    @contextmanager
    def lend(self) -> Iterator[Catalog]:
        """Lend a client exclusively until the end of the block.

        :raises ClosedError: none is lent any more
        """
        # Whoever waits that long waits for calls that hang, and is not to.
        room = self._room.acquire(timeout=ROOM_SECONDS)
        try:
            with self._lent() as catalog:
                yield catalog
        finally:
            if room:
                self._room.release()

    @contextmanager
    def _lent(self) -> Iterator[Catalog]:
        with self._lock:
            if self._closed:
                raise ClosedError(
                    "LC3309", f"catalog {self._name()} was closed: this attempt ends, the next one continues"
                )
            catalog = self._idle.pop() if self._idle else None
        if catalog is None:
            catalog = self._new()
        answered = True
        try:
            yield catalog
        except TimeoutError:
            answered = False
            raise
        finally:
            with self._lock:
                kept = not self._closed and answered
                if kept:
                    self._idle.append(catalog)
            if not kept and answered:
                _close(catalog)

    def close(self) -> None:
        """Let go of all connections, those in calls that hang as soon as they come back; returns at once."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for catalog in idle:
            _close(catalog)

    def _new(self) -> Catalog:
        if self._connected_before:
            return self._connect()
        acquired = self._first.acquire(timeout=FIRST_SECONDS)
        try:
            catalog = self._connect()
            self._connected_before = True
            return catalog
        finally:
            if acquired:
                self._first.release()


def _close(catalog: Catalog) -> None:
    # Its errors do not matter: it is not used again.
    with suppress(Exception):
        catalog.close()


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call.

    :raises TimeoutError: it has none by then
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as e:  # raised in the caller, of any kind
            answer.set_exception(e)

    threading.Thread(target=copy_context().run, args=(run,), name="answer", daemon=True).start()
    if not wait([answer], seconds).done:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answer.result()
