# SPDX-License-Identifier: Apache-2.0
"""The output of a command: results on standard output, everything else on standard error.

Standard output has only the requested results, one JSON value per line if promised, so it can be piped. No line
contains a secret of the spec. Lines of several threads do not mix. On a terminal the last line may be live, redrawn
below all others, and errors and warnings have a colour unless `NO_COLOR` is set. While :func:`results_only` is active,
output of libraries and child processes goes to standard error.
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

from airflow_provider_lakecommit.core import for_landing
from airflow_provider_lakecommit.redaction import secrets_in, without


class Exit(IntEnum):
    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNCONFIRMED = 3
    """Nothing was done: it would give something up, and was not confirmed."""
    BLOCKED = 4
    """Of `status`: ranges, or a ledger, need a decision."""
    STALLED = 5
    """Of `status`: commits fail."""
    BEHIND = 6
    """Of `status`: not all is landed, or it is unknown."""


def plain(value: Any) -> Any:
    """Return *value* for JSON: times as ISO text, ids as text, bytes as hex."""
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else str(value)


_COLOURS = (("lakecommit: ", 31), ("FAIL", 31), ("WARNING", 33), ("warn", 33), ("nothing is written", 33))
"""The color of a line, by its start: red for failures, yellow for warnings."""


class Output:
    """The output of a command. ``as_json`` prints results and errors as JSON on standard output; ``landing`` is the one
    that the command chooses.
    """

    def __init__(
        self, *, as_json: bool = False, landing: str = "", out: TextIO | None = None, err: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._landing = landing
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._secrets: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._live = ""
        self.at_terminal = self._err.isatty() and os.environ.get("TERM") != "dumb"
        self._coloured = self.at_terminal and not os.environ.get("NO_COLOR")

    def keep(self, *settings: Mapping[str, Any]) -> None:
        """Remove the secrets of these settings from all text from now on, in addition to earlier ones."""
        self._secrets = tuple({*self._secrets, *secrets_in(*settings)})

    def clean(self, text: str) -> str:
        """Return text without secrets, and with control characters escaped: any writer of a record chooses its text."""
        return without(text, self._secrets).encode("utf-8", "backslashreplace").decode("utf-8")

    def send_results_to(self, out: TextIO) -> None:
        self._out = out

    def result(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            text = json.dumps(self._cleaned(values), default=plain)
            if self._live:
                self._err.write(self._wiped())
                self._err.flush()
            print(text, file=self._out, flush=True)
            self._draw(self._live)

    def answer(self, values: Mapping[str, Any], lines: Iterable[str] = ()) -> None:
        if self.as_json:
            self.result(values)
        else:
            self.lines(lines)

    def lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(self.clean(line), file=self._out, flush=True)

    def log(self, text: str) -> None:
        with self._lock:
            print(f"{self._wiped()}{self._painted(self.clean(text))}", file=self._err, flush=True)
            self._draw(self._live)

    def live(self, text: str) -> None:
        """Show the live line on a terminal; an empty text removes it."""
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
        colour = next((code for prefix, code in _COLOURS if text.lstrip().startswith(prefix)), None)
        return text if colour is None else f"\x1b[{colour}m{text}\x1b[0m"

    def error(self, error: BaseException, of: str = "") -> None:
        """Print why a command failed, or one landing of a set, ``of``."""
        about = of or self._landing
        message = self.clean(for_landing(str(error), about) if about else str(error)) or type(error).__name__
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
    """Keep standard output for results: Java and its children also print on standard error then."""
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


def start_logging(output: Output, *, verbose: bool) -> None:
    """Log warnings of all libraries, and our own progress, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Clean(output))
    # We report an ended Java process ourselves, without the traceback of the Java bridge.
    handler.addFilter(lambda record: "py4j" not in PurePath(record.pathname).parts)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("airflow_provider_lakecommit").setLevel(logging.DEBUG if verbose else logging.INFO)
