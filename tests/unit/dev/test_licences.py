# SPDX-License-Identifier: Apache-2.0
"""A licence is read as older and newer metadata tell it; an unknown or incompatible one is an error by its name."""

from __future__ import annotations

from email.message import Message

import pytest

from dev import licences


def metadata_of(**fields: str | list[str]) -> str:
    metadata = Message()
    for name, values in fields.items():
        for value in [values] if isinstance(values, str) else values:
            metadata[name.replace("_", "-")] = value
    return licences.licence(metadata)


def test_the_expression_counts_then_the_classifiers_then_one_line_of_text() -> None:
    mit, bsd = "License :: OSI Approved :: MIT License", "License :: OSI Approved :: BSD License"
    assert metadata_of(License_Expression="ISC", Classifier=[mit], License="BSD") == "ISC"
    assert metadata_of(Classifier=[mit, bsd, "Typing :: Typed"], License="ISC") == "MIT AND BSD-3-Clause"
    assert metadata_of(Classifier=["License :: OSI Approved"], License="MIT License") == "MIT"
    assert metadata_of(License="UNKNOWN") == metadata_of() == ""


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT AND PSF-2.0", True),
        ("GPL-3.0-only OR Apache-2.0", True),
        ("(GPL-3.0-only OR MIT) AND ISC", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR ISC) AND AGPL-3.0-only", False),
        ("GPL-3.0-only AND MIT OR LGPL-3.0-only", False),
        ("", False),
    ],
)
def test_an_expression_is_met_by_allowed_licences_or_not(expression: str, allowed: bool) -> None:
    assert licences.is_allowed(expression) is allowed


def test_what_is_unknown_or_incompatible_is_named_and_an_exception_reports_why() -> None:
    name, reason = next(iter(licences.EXCEPTIONS.items()))
    found = [("good", "1", "MIT"), ("bad", "2", "GPL-3.0-only"), ("dumb", "3", ""), (name, "4", "GPL-2.0-only")]
    lines, wrong = licences.judge(found)
    assert wrong == ["bad 2: the licence GPL-3.0-only is not allowed", "dumb 3: no licence is told"]
    assert len(lines) == len(found)
    assert [line for line in lines if reason in line]


def test_every_library_that_is_installed_here_has_an_allowed_licence(capsys: pytest.CaptureFixture[str]) -> None:
    assert licences.main() == 0, capsys.readouterr().err
    assert "\npyarrow " in capsys.readouterr().out
