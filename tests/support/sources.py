# SPDX-License-Identifier: Apache-2.0
"""The modules of the package, read once for all tests that judge them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

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
