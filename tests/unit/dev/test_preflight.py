# SPDX-License-Identifier: Apache-2.0
"""All needs are checked together, and each that is not met comes with its remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from dev import preflight
from dev.paths import CHECKOUT


def test_this_machine_meets_the_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert preflight.main([]) == 0
    assert capsys.readouterr().err == ""


def test_everything_missing_is_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert preflight.main(["--before-install"]) == 1
    text = capsys.readouterr().err
    assert "1. no `java` on the search path: install a Java 17 or 21" in text
    assert "2. no `ps` on the search path: install it" in text
    assert "2 of this project's needs are not met" in text


@pytest.mark.parametrize(
    ("left", "installed", "lines"),
    [
        (5.0, False, []),
        (4.996, False, ["checkout has 4.99 GB left, 5 GB are needed: make room there"]),
        (1.996, False, ["temporary has 1.99 GB left, 2 GB", "checkout has 1.99 GB left, 5 GB"]),
        (4.996, True, []),
        (1.5, True, ["temporary has 1.50 GB left, 2 GB", "checkout has 1.50 GB left, 2 GB"]),
    ],
)
def test_room_is_checked_for_what_is_still_to_come(
    left: float, installed: bool, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight.tempfile, "gettempdir", lambda: "temporary")
    monkeypatch.setattr(preflight, "CHECKOUT", Path("checkout"))
    monkeypatch.setattr(preflight, "find_spec", lambda _: preflight if installed else None)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=left * preflight.GB))
    monkeypatch.setattr(preflight.os, "access", lambda *_: True)
    found = list(preflight.disk_suffices())
    assert len(found) == len(lines)
    assert all(one.startswith(text) for one, text in zip(found, lines, strict=True))


def java_that_prints(text: str, folder: Path) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_412"', "Java 8 was found"),
        ('openjdk version "25.0.1" 2025-10-21', "Java 25 was found"),
        ("no java at all", "-version` ended with 0"),
    ],
)
def test_java_must_be_one_that_spark_runs_on(
    text: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_prints(text, tmp_path)))
    found = preflight.problems((preflight.java_fits,))
    assert [problem in one for one in found if problem] == ([True] if problem else [])
    assert len(found) == (problem is not None)


def test_a_java_home_without_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME={tmp_path} holds no bin/java" in preflight.problems((preflight.java_fits,))[0]


def fake_python(folder: Path, name: str, code: int) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)


def find_python(folder: Path) -> subprocess.CompletedProcess[str]:
    script = CHECKOUT / "dev" / "find_python.sh"
    command = ["/bin/bash", str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={"PATH": str(folder)})


def test_an_old_python3_is_passed_over(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", 1)
    fake_python(tmp_path, "python3.12", 0)
    assert find_python(tmp_path).stdout == f"{tmp_path}/python3.12\n"


def test_no_python_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", 1)
    done = find_python(tmp_path)
    assert done.returncode == 1
    assert "Remedy: install one" in done.stderr
