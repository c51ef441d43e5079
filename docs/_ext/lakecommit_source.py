# SPDX-License-Identifier: Apache-2.0
"""What the pages are made of: facts read from the package's source, without running it.

Contract: every function either finds what it is asked for or raises :class:`MissingError`, so that a table that was
moved or renamed in the code stops the build instead of leaving a page behind that says something else.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

import airflow_provider_lakecommit

PACKAGE = airflow_provider_lakecommit.__name__
ROOT = Path(airflow_provider_lakecommit.__file__).resolve().parent
APPLY = "apply"
FOLDING = {
    "": ("core.fold", "_Folding"),
    "acceptance": ("core.acceptance", "Acceptance"),
    "blocks": ("core.blocks", "Blocks"),
}
"""The fold, and the attributes of it that have methods of their own."""
"""Method of the fold that applies an entry's directives."""


class MissingError(ExtensionError):
    """The code does not hold what a page is made from."""


def load(place: str) -> Any:
    """The object at ``module:Name``, the module named from the package on."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(f"{PACKAGE}.{module}"), name)
    except (ImportError, AttributeError) as e:
        raise MissingError(f"a page is made from {place}, which is not in the code: {e}") from e


@cache
def tree_of(module: str) -> ast.Module:
    """Syntax tree of a module, named from the package on."""
    path = ROOT.joinpath(*module.split("."))
    found = next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)
    if found is None:
        raise MissingError(f"a page is made from module {module}, which is not in the code")
    return ast.parse(found.read_text(encoding="utf-8"))


def modules_of(room: str) -> list[str]:
    """Modules of a room (a folder or one module), named from the package on."""
    paths = [ROOT / f"{room}.py", *sorted((ROOT / room).rglob("*.py"))]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in paths if path.is_file()]
    return [".".join(part for part in names if part != "__init__" or names == ("__init__",)) for names in parts]


def rooms() -> list[str]:
    """The folders of the package."""
    return sorted(place.name for place in ROOT.iterdir() if any(place.glob("*.py")))


def summary(doc: str | None) -> str:
    """First paragraph of a docstring, as one line."""
    return " ".join(inspect.cleandoc(doc or "").partition("\n\n")[0].split())


def described(place: str) -> dict[str, str]:
    """What is said below the assignments of a class, or (place without a colon) of a module: name to text."""
    module, _, name = place.partition(":")
    body: list[ast.stmt] = tree_of(module).body
    if name:
        body = class_of(module, name).body
    return {target: summary(text) for target, text in _described(body)}


def _described(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for here, after in pairwise(body):
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(said, str):
            targets = here.targets if isinstance(here, ast.Assign) else [here.target] if _annotated(here) else []
            yield from ((target.id, said) for target in targets if isinstance(target, ast.Name))


def _annotated(statement: ast.stmt) -> Any:
    return isinstance(statement, ast.AnnAssign)


def class_of(module: str, name: str) -> ast.ClassDef:
    """A class of a module."""
    found = next((n for n in tree_of(module).body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if found is None:
        raise MissingError(f"a page is made from class {name} of {module}, which is not in the code")
    return found


def methods_of(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Methods of a class in the order of the source."""
    return {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What one room imports: rooms of ours and distributions of others, when loaded or only inside functions."""

    ours: frozenset[str]
    ours_lazily: frozenset[str]
    theirs: frozenset[str]
    theirs_lazily: frozenset[str]


def imports_of(room: str) -> Imports:
    """All imports of all modules of a room; those for type checkers alone are left out."""
    found = [each for module in modules_of(room) for each in _imports(tree_of(module), at_load=True)]
    if not modules_of(room):
        raise MissingError(f"there is no room {room}")
    places = {*rooms(), *(path.stem for path in ROOT.glob("*.py"))}
    ours = {(n.split(".")[1], at_load) for n, at_load in found if n.startswith(f"{PACKAGE}.")}
    ours = {(n, at_load) for n, at_load in ours if n in places}
    theirs = {(n.split(".")[0], at_load) for n, at_load in found if not n.startswith(PACKAGE)}
    theirs = {(n, at_load) for n, at_load in theirs if n not in sys.stdlib_module_names}
    return Imports(
        ours=frozenset(n for n, at_load in ours if at_load and n != room),
        ours_lazily=frozenset(n for n, _ in ours if (n, True) not in ours and n != room),
        theirs=frozenset(n for n, at_load in theirs if at_load),
        theirs_lazily=frozenset(n for n, _ in theirs if (n, True) not in theirs),
    )


def _imports(node: ast.AST, *, at_load: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from ((alias.name, at_load) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        # `from package import name` names a room only in its alias.
        names = [f"{PACKAGE}.{a.name}" for a in node.names] if node.module == PACKAGE else [node.module]
        yield from ((name, at_load) for name in names)
    inside = at_load and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, at_load=inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of the protocol: the event, the ``kind`` in its header, the entry that it is read as, the method of
    ``Sender`` that makes it and the modules that call it.
    """

    event: str
    kind: str
    entry: str
    method: str
    senders: tuple[str, ...]


def messages() -> list[Message]:
    """The protocol, from the match table of ``control.records`` and the calls of ``Sender``."""
    kinds = _kinds()
    out = []
    for method, kind in _kinds_of_methods().items():
        if kind not in kinds:
            raise MissingError(f"Sender.{method} sends the kind {kind!r}, which control.records does not read")
        event, entry = kinds[kind]
        out.append(Message(event=event, kind=kind, entry=entry, method=method, senders=tuple(_callers(method))))
    if unsent := kinds.keys() - {m.kind for m in out}:
        raise MissingError(f"control.records reads the kinds {sorted(unsent)}, which Sender does not send")
    return out


def _kinds() -> dict[str, tuple[str, str]]:
    """Header kind to event and entry class, from ``match (event, kind)``."""
    found: dict[str, tuple[str, str]] = {}
    for case in (n for n in ast.walk(tree_of("control.records")) if isinstance(n, ast.match_case)):
        if isinstance(case.pattern, ast.MatchSequence):
            event, kind = (ast.unparse(p) for p in case.pattern.patterns)
            entry = next(n.value.func for n in case.body if isinstance(n, ast.Return) and isinstance(n.value, ast.Call))
            found[ast.literal_eval(kind)] = (event.rpartition(".")[2], ast.unparse(entry))
    if not found:
        raise MissingError("the match table of control.records is gone")
    return found


def _kinds_of_methods() -> dict[str, str]:
    """Method of ``Sender`` to the kind that it writes into the header."""
    out = {}
    for name, method in methods_of(class_of("control.records", "Sender")).items():
        for node in ast.walk(method):
            if isinstance(node, ast.Dict):
                pairs = {ast.unparse(k): v for k, v in zip(node.keys, node.values, strict=True) if k is not None}
                if (kind := pairs.get("'kind'")) is not None:
                    out[name] = str(ast.literal_eval(kind))
    return out


SENDING = (
    "cycle/plan",
    "cycle/commit",
    "cycle/session",
    "operations/maintenance",
    "operations/decisions/unblock",
    "spark",
)
"""Rooms and modules that may write to the control topic."""


def _callers(method: str) -> Iterator[str]:
    """Modules that call a method of ``Sender``."""
    for module in (m for room in SENDING for m in modules_of(room)):
        calls = (n.func for n in ast.walk(tree_of(module)) if isinstance(n, ast.Call))
        if any(isinstance(f, ast.Attribute) and f.attr == method and not _is_self(f.value) for f in calls):
            yield module


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the fold does with one class of entries: parts of its state that it may change by itself, and whether the
    directives that the entry carries are applied.
    """

    changes: frozenset[str]
    directives: bool


def effects() -> dict[str, Effect]:
    """Effects by entry class, from ``match entry`` of the fold."""
    methods: dict[str, ast.FunctionDef] = {}
    state: set[str] = set()
    for part, place in FOLDING.items():
        own = methods_of(class_of(*place))
        state |= {n.attr for n in ast.walk(own["__init__"]) if isinstance(n, ast.Attribute) and _is_self(n.value)}
        methods |= {f"{part}.{name}".lstrip("."): method for name, method in own.items()}
    take = methods.get("take")
    cases = [n for n in ast.walk(take) if isinstance(n, ast.match_case)] if take else []
    if not cases or APPLY not in methods:
        raise MissingError("the match table of core.fold is gone")
    out = {}
    for case in cases:
        all_of_it = set(_touched(case.body, methods, frozenset()))
        out[ast.unparse(case.pattern).removesuffix("()")] = Effect(
            changes=frozenset(_touched(case.body, methods, frozenset({APPLY}))) & state, directives=APPLY in all_of_it
        )
    return out


def _touched(
    body: Iterable[ast.AST], methods: dict[str, ast.FunctionDef], seen: frozenset[str], part: str = ""
) -> Iterator[str]:
    """Methods of ``self`` that are called, attributes of ``self`` that are assigned to or changed by a method of
    theirs, also by the methods called.

    :param part: of the fold, that ``self`` is
    """
    for node in (n for statement in body for n in ast.walk(statement)):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (name for target in targets if (name := _own_attribute(target)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            whose = part if _is_self(node.func.value) else _own_attribute(node.func.value) or ""
            name = f"{whose}.{node.func.attr}".lstrip(".")
            if name in methods and name not in seen:
                yield name
                yield from _touched(methods[name].body, methods, seen | {name}, whose)
            elif node.func.attr in ("append", "add", "setdefault", "pop", "remove", "update"):
                yield from filter(None, [_own_attribute(node.func.value)])


def _own_attribute(node: ast.expr) -> str | None:
    """``x`` of ``self.x``, also of ``self.x[…]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) and _is_self(node.value) else None


def answers(module: str, cls: str, method: str) -> list[str]:
    """The texts that a method may return, in the order of the source; a value in a text is an ellipsis."""
    node = methods_of(class_of(module, cls)).get(method)
    returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)] if node else []
    texts = [text for value in returned if (text := _text(value))]
    if not texts:
        raise MissingError(f"{cls}.{method} of {module} returns no text")
    return texts


def _text(value: ast.expr | None) -> str:
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else ""
    if isinstance(value, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in value.values)
    return ""
