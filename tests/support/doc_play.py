# SPDX-License-Identifier: Apache-2.0
"""A page of the documentation as a play: its commands from top to bottom, on one broker and one catalog.

Contract: :func:`script` reads a page, :class:`Stage` plays it. What a page leaves to its reader ("3,000
more orders come", "a user rolls the table back") stands as a comment above the command, which no reader sees::

    .. happens: 3000 orders
    .. ends: 3

The first kind is one of :data:`tests.support.doc_happenings.HAPPENINGS`; the second is the exit code of the next
command, 0 unless stated. In Markdown both are HTML comments. What is shown below a command must have been printed by
it: numbers and ids aside, an ``…`` replaces what was left out.

Spark is left out: slices are done one after the other in this process, by the function that Spark's tasks call.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pytest

from airflow_provider_lakecommit.cli import main
from airflow_provider_lakecommit.cli.runs import land, land_set, set_landings
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.status.doctor import examine

__all__ = ["Line", "Stage", "is_played", "script"]

_STAGE = re.compile(r"^(?:\.\. |<!-- )(happens|ends): (.*?)(?: -->)?$")
_BLOCK = re.compile(r"^\.\. code-block:: (\w+)$|^```(\w+)$")
_VARIES = re.compile(
    r"(?x) [0-9a-f]{8}-[0-9a-f…-]+ | \b[0-9a-f]{16}\b | \b[-\w]{22}(?=\s) | \d{4}-\d\d-\d\d[T ][\d:.]+(?:\+00:00|Z)?"
    r"| \d[\d,.]*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that a page does: a ``command`` (``shown`` is what stands below it) or a happening."""

    kind: str
    text: str
    code: int = 0
    shown: str = ""


def script(page: Path) -> list[Line]:
    """What a page does, from top to bottom."""
    out: list[Line] = []
    language, code, answered = "", 0, False
    for line in re.sub(r" *\\\n\s*", " ", page.read_text(encoding="utf-8")).splitlines():
        if found := _STAGE.match(line):
            code = int(found[2]) if found[1] == "ends" else code
            out += [Line(kind="happens", text=found[2])] if found[1] == "happens" else []
        elif found := _BLOCK.match(line):
            language, answered = found[1] or found[2], False
        elif line[:1].strip() and not (page.suffix == ".md" and language and line != "```"):
            language, answered = "", False
        elif (command := _typed(line.strip(), language)) is not None:
            out.append(Line(kind="command", text=command, code=code))
            code, answered = 0, language != "bash"
        elif answered and line.strip():
            out[-1] = replace(out[-1], shown=f"{out[-1].shown}\n{line.strip()}")
    return out


def _typed(line: str, language: str) -> str | None:
    """The command of a line of a shell block, or behind a prompt of any other."""
    if language == "bash" and line and not line.startswith("#"):
        return re.split(r"\s+#\s", line)[0]
    shown = language in ("text", "console") and line.startswith("$ ")
    return re.split(r"\s+#\s", line[2:])[0] if shown else None


def is_played(page: Path) -> bool:
    return any(line.kind == "happens" for line in script(page))


class _TasksHere:
    """An engine without Spark."""

    ahead = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        return [run_task(job, secrets, place) for place in range(len(job.plan.slices))]

    def stop(self) -> None: ...

    def close(self) -> None: ...


@dataclass(kw_only=True)
class Stage:
    """Where a page is played: its folder, and what stands here for the addresses and names that pages have.

    :param names: by pattern, what is put in its place
    """

    folder: Path
    names: dict[str, str]
    printed: list[str] = field(default_factory=list)

    def here(self, text: str) -> str:
        for pattern, name in self.names.items():
            text = re.sub(pattern, lambda _, name=name: name, text, flags=re.MULTILINE)
        return text

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(self.here(text), encoding="utf-8")
        return path

    def run(self, line: Line) -> None:
        """One command of ``lakecommit``, with what the shell does around it.

        :raises AssertionError: another exit code, or something is shown that was not printed
        """
        command, filters, file = _parted(self.here(line.text))
        code, out, err = self._main(shlex.split(command)[1:])
        if file:
            (self.folder / file).write_text(out)
        out = _filtered(out, filters)
        # What of the two a terminal shows first is nobody's promise.
        message = f"{out}\n{err}\n{out}"
        self.printed.append(message)
        assert code == line.code, f"{line.text}: ended with {code}, not {line.code}\n{message}"
        missing = [piece for piece in _pieces(self.here(line.shown)) if piece not in _plain(message)]
        assert not missing, f"{line.text}: did not print {missing}, but\n{_plain(message)}\n{message}"

    def _main(self, arguments: list[str]) -> tuple[int, str, str]:
        if arguments[0] == "doctor" and "--no-spark" not in arguments:
            arguments.append("--no-spark")
        with pytest.MonkeyPatch.context() as patch, _captured() as (out, err):
            patch.chdir(self.folder)
            patch.setattr(main, "start_logging", lambda *_, **__: None)
            for module in (land, set_landings, examine):
                patch.setattr(module, "engine_of", lambda *_, **__: _TasksHere())
            patch.setattr(land_set, "LocalSpark", lambda *_, **__: _TasksHere())
            try:
                code = main.main(arguments)
            except SystemExit as e:
                code = int(e.code or 0)
            return code, _read(out), _read(err)


@contextmanager
def _captured() -> Iterator[tuple[IO[str], IO[str]]]:
    """Standard output and error as files, which commands may hand on to children."""
    with (
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        yield out, err


def _read(file: IO[str]) -> str:
    file.flush()
    file.seek(0)
    return file.read()


def _parted(command: str) -> tuple[str, list[list[str]], str]:
    """A command, the filters that it is piped to, and the file that its output goes to."""
    command, _, file = command.partition(" > ")
    command, *filters = command.split(" | ")
    return command, [shlex.split(each) for each in filters], file.strip()


def _filtered(text: str, filters: list[list[str]]) -> str:
    """What `grep PATTERN` and `tail -N` leave of it."""
    lines = text.splitlines()
    for name, argument in filters:
        matches = re.compile(argument)
        lines = lines[int(argument) :] if name == "tail" else [line for line in lines if matches.search(line)]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Without what differs each time."""
    return " ".join(_VARIES.sub("#", text).split())


def _pieces(shown: str) -> Iterator[str]:
    for piece in _plain(shown).split("…"):
        if len(piece := piece.strip(" ,;:()[]#-")) > 2:
            yield piece
