# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop: SIGTERM and SIGINT become an exception in the main thread, once.

Contract: :class:`Stopped` is no :class:`Exception`, so that nothing on the way takes it for a failure of its own. A
second signal ends the process at once: everything that matters is durable at any moment.

Failure story: where a signal comes while Python runs what cannot fail (a hook of a fork, as Java is started), the
exception is lost. :meth:`Signals.check` raises it again.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

__all__ = ["Signals", "Stopped"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(KeyboardInterrupt):
    """A signal asked us to end; ``code`` is the exit code that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class Signals:
    """Installs the handlers, and puts back those before it. Whoever replaces them calls :meth:`install` again after."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._told: int | None = None

    def install(self) -> None:
        if self._told is None:
            for number in _SIGNALS:
                signal.signal(number, self._stop)

    def check(self) -> None:
        """Raise the exception of a signal that arrived and was lost. May be asked in any thread.

        :raises Stopped: it has
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
