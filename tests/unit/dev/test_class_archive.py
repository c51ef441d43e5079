# SPDX-License-Identifier: Apache-2.0
"""What short runs of Spark and of the broker are started with, with an archive of its classes and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import class_archive


@pytest.fixture(autouse=True)
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKECOMMIT_RUN_DIR", str(tmp_path))
    return tmp_path


def test_without_an_archive_java_is_not_sent_looking_for_one() -> None:
    assert class_archive.options() == class_archive.SHORT


def test_an_archive_that_is_there_is_used_and_not_made_again(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
    monkeypatch.setattr(class_archive, "PROGRAM", "raise SystemExit('made again')")
    there = class_archive._archive("spark")
    there.parent.mkdir()
    there.write_bytes(b"classes")
    assert class_archive.make() == there
    assert class_archive.options()[-1] == f"-XX:SharedArchiveFile={there}"
    assert there.is_relative_to(run_dir)


@pytest.mark.parametrize("program", ["raise SystemExit('no Java')", "pass"])
def test_what_makes_none_is_an_error_and_leaves_nothing(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "PROGRAM", program)
    with pytest.raises(class_archive.ArchiveError, match=r"could not be archived"):
        class_archive.make()
    assert class_archive.options() == class_archive.SHORT


def test_another_spark_or_another_java_has_another_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_archive._archive("spark")
    monkeypatch.setattr(class_archive, "_java_release", lambda: 'JAVA_VERSION="99"')
    assert class_archive._archive("spark") != before


def test_the_broker_has_an_archive_of_its_own_jars(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> None:
    assert class_archive.options("broker") == class_archive.SHORT
    (run_dir / "jars" / "broker").mkdir(parents=True)
    (run_dir / "jars" / "broker" / "kafka.jar").write_bytes(b"jar")
    with monkeypatch.context() as patch:
        patch.setattr(class_archive, "_run_broker", lambda options: Path(options[-1].split("=")[1]).touch() or "")
        there = class_archive.make("broker")
    assert class_archive.options("broker")[-1] == f"-XX:SharedArchiveFile={there}"
    assert class_archive.options() == class_archive.SHORT
    (run_dir / "jars" / "broker" / "kafka.jar").write_bytes(b"another")
    assert class_archive.options("broker") == class_archive.SHORT
