# SPDX-License-Identifier: Apache-2.0
"""Texts of the documentation that the code has to know: commands that are given there, and messages that are quoted.

Contract: reads sources and pages, imports nothing of the package. Commands are found wherever a reader would copy them
from: shell blocks, literals of both markups, and the messages of the package itself. A command may be cut short by
``…``, and names in capitals replace values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "Quote", "commands_in_messages", "commands_on", "known_texts", "pages", "pieces"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_provider_lakecommit"
VARIABLE = "…"
"""What stands in a message for what is known only when it is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A text and where it stands; is it one to be ``typed`` as it is, or does it only name something?"""

    where: str
    text: str
    typed: bool = False


def pages() -> list[Path]:
    """Return every page that is written for readers, without those that the build makes."""
    docs = [p for ending in ("rst", "md") for p in (ROOT / "docs").rglob(f"*.{ending}")]
    docs = [p for p in docs if not {"_build", "commands"} & set(p.parts)]
    return sorted(p for p in (*docs, *ROOT.glob("*.md")) if p.name != "CHANGELOG.md")


def commands_on(page: Path) -> Iterator[Quote]:
    """Each command of the command line that a page gives, on one line."""
    text = page.read_text(encoding="utf-8")
    flat = re.sub(r"\\\n\s*", " ", text)
    name = str(page.relative_to(ROOT))
    for line in flat.splitlines():
        if found := re.match(r"\s*(?:\$ |\.venv/bin/)?(lakecommit [a-z].*)$", line):
            typed = re.split(r"\s+#|\s[|>]\s|\s(?:→|->)\s", found[1])[0]
            if line.lstrip().startswith(("$ ", ".venv")) or _in_shell(flat, line):
                yield Quote(where=name, text=typed.strip(), typed=True)
    quoted = r"``([^`]+)``" if page.suffix == ".rst" else r"(?<!`)`([^`\n]+)`(?!`)"
    for found in re.finditer(quoted, flat):
        if (command := _command(" ".join(found[1].split()))) is not None:
            yield Quote(where=name, text=command)


def _in_shell(text: str, line: str) -> bool:
    """Is a line in a block of shell?"""
    before = text[: text.index(line)]
    fence = re.findall(r"^```(\w*)$", before, re.MULTILINE)
    block = re.findall(r"^\.\. code-block:: (\w+)|^(\S)", before, re.MULTILINE)
    return (len(fence) % 2 == 1 and fence[-1] == "bash") or (bool(block) and block[-1][0] == "bash")


def commands_in_messages() -> Iterator[Quote]:
    """Each command that a message of the package names."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for text in _texts(path):
            for found in re.finditer(r"`([^`]+)`", text):
                if (command := _command(" ".join(found[1].split()))) is not None:
                    yield Quote(where=str(path.relative_to(ROOT)), text=command)


def _command(text: str) -> str | None:
    """The command that a literal gives, with its name in front."""
    if text.startswith("lakecommit "):
        return text
    two = "reset (?:offsets|hard|assert|blocked|migrate)|connect (?:rescue|adopt|watch)"
    bare = rf"(?:{two}|backfill|dead-letters|pause|plan|verify|doctor|status|history) --"
    return f"lakecommit {text}" if re.match(bare, text) or re.fullmatch(r"reset \w+", text) else None


def known_texts() -> str:
    """All texts of the package, a variable part as ``…``, one on a line."""
    return "\n".join(" ".join(text.split()) for path in sorted(PACKAGE.rglob("*.py")) for text in _texts(path))


def pieces(message: str) -> list[str]:
    """What of a quoted message does not vary."""
    found = (piece.strip(" ,;:()[]") for piece in " ".join(message.split()).split(VARIABLE))
    return [piece for piece in found if len(piece) > 2]


@cache
def _texts(path: Path) -> tuple[str, ...]:
    """Of a module, each text that it may show."""
    return tuple(_formatted(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def _spelled_commands() -> dict[str, str]:
    """The commands whose names stand in one place, by their constants."""
    found: dict[str, str] = {}
    for node in ast.parse((PACKAGE / "core" / "commands.py").read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                found[name] = text
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.JoinedStr(values=parts)):
                found[name] = "".join(p.value if isinstance(p, ast.Constant) else found["PROGRAM"] for p in parts)
    return found


def _spelled(part: ast.AST) -> str:
    """What stands in a text that is put together: a command, or what is known only then."""
    name = part.value.id if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) else ""
    return _spelled_commands().get(name, VARIABLE)


def _formatted(node: ast.AST, within: bool = False) -> Iterator[str]:
    """:param within: of a text that is put together, whose constants are shown as a part of it"""
    if isinstance(node, ast.JoinedStr):
        yield "".join(v.value if isinstance(v, ast.Constant) else _spelled(v) for v in node.values)
        within = True
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not within:
        yield node.value
    for part in ast.iter_child_nodes(node):
        yield from _formatted(part, within)
