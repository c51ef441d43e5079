# SPDX-License-Identifier: Apache-2.0
"""Tests match the codes of our errors, because sentences improve and codes never change their meaning.

A pattern that is a name comes from parameters and is not checked here.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from airflow_provider_lakecommit import exceptions

TESTS = Path(__file__).resolve().parents[1]
OURS = frozenset(exceptions.__all__)


def uncoded(source: str) -> list[str]:
    """Return the literal patterns for our errors that have no code."""
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call) and n.args]
    raises = [n for n in calls if isinstance(n.func, ast.Attribute) and n.func.attr == "raises"]
    ours = [n for n in raises if OURS & {name.id for name in ast.walk(n.args[0]) if isinstance(name, ast.Name)}]
    patterns = [k.value for n in ours for k in n.keywords if k.arg == "match"]
    texts = [ast.unparse(p) for p in patterns if isinstance(p, ast.Constant | ast.JoinedStr)]
    return [text for text in texts if not re.search(r"LC\d{4}", text)]


def test_patterns_for_our_errors_have_codes() -> None:
    paths = [p for p in TESTS.rglob("*.py") if p != Path(__file__).resolve()]
    found = {p.relative_to(TESTS).as_posix(): uncoded(p.read_text(encoding="utf-8")) for p in paths}
    assert {path: some for path, some in found.items() if some} == {}


def test_a_pattern_without_a_code_is_found() -> None:
    assert uncoded("pytest.raises(SpecError, match='no')\npytest.raises((OSError, TableError), match=f'{x} no')") != []
    assert uncoded("pytest.raises(SpecError, match=r'a.*LC1042')\npytest.raises(OSError, match='no')") == []
    assert uncoded("pytest.raises(SpecError, match=message)\npytest.raises(SpecError)") == []
