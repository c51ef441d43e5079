# SPDX-License-Identifier: Apache-2.0
"""An audit is good only if the database answered for everything and knows of nothing."""

from __future__ import annotations

import json
import sys

import pytest

from dev import audit

WELL = {"name": "well", "version": "1", "vulns": []}
ILL = {"name": "ill", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1", "3"]}]}
UNKNOWN = {"name": "lost", "skip_reason": "lost (3) was not found"}


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> object:
    def answers(text: str) -> None:
        monkeypatch.setattr(audit, "PIP_AUDIT", (sys.executable, "-c", f"print({text!r})"))

    return answers


def test_nothing_known_of_anything_is_good(capsys: pytest.CaptureFixture[str], answer: object) -> None:
    assert callable(answer)
    answer(json.dumps({"dependencies": [WELL, WELL]}))
    assert audit.main([]) == 0
    assert capsys.readouterr().out == "2 locked versions, no vulnerability is known of them\n"


def test_a_vulnerability_is_named_with_the_release_that_fixes_it() -> None:
    assert audit.report({"dependencies": [WELL, ILL]}) == (["ill 2: PYSEC-1, mended in 2.1, 3"], 1)


def test_what_could_not_be_requested_is_a_failure_that_reports_it(
    capsys: pytest.CaptureFixture[str], answer: object
) -> None:
    assert callable(answer)
    answer(json.dumps({"dependencies": [WELL, *[UNKNOWN] * 7]}))
    assert audit.main([]) == 1
    text = capsys.readouterr().err
    assert "NOT AUDITED: 7 of 8, nothing is known of them:\n  lost (3) was not found\n" in text
    assert "and 2 more" in text


def test_no_answer_at_all_is_a_failure_that_reports_it(capsys: pytest.CaptureFixture[str], answer: object) -> None:
    assert callable(answer)
    answer("no json")
    assert audit.main([]) == 1
    assert "NOT AUDITED: pip-audit got no answer" in capsys.readouterr().err
