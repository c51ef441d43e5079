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

BUDGETS = {"lines": 86_750, "doors": 37, "pairs of rooms": 278, "dataclasses": 322, "example DAGs": 10}


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
        case "example DAGs":
            return len(list((ROOT.parent / "dags").glob("example_*.py")))
    raise ValueError(what)


@pytest.mark.parametrize("what", BUDGETS)
def test_the_package_is_no_larger_than_its_budget(what: str) -> None:
    assert count(what) <= BUDGETS[what]


def test_what_is_counted_is_there() -> None:
    assert all(count(what) > 0 for what in BUDGETS)
