# SPDX-License-Identifier: Apache-2.0
"""The error reference: every code in the package's source, with its message, cause, example and remedy.

`lakecommit-error-codes` lists them by area. A code is either the first argument of an error, or it ends a mistake of a
declaration in brackets. `reference/error_causes.csv` has the cause and the remedy: one line for all codes that share
them, with an example of one of these codes.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from airflow_provider_lakecommit import exceptions
from airflow_provider_lakecommit.core import commands

PACKAGE = Path(__file__).resolve().parents[2] / "airflow_provider_lakecommit"
CAUSES = Path(__file__).resolve().parents[1] / "reference" / "error_causes.csv"
CODE = re.compile(r"LC\d{4}")
_AT_END = re.compile(r"(.*) \[(LC\d{4})\]")
_COMMANDS = {name: text for name, text in vars(commands).items() if name.isupper() and isinstance(text, str)}
"""The commands that messages name, as a user types them."""
AREAS = {
    "10": "Declarations of landings and sets",
    "11": "Options of a landing",
    "12": "Options of a landing",
    "13": "Planning and budgets",
    "20": "Source topics",
    "23": "Control topic",
    "30": "Ledger and commits",
    "33": "Catalog, tables and storage",
    "40": "Formats, registry and transforms",
    "50": "Spark tasks and jobs",
    "53": "Airflow connections",
    "60": "Plan",
    "62": "Cycles and runs",
    "70": "Resets",
    "72": "Backfills and replays",
    "74": "Dead letters",
    "75": "Kafka Connect",
    "77": "Maintenance",
    "80": "Command line",
    "83": "Operators",
    "86": "Status and doctor",
    "87": "Shared parts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedError:
    """One place in the source that raises or reports an error.

    ``message`` has the names of its values in braces; it is empty where the message is composed elsewhere.
    """

    code: str
    kind: str
    message: str
    module: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why the errors of some codes are raised, and what to do. ``codes`` are numbers and ranges of them."""

    codes: str
    cause: str
    example: str
    remedy: str

    def has(self, code: str) -> bool:
        """Return True if *code* is one of the codes."""
        bounds = (part.partition("-") for part in self.codes.split())
        return any(first <= code.removeprefix("LC") <= (last or first) for first, _, last in bounds)


@cache
def causes() -> tuple[Cause, ...]:
    """Return the lines of the file of causes."""
    with CAUSES.open(encoding="utf-8", newline="") as lines:
        return tuple(Cause(**line) for line in csv.DictReader(lines, delimiter="|", quoting=csv.QUOTE_NONE))


@cache
def coded_errors() -> tuple[CodedError, ...]:
    """Return every error of the package that has a code, by code."""
    found = (error for path in PACKAGE.rglob("*.py") for error in _in_module(path))
    return tuple(sorted(found, key=lambda error: (error.code, error.module, error.message)))


def _in_module(path: Path) -> Iterator[CodedError]:
    module = path.relative_to(PACKAGE).with_suffix("").as_posix()
    inner: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and node.args and _is_code(node.args[0]):
            message = _template(node.args[1]) if len(node.args) > 1 else ""
            yield CodedError(code=ast.literal_eval(node.args[0]), kind=_kind(node), message=message, module=module)
        elif isinstance(node, ast.JoinedStr | ast.Constant) and node not in inner:
            inner.update(getattr(node, "values", ()))
            if (mistake := _AT_END.fullmatch(_template(node))) is not None:
                yield CodedError(code=mistake[2], kind="SpecError", message=mistake[1], module=module)


def _is_code(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value) is not None


def _kind(call: ast.Call) -> str:
    """The class that is called; nothing where it is chosen elsewhere."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name if name[:1].isupper() else ""


def _template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_template(value) for value in values)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in _COMMANDS:
            return _COMMANDS[name]
        case ast.FormattedValue(value=value):
            return f"{{{_name(value)}}}"
        case ast.BinOp(left=left, right=right):
            return _template(left) + _template(right)
        case ast.IfExp(body=body):
            return _template(body)
    return f"{{{_name(node)}}}"


def _name(node: ast.expr) -> str:
    """A short name of a value: the last word of what it is read from."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(func=func, args=args):
            return _name(args[0]) if args and _name(func) in {"str", "repr", "map", "sorted", "join"} else _name(func)
        case ast.Subscript(value=value):
            return _name(value)
    return "…"


class ErrorCodesDirective(SphinxDirective):
    """All codes, by area: code, error, message, cause, example and remedy."""

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(str(CAUSES))
        lines: list[str] = []
        area = ""
        seen: set[str] = set()
        described = set(exceptions.__all__) - {"LakecommitError", "Terminal", "Transient"}
        for error in coded_errors():
            if error.code in seen or not error.message:
                continue
            seen.add(error.code)
            if AREAS[error.code[2:4]] != area:
                area = AREAS[error.code[2:4]]
                lines += ["", area, "~" * len(area), ""]
            kind = f" (:ref:`{error.kind} <{error.kind}>`)" if error.kind in described else ""
            why = next(cause for cause in causes() if cause.has(error.code))
            lines += [f".. _{error.code}:", "", f"``{error.code}``{kind}", f"    {_escaped(error.message)}", ""]
            lines += [f"    | *Cause:* {why.cause}", f"    | *Example:* {_escaped(why.example)}"]
            lines += [f"    | *Remedy:* {why.remedy}", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def _escaped(message: str) -> str:
    """Plain text: nothing in a message is markup."""
    return re.sub(r"([\\*`|_<>\[\]])", r"\\\1", " ".join(message.split()))


DIRECTIVES = {"lakecommit-error-codes": ErrorCodesDirective}
