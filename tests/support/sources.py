# SPDX-License-Identifier: Apache-2.0
"""The modules of the package, read once for all tests that evaluate them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["PACKAGE", "ROOT", "imported", "module_of", "public_names", "sources"]

PACKAGE = "airflow_provider_lakecommit"
ROOT = Path(__file__).resolve().parents[2] / PACKAGE


@cache
def sources() -> dict[str, tuple[Path, ast.Module]]:
    """Return each module's path and syntax tree, by its dotted name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path, ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def imported() -> tuple[tuple[Path, str, str], ...]:
    """Return each import of our own by name: the file, the module in the statement and the name, types too."""
    return tuple(
        (path, node.module, alias.name)
        for path, tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE
        for alias in node.names
    )


@cache
def public_names(room: str) -> dict[str, str]:
    """Return the names that the `__init__` of a room gives to other rooms lazily: the module of each.

    :param room: a folder of the package
    """
    tree = sources()[f"{PACKAGE}.{room}"][1]
    calls = (n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__getattr__")
    named = next((ast.literal_eval(call.args[1]) for call in calls if isinstance(call, ast.Call)), {})
    return {name: f"{PACKAGE}.{room}.{module}" for module, names in named.items() for name in names.split()}


def module_of(stem: str, name: str) -> str:
    """Return the module that `from stem import name` loads: that of a public name, not the `__init__` that gives it."""
    package, _, room = stem.partition(".")
    if package != PACKAGE or not room or "." in room or f"{PACKAGE}.{room}" not in sources():
        return stem
    return public_names(room).get(name, stem)
