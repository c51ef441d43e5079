# SPDX-License-Identifier: Apache-2.0
"""Pages of the commands: one per command, and the table that lists them.

Usage, arguments and examples come from the parser, behavior and output from the command's section of
``docs/reference/_behavior.rst``.

Contract: the pages are written to ``docs/reference/commands`` before the sources are read, and only if they changed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lakecommit_source import load
from lakecommit_tables import TableDirective, table
from sphinx.application import Sphinx

BEHAVIOR = "reference/_behavior.rst"
_ABOUT = re.compile(r"^\.\. _about-([\w-]+):\n\n[^\n]+\n-+\n", re.MULTILINE)
FOLDER = "reference/commands"


def commands() -> list[argparse.ArgumentParser]:
    """Return the parsers of all commands, in the order of ``--help``."""
    return list(_leaves(load("cli.main:_parser")()))


def slug(parser: argparse.ArgumentParser) -> str:
    """Return the name of a command's page: ``reset-offsets``."""
    return "-".join(parser.prog.split()[1:])


def write_pages(app: Sphinx) -> None:
    """Write one page per command and delete those of former commands."""
    folder = Path(app.srcdir, FOLDER)
    folder.mkdir(exist_ok=True)
    _, *parts = _ABOUT.split(Path(app.srcdir, BEHAVIOR).read_text(encoding="utf-8"))
    behavior = dict(zip(parts[::2], parts[1::2], strict=True))
    pages = {f"{slug(parser)}.rst": "\n".join(_page(parser, behavior.pop(slug(parser), ""))) for parser in commands()}
    if behavior:
        raise ValueError(f"{BEHAVIOR} describes commands that do not exist: {', '.join(behavior)}")
    for path in folder.glob("*.rst"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class CommandsDirective(TableDirective):
    """The table of all commands, with links to their pages."""

    def rst(self) -> Iterable[str]:
        rows = [(f":doc:`{parser.prog} </{FOLDER}/{slug(parser)}>`", parser.description or "") for parser in commands()]
        return table(("Command", "Purpose"), rows)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    inner = [a.choices.values() for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for sub in (s for subs in inner for s in dict.fromkeys(subs)):
        yield from _leaves(sub)


def _page(parser: argparse.ArgumentParser, behavior: str) -> Iterator[str]:
    yield from (f".. _command-{slug(parser)}:", "", parser.prog, "=" * len(parser.prog), "")
    yield from (parser.description or "", "")
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100)
    yield from _block(parser.format_usage())
    if behavior:
        yield from ("Behavior", "--------", "", behavior.strip(), "")
    for group in parser._action_groups:
        rows = [row for action in group._group_actions if (row := _row(parser, action)) is not None]
        if rows:
            title = (group.title or "").capitalize().replace("airflow", "Airflow")
            yield from (title, "-" * len(title), "")
            if group.description:
                yield from (group.description, "")
            yield from table(("Argument", "Meaning"), rows, "35 65")
    if parser.epilog:
        head, _, examples = parser.epilog.partition("\n")
        title = head.rstrip(":").capitalize()
        yield from (title, "-" * len(title), "")
        yield from _block("\n".join(line.strip() for line in examples.splitlines()))


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str] | None:
    if action.help == argparse.SUPPRESS:
        return None
    formatter = parser._get_formatter()
    called = formatter._format_action_invocation(action)
    meaning = formatter._expand_help(action) if action.help else ""
    for mark in ("\\", "*", "|"):
        meaning = meaning.replace(mark, f"\\{mark}")
    return f"``{called}``", meaning


def _block(text: str) -> Iterator[str]:
    yield from (".. code-block:: text", "")
    yield from (f"   {line}".rstrip() for line in text.splitlines())
    yield ""


DIRECTIVES = {"lakecommit-commands": CommandsDirective}
