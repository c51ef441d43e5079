# SPDX-License-Identifier: Apache-2.0
"""Turn SIGTERM and SIGINT into one exception in the main thread.

:class:`Stopped` is no :class:`Exception`, so no handler mistakes it for a failure. A second signal ends the process at
once: everything that matters is durable at any moment. An exception raised in code that cannot fail (a fork hook while
Java starts) is lost; :meth:`Signals.check` raises it again.
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
    """Installs the handlers and restores the previous ones. Code that replaces them calls :meth:`install` again."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._reported: int | None = None

    def install(self) -> None:
        if self._reported is None:
            for number in _SIGNALS:
                signal.signal(number, self._stop)

    def check(self) -> None:
        """Raise the exception of a signal that was lost; callable from any thread."""
        if self._reported is not None:
            raise Stopped(self._reported)

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._reported = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        raise Stopped(number)
