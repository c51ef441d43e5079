# SPDX-License-Identifier: Apache-2.0
"""Pages that say which test plays what: each of their rows names a test, and each test that they name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("adoption", "peers")
TEST = re.compile(r"``(tests/[\w/]+\.py)::(test_\w+)``")
ROW = re.compile(r"^   \* - ", re.MULTILINE)


def named(page: str) -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "project" / f"{page}.rst").read_text(encoding="utf-8")
    return TEST.findall(text)


@pytest.mark.parametrize("page", PAGES)
def test_each_test_that_a_page_names_is_there(page: str) -> None:
    found = named(page)
    assert len(found) > 10
    missing = []
    for path, name in found:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8")) if (ROOT / path).exists() else ast.Module([], [])
        if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
            missing.append(f"{path}::{name}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_each_row_of_a_page_names_a_test(page: str) -> None:
    text = (ROOT / "docs" / "project" / f"{page}.rst").read_text(encoding="utf-8")
    rows = [row for table in text.split(".. list-table::")[1:] for row in ROW.split(table)[2:]]
    assert [row.splitlines()[0] for row in rows if not TEST.search(row)] == []
