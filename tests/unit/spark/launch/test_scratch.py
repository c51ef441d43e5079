# SPDX-License-Identifier: Apache-2.0
"""Private folders: who sees them, and who removes those of whom."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_lakecommit.spark.launch import scratch
from airflow_provider_lakecommit.spark.launch.process import ProcessName, started
from airflow_provider_lakecommit.spark.launch.scratch import scratch_folder


def test_the_folder_is_for_the_owner_alone(tmp_path: Path) -> None:
    folder = scratch_folder(str(tmp_path))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    mine = scratch_folder(str(tmp_path))
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    start = started(child.pid)
    theirs = tmp_path / mine.name.replace(
        f"-{ProcessName.own().pid}-{ProcessName.own().start}-", f"-{child.pid}-{start}-"
    )
    theirs.mkdir()
    (theirs / "connections.json").write_text("{}")
    unrelated = tmp_path / "lakecommit-notes"
    unrelated.mkdir()
    again = scratch_folder(str(tmp_path))
    assert {mine, theirs, again, unrelated} == set(tmp_path.iterdir())
    child.kill()
    child.communicate()
    scratch_folder(str(tmp_path))
    assert not theirs.exists()
    assert mine.exists()
    assert unrelated.exists()


def test_a_folder_of_another_container_stays_though_no_such_process_is_observed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_machine", lambda process: "elsewhere")
    theirs = scratch_folder(str(tmp_path))
    theirs = theirs.rename(theirs.with_name(theirs.name.replace(f"-{ProcessName.own().pid}-", "-4194304-")))
    monkeypatch.undo()
    scratch_folder(str(tmp_path))
    assert theirs.exists()
