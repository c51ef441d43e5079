# SPDX-License-Identifier: Apache-2.0
"""The Java that a Spark session would use, found and missing."""

from __future__ import annotations

import gc
import shutil
import warnings
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.launch.java import java_here
from airflow_provider_lakecommit.spark.launch.local import LocalSpark, SparkSection


def home(tmp_path: Path, script: str) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("version", "fits"), [("1.8.0_402", False), ("11.0.1", False), ("17.0.1", True), ("21", True), ("25.0.1", False)]
)
def test_a_java_fits_by_its_release(tmp_path: Path, version: str, fits: bool) -> None:
    release = version.removeprefix("1.").partition(".")[0]
    binary = tmp_path / "bin" / "java"
    found = java_here(home(tmp_path, f"echo 'openjdk version \"{version}\"' >&2"))
    assert found == (fits, f"Java {release} in {binary}")


def test_what_is_no_java_is_reported_with_its_path(tmp_path: Path) -> None:
    assert java_here({"PATH": str(tmp_path)}) == (False, "no java on the search path, and JAVA_HOME is not set")
    fits, found = java_here({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": shutil.which("sh") or ""})
    assert not fits
    assert f"{tmp_path}/nowhere/bin/java" in found
    assert "JAVA_HOME" in found
    assert "reported no version" in java_here(home(tmp_path, "exit 1"))[1]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 1", r"Java 17 or 21.*\[LC5081\]"),
        ("echo 'openjdk version \"1.8.0_402\"' >&2; exit 1", r"Java 8 in .*Java 17 or 21.*\[LC5081\]"),
        ("echo 'openjdk version \"17.0.1\"' >&2; exit 1", r"ended at once.*spark\.driver\.memory.*\[LC5026\]"),
    ],
)
def test_a_session_without_a_usable_java_names_those_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], script: str, message: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", home(tmp_path, script)["JAVA_HOME"])
    engine = LocalSpark(SparkSection({"master": "local[1]"}), log=lambda _: None, on_start=lambda: None)
    with warnings.catch_warnings():
        # pyspark leaves the input of the process that did not become one open.
        warnings.simplefilter("ignore", ResourceWarning)
        with pytest.raises(SparkJobError, match=message) as found:
            engine.start()
        engine.close()
        text = str(found.value)
        del found
        gc.collect()
    assert "GATEWAY" not in text
    assert str(tmp_path) in text
