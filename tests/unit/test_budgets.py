# SPDX-License-Identifier: Apache-2.0
"""How large the package may be. A number here only goes down; raising one needs its reason in a decision, as 0005,
0087, 0092 to 0095, and 0039.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.sources import ROOT, imported, sources

BUDGETS = {
    "lines": 86_730,
    "doors": 37,
    "pairs of rooms": 278,
    "dataclasses": 322,
    "functions with more than six parameters": 24,
    "example DAGs": 10,
}

ROOMS = {
    "cli": (5_250, 35),
    "control": (4_150, 21),
    "core": (5_500, 37),
    "cycle": (10_350, 63),
    "formats": (11_050, 68),
    "hooks": (950, 8),
    "iceberg": (10_500, 56),
    "kafka": (1_950, 11),
    "landing": (3_100, 19),
    "notifications": (100, 2),
    "operations": (12_350, 72),
    "operators": (4_200, 27),
    "page": (3_300, 23),
    "plugins": (200, 3),
    "sensors": (300, 2),
    "spark": (6_200, 40),
    "stall": (1_700, 8),
    "status": (3_900, 26),
    "telemetry": (450, 5),
    "triggers": (550, 6),
}
"""Of each folder at the top: lines and modules."""


def room_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).parts[:-1]


@cache
def imports() -> tuple[tuple[Path, Path], ...]:
    """Return who imports whom, in files of the package."""
    known = sources()
    wholes = ((path, module, f"{module}.{name}") for path, module, name in imported())
    return tuple((path, known[whole if whole in known else module][0]) for path, module, whole in wholes)


def count(what: str) -> int:
    match what:
        case "lines":
            return sum(len(path.read_text(encoding="utf-8").splitlines()) for path, _ in sources().values())
        case "doors":
            return len({b for a, b in imports() if room_of(b) and room_of(a)[:1] != room_of(b)[:1]})
        case "pairs of rooms":
            return len({(room_of(a), room_of(b)) for a, b in imports() if room_of(a) != room_of(b)})
        case "dataclasses":
            nodes = (n for _, tree in sources().values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
            return sum(any("dataclass" in ast.unparse(d) for d in n.decorator_list) for n in nodes)
        case "functions with more than six parameters":
            nodes = (n for _, tree in sources().values() for n in ast.walk(tree))
            return sum(isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and takes_many(n) for n in nodes)
        case "example DAGs":
            return len(list((ROOT.parent / "dags").glob("example_*.py")))
    raise ValueError(what)


def takes_many(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Constructors are not counted: those of operators have an argument for each of their options."""
    given = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return function.name != "__init__" and len(given) - (given[:1] in (["self"], ["cls"])) > 6


@pytest.mark.parametrize("what", BUDGETS)
def test_the_package_is_no_larger_than_its_budget(what: str) -> None:
    assert count(what) <= BUDGETS[what]


def test_what_is_counted_is_there() -> None:
    assert all(count(what) > 0 for what in BUDGETS)


def test_a_folder_is_no_larger_than_its_budget() -> None:
    sizes: dict[str, list[int]] = {}
    for path, _ in sources().values():
        if room := room_of(path)[:1]:
            sizes.setdefault(room[0], []).append(len(path.read_text(encoding="utf-8").splitlines()))
    assert sizes.keys() == ROOMS.keys()
    found = {room: (sum(lines), len(lines)) for room, lines in sizes.items()}
    assert {r: n for r, n in found.items() if n[0] > ROOMS[r][0] or n[1] > ROOMS[r][1]} == {}


@pytest.mark.parametrize(("source", "expected"), [("a, b, c, d, e, f", False), ("a, b, c, *, d, e, f, g=1", True)])
def test_parameters_are_counted(source: str, expected: bool) -> None:
    for text in (f"def f({source}): ...", f"class A:\n    async def f(self, {source}): ..."):
        (function,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        assert takes_many(function) is expected


def members(node: ast.ClassDef) -> frozenset[str]:
    """Return the methods and fields of a class, without special ones."""
    named = {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    named |= {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
    named |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return frozenset(name for name in named if not name.startswith("__"))


PARTS = {"Connected", "Declared", "Limits", "CyclePlace"}
"""What a module uses of a class that its room may not import."""


def test_a_protocol_has_two_implementations_or_a_fake() -> None:
    ours = [n for _, tree in sources().values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    tests = ROOT.parent / "tests"
    fakes = [
        n
        for path in (*tests.rglob("*.py"), *(ROOT.parent / "bench").rglob("*.py"))
        for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(n, ast.ClassDef)
    ]
    protocols = [n for n in ours if any("Protocol" in ast.unparse(b) for b in n.bases)]
    assert protocols
    lonely = {
        p.name
        for p in protocols
        if not any(members(p) <= members(n) for n in fakes)
        and sum(members(p) <= members(n) for n in ours if n not in protocols) < 2
    }
    assert lonely == PARTS
