# SPDX-License-Identifier: Apache-2.0
"""What a command says: results on standard output, everything else on standard error.

Contract: standard output holds only what was asked for, one JSON value a line where that is promised, so that it can be
piped; progress and errors are lines for people on standard error. No line holds the value of a secret of the spec.
Several threads may write; their lines do not mix. On a terminal one last line may live: it is drawn anew in its place,
below all others; and errors and warnings have a colour, unless `NO_COLOR` is set. In a pipe there is neither.

Failure story: while :func:`results_only` is active, whatever a library or a child process prints on standard output
goes to standard error instead.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from enum import IntEnum
from pathlib import PurePath
from typing import Any, TextIO
from uuid import UUID

from airflow_provider_lakecommit.core import for_landing
from airflow_provider_lakecommit.redaction import secrets_in, without

__all__ = ["Exit", "Output", "plain", "results_only", "start_logging"]


class Exit(IntEnum):
    """How a command ended."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNCONFIRMED = 3
    """Nothing was done: it would give something up, and nobody agreed to that."""
    BLOCKED = 4
    """Of `status`: ranges, or a ledger, need a person."""
    STALLED = 5
    """Of `status`: commits fail."""
    BEHIND = 6
    """Of `status`: not all is landed, or nobody knows."""


def plain(value: Any) -> Any:
    """*value* for JSON: times as ISO text, ids as text, bytes as hex."""
    match value:
        case datetime():
            return value.isoformat()
        case bytes():
            return value.hex()
        case UUID():
            return str(value)
        case _:
            return str(value)


_COLOURS = (("lakecommit: ", 31), ("FAIL", 31), ("WARNING", 33), ("warn", 33), ("nothing is written", 33))
"""By how a line begins: red for what failed, yellow for what needs an eye."""


class Output:
    """Where a command writes. ``as_json`` asks for results, and errors too, as JSON on standard output."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._secrets: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._live = ""
        self.at_terminal = self._err.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = self.at_terminal and not os.environ.get("NO_COLOR")

    def keep(self, *settings: Mapping[str, Any]) -> None:
        """Settings whose secrets are left out of all text from now on, beside those before."""
        self._secrets = tuple({*self._secrets, *secrets_in(*settings)})

    def clean(self, text: str) -> str:
        """Without secrets, and with what no terminal takes escaped: whoever may write a record chooses its text."""
        return without(text, self._secrets).encode("utf-8", "backslashreplace").decode("utf-8")

    def send_results_to(self, out: TextIO) -> None:
        self._out = out

    def result(self, values: Mapping[str, Any]) -> None:
        """One JSON value on a line of its own."""
        with self._lock:
            text = json.dumps(self._cleaned(values), default=plain)
            if self._live:
                self._err.write(self._wiped())
                self._err.flush()
            print(text, file=self._out, flush=True)
            self._draw(self._live)

    def answer(self, values: Mapping[str, Any], lines: Iterable[str] = ()) -> None:
        """A result: as JSON where that is asked for, else as text."""
        if self.as_json:
            self.result(values)
        else:
            self.lines(lines)

    def lines(self, lines: Iterable[str]) -> None:
        """A result as text."""
        for line in lines:
            print(self.clean(line), file=self._out, flush=True)

    def log(self, text: str) -> None:
        """Progress."""
        with self._lock:
            print(f"{self._wiped()}{self._painted(self.clean(text))}", file=self._err, flush=True)
            self._draw(self._live)

    def live(self, text: str) -> None:
        """The line that lives, on a terminal; an empty one takes it away."""
        if self.at_terminal:
            with self._lock:
                shown = self.clean(text)[: shutil.get_terminal_size().columns - 1]
                self._err.write(self._wiped())
                self._draw(shown)

    def _draw(self, line: str) -> None:
        self._live = line
        if self.at_terminal:
            self._err.write(line)
            self._err.flush()

    def _wiped(self) -> str:
        return "\r\x1b[K" if self._live else ""

    def _painted(self, text: str) -> str:
        if not self._coloured:
            return text
        colour = next((code for word, code in _COLOURS if text.lstrip().startswith(word)), None)
        return text if colour is None else f"\x1b[{colour}m{text}\x1b[0m"

    def error(self, error: BaseException, of: str = "") -> None:
        """Say why a command did not do what was asked, or one landing of a set, ``of``."""
        message = self.clean(for_landing(str(error), of) if of else str(error)) or type(error).__name__
        self.log(f"lakecommit: {of}: {message}" if of else f"lakecommit: {message}")
        if self.as_json:
            body = {"error": {"type": type(error).__name__, "code": getattr(error, "code", None), "message": message}}
            self.result({"landing": of, **body} if of else body)

    def _cleaned(self, value: Any) -> Any:
        match value:
            case str():
                return self.clean(value)
            case Mapping():
                return {key: self._cleaned(each) for key, each in value.items()}
            case list() | tuple():
                return [self._cleaned(each) for each in value]
            case _:
                return value


@contextmanager
def results_only(output: Output) -> Iterator[None]:
    """Keep standard output for results: also Java and its children then print on standard error."""
    sys.stdout.flush()
    own = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    results = os.fdopen(own, "w", encoding="utf-8")
    output.send_results_to(results)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(own, sys.stdout.fileno())
        output.send_results_to(sys.stdout)
        results.close()


class _Clean(logging.Formatter):
    def __init__(self, output: Output) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
        self._output = output

    def format(self, record: logging.LogRecord) -> str:
        return self._output.clean(super().format(record))


def _not_of_the_java_bridge(record: logging.LogRecord) -> bool:
    """A Java process that is gone is ours to report; its bridge does so with a page of traceback, under any name."""
    return "py4j" not in PurePath(record.pathname).parts


def start_logging(output: Output, *, verbose: bool) -> None:
    """Warnings of all, and our own progress, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Clean(output))
    handler.addFilter(_not_of_the_java_bridge)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("airflow_provider_lakecommit").setLevel(logging.DEBUG if verbose else logging.INFO)
