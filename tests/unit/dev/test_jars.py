# SPDX-License-Identifier: Apache-2.0
"""A folder of jars is used only when it is whole; a fetch that fails says what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import jars
from dev.paths import CHECKOUT

NOWHERE = """
<ivysettings>
  <settings defaultResolver="nowhere"/>
  <resolvers><filesystem name="nowhere"><artifact pattern="{place}/[artifact].[ext]"/></filesystem></resolvers>
</ivysettings>
"""


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory whose `broker` configuration looks fetched, and a Maven repository that has nothing."""
    settings = tmp_path / "settings.xml"
    settings.write_text(NOWHERE.format(place=tmp_path))
    monkeypatch.setenv("LAKECOMMIT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("LAKECOMMIT_IVY_SETTINGS", str(settings))
    broker = tmp_path / "run" / "jars" / "broker"
    broker.mkdir(parents=True)
    (broker / "one.jar").write_bytes(b"jar")
    (broker / "two.jar").write_bytes(b"another")
    (broker / jars.MARKER).write_text(json.dumps({"ivy": jars._digest("broker"), "jars": {"one.jar": 3, "two.jar": 7}}))
    return tmp_path / "run"


def test_a_whole_folder_is_used_without_asking_anybody(run_dir: Path) -> None:
    assert jars.fetch("broker") == {"broker": run_dir / "jars" / "broker"}
    assert jars.classpath("broker") == f"{run_dir}/jars/broker/*"


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "two.jar").unlink(),
        lambda folder: (folder / "two.jar").write_bytes(b"cut"),
        lambda folder: (folder / jars.MARKER).unlink(),
        lambda folder: (folder / jars.MARKER).write_text('{"ivy": "of another list"}'),
    ],
    ids=["jar missing", "jar cut", "never completed", "list changed"],
)
def test_a_damaged_folder_is_fetched_again_and_a_failed_fetch_leaves_no_half(run_dir: Path, damage: object) -> None:
    assert callable(damage)
    damage(run_dir / "jars" / "broker")
    with pytest.raises(jars.JarsError, match="LAKECOMMIT_IVY_SETTINGS"):
        jars.fetch("broker")
    assert not list((run_dir / "jars").glob(".staging-*"))


def test_an_unknown_configuration_is_named(run_dir: Path) -> None:
    with pytest.raises(jars.JarsError, match=r"no such jar configuration: spark; there are broker, connector"):
        jars.fetch("spark")


def test_the_command_says_where_the_jars_are(run_dir: Path) -> None:
    command = [sys.executable, "-m", "dev.jars", "broker"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=os.environ)
    assert done.stdout == f"broker: 2 jars in {run_dir}/jars/broker\n"
