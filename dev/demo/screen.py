# SPDX-License-Identifier: Apache-2.0
"""What the demo shows: numbered steps, facts and checks, in plain text.

Contract: a check prints whether it holds and is counted; the screen knows at the end whether all of them did. Colour
and the line of progress are for a terminal only (and not under NO_COLOR), so that a log of the demo is clean text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

WIDTH = 96
LABEL = 20
GREEN, RED, BOLD, PLAIN = "\033[32m", "\033[31m", "\033[1m", "\033[0m"
CLEAR_LINE = "\r\033[K"


class Screen:
    """One run's output."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._colour = self._terminal and "NO_COLOR" not in os.environ
        self._began = time.monotonic()
        self.checks = 0
        self.failed: list[str] = []

    def title(self, text: str) -> None:
        """The head line."""
        self._line(self._in(BOLD, text))

    @contextmanager
    def step(self, number: int, title: str) -> Iterator[None]:
        """A numbered step; its time is told when it ends well."""
        began = time.monotonic()
        self._line("")
        self._line(self._in(BOLD, f"{number}. {title}"))
        yield
        self.fact("took", f"{time.monotonic() - began:.1f} s")

    def fact(self, label: str, text: str) -> None:
        """Something that is so."""
        self._line(f"   {label:<{LABEL}}{text}")

    def check(self, label: str, text: str, holds: bool) -> None:
        """Something that must be so."""
        self.checks += 1
        if not holds:
            self.failed.append(label)
        mark = self._in(GREEN, "ok") if holds else self._in(RED, "FAILED")
        self._line(f"   {label:<{LABEL}}{text:<{WIDTH - LABEL - 12}} {mark}")

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as their contents; numbers to the right."""
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        for row in [head, *rows]:
            cells = [c.rjust(w) if _is_number(c) else c.ljust(w) for c, w in zip(row, widths, strict=True)]
            self._line(f"   {'  '.join(cells)}".rstrip())

    def progress(self, text: str) -> None:
        """What is going on, on a line that the next one replaces."""
        if self._terminal:
            self._out.write(f"{CLEAR_LINE}   … {text[: WIDTH - 8]}")
            self._out.flush()

    def note(self, text: str) -> None:
        """Text as it is."""
        self._line(text)

    def verdict(self) -> bool:
        """The last line: whether every check held."""
        took = f"{time.monotonic() - self._began:.0f} s"
        self._line("")
        if self.failed:
            failed = f"{len(self.failed)} of {self.checks} checks do not hold: {', '.join(self.failed)}"
            self._line(self._in(RED, failed))
        else:
            self._line(self._in(GREEN, f"All {self.checks} checks hold. {took}."))
        return not self.failed

    def _line(self, text: str) -> None:
        self._out.write(f"{CLEAR_LINE if self._terminal else ''}{text}\n")
        self._out.flush()

    def _in(self, code: str, text: str) -> str:
        return f"{code}{text}{PLAIN}" if self._colour else text


def number(value: int) -> str:
    """With thousands apart."""
    return f"{value:,}"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()
