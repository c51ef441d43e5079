# SPDX-License-Identifier: Apache-2.0
"""One request for all who ask at the same time.

Contract: :meth:`Combined.ask` is answered by a request that began after the question: those who ask while one is under
way share the next. At most ``at_once`` requests are under way. Whoever finds room makes the request for all who wait,
in its own thread, after a moment in which others may join: what a request costs hardly depends on how many share it.

Failure story: where a request for several fails, all of them are told so, and may ask again alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Combined"]

A = TypeVar("A")
R = TypeVar("R")


class Combined(Generic[A, R]):
    """Many who ask, one who does.

    :param do: makes one request of several questions; an answer each, in their order, or what is raised in its place
    :param most: questions of one request
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

    def ask(self, question: A) -> R:
        """The answer, from whoever made the request.

        :raises Exception: what it failed with
        """
        answer: Future[R] = Future()
        with self._changed:
            self._waiting.append((question, answer))
        while not answer.done():
            if self._is_to_lead(answer):
                try:
                    self._request()
                finally:
                    with self._changed:
                        self._free += 1
                        self._changed.notify_all()
        return answer.result()

    def _is_to_lead(self, answer: Future[R]) -> bool:
        """Wait for the answer, or until it falls to this thread to ask for it."""
        with self._changed:
            self._changed.wait_for(lambda: answer.done() or (self._free and self._is_waiting(answer)))
            if answer.done():
                return False
            self._free -= 1
            return True

    def _is_waiting(self, answer: Future[R]) -> bool:
        """Return True if nothing has requested it yet."""
        return any(each is answer for _, each in self._waiting)

    def _request(self) -> None:
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
