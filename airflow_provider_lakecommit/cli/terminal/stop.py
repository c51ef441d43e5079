# SPDX-License-Identifier: Apache-2.0
"""Stop requests: SIGTERM and SIGINT become an exception in the main thread, once.

Contract: :class:`Stopped` is no :class:`Exception`, so no handler takes it for a failure of its own. A second signal
ends the process at once: everything that matters is durable at any moment.

Failure story: if a signal arrives while Python runs code that cannot fail (a hook of a fork, when Java is started), the
exception is lost. :meth:`Signals.check` raises it again.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """A signal stopped the process; ``code`` is its exit code."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class Signals:
    """Installs the handlers, and restores the previous ones. Code that replaces them calls :meth:`install` again."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._told: int | None = None

    def install(self) -> None:
        if self._told is None:
            for number in _SIGNALS:
                signal.signal(number, self._stop)

    def check(self) -> None:
        """Raise the exception of a signal that was lost. May be called in any thread.

        :raises Stopped: a signal was lost
        """
        if self._told is not None:
            raise Stopped(self._told)

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._told = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)
