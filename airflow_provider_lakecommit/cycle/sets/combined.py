# SPDX-License-Identifier: Apache-2.0
"""One request for all concurrent callers.

Contract: :meth:`Combined.request` returns the answer of a request that began after the call: callers during a request
share the next one. At most ``at_once`` requests run. A caller that finds room makes the request for all that wait, in
its own thread, after a moment in which others may join: the cost hardly depends on their number.

Failure story: if a request for several fails, all of them get the error, and may ask again alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Combined(Generic[A, R]):
    """Combines the questions of many callers.

    :param do: makes one request of several questions; returns an answer or exception for each, in order
    :param most: most questions of one request
    :param gather: seconds of that moment
    """

    def __init__(
        self,
        do: Callable[[Sequence[A]], Sequence[R | Exception]],
        *,
        at_once: int = 1,
        most: int = 1000,
        gather: float = 0.0,
    ) -> None:
        self._do = do
        self._most = most
        self._gather = gather
        self._free = at_once
        self._changed = threading.Condition()
        self._waiting: list[tuple[A, Future[R]]] = []

    def request(self, question: A) -> R:
        """Return the answer, from whichever caller made the request.

        :raises Exception: the request's error
        """
        answer: Future[R] = Future()
        with self._changed:
            self._waiting.append((question, answer))
        while not answer.done():
            if self._is_to_lead(answer):
                try:
                    self._run_batch()
                finally:
                    with self._changed:
                        self._free += 1
                        self._changed.notify_all()
        return answer.result()

    def _is_to_lead(self, answer: Future[R]) -> bool:
        """Wait for the answer, or until this thread must make the request."""
        with self._changed:
            self._changed.wait_for(
                lambda: answer.done() or (self._free and any(each is answer for _, each in self._waiting))
            )
            if answer.done():
                return False
            self._free -= 1
            return True

    def _run_batch(self) -> None:
        if self._gather:
            time.sleep(self._gather)
        with self._changed:
            taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        if not taken:
            return
        try:
            found = self._do([question for question, _ in taken])
        except BaseException as e:
            for _, answer in taken:
                answer.set_exception(e)
            return
        for (_, answer), each in zip(taken, found, strict=True):
            if isinstance(each, Exception):
                answer.set_exception(each)
            else:
                answer.set_result(each)
