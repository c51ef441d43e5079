# SPDX-License-Identifier: Apache-2.0
"""A folder of jars is used only when it is whole; a fetch that fails says what to do."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from dev import jar_checksums, jars

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


def test_a_complete_folder_is_used_without_a_download(run_dir: Path) -> None:
    assert jars.fetch("broker") == {"broker": run_dir / "jars" / "broker"}
    assert jars.classpath("broker") == f"{run_dir}/jars/broker/*"


@pytest.mark.heavy(but=("jar cut",))
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
def test_a_corrupt_folder_is_fetched_again_and_a_failed_fetch_leaves_no_half(run_dir: Path, damage: object) -> None:
    assert callable(damage)
    damage(run_dir / "jars" / "broker")
    with pytest.raises(jars.JarsError, match="LAKECOMMIT_IVY_SETTINGS"):
        jars.fetch("broker")
    assert not list((run_dir / "jars").glob(".staging-*"))


def test_an_unknown_configuration_is_named(run_dir: Path) -> None:
    with pytest.raises(jars.JarsError, match=r"no such jar configuration: spark; there are broker, connector"):
        jars.fetch("spark")


@pytest.mark.heavy
def test_the_command_reports_where_the_jars_are(
    one_jar: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run_dir / "jars" / "broker")
    assert jars.main(["broker"]) == 0
    assert capsys.readouterr().out == f"broker: 1 jars in {run_dir}/jars/broker\n"


IVY = """
<ivy-module version="2.0">
  <info organisation="lakecommit" module="test"/>
  <configurations><conf name="broker"/></configurations>
  <dependencies><dependency org="some" name="one" rev="1" conf="broker->default"/></dependencies>
</ivy-module>
"""


@pytest.fixture
def one_jar(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that holds one jar, which is listed; where Ivy keeps its copy of it."""
    (tmp_path / "one.jar").write_bytes(b"as it was published")
    (tmp_path / "ivy.xml").write_text(IVY)
    (tmp_path / "jars.sha256").write_text(f"{jar_checksums.digest(tmp_path / 'one.jar')}  one-1.jar\n")
    monkeypatch.setattr(jars, "_ivy_xml", lambda conf: tmp_path / "ivy.xml")
    monkeypatch.setattr(jar_checksums, "LIST", tmp_path / "jars.sha256")
    return run_dir / "ivy" / "some" / "one" / "jars" / "one-1.jar"


def test_a_jar_that_is_the_listed_one_is_used(one_jar: Path) -> None:
    assert (jars.fetch("broker")["broker"] / "one-1.jar").read_bytes() == b"as it was published"


@pytest.mark.heavy
def test_a_jar_that_was_corrupt_in_the_cache_is_an_error_that_names_it_and_the_remedy(
    one_jar: Path, run_dir: Path
) -> None:
    shutil.rmtree(jars.fetch("broker")["broker"])
    one_jar.write_bytes(b"as it was distorted")
    with pytest.raises(
        jars.JarsError, match=rf"one-1\.jar is not the file .*remove the folder {run_dir}/ivy.*make jars"
    ):
        jars.fetch("broker")
    assert not (run_dir / "jars" / "broker").exists()
    shutil.rmtree(run_dir / "ivy")
    assert jars.fetch("broker")["broker"].is_dir()


@pytest.mark.heavy
def test_a_jar_that_is_not_listed_is_not_used(one_jar: Path, tmp_path: Path) -> None:
    (tmp_path / "jars.sha256").write_text("")
    with pytest.raises(jars.JarsError, match=r"one-1\.jar is not in dev/jars\.sha256: .* `make jar-checksums`"):
        jars.fetch("broker")


def test_make_jars_notices_a_jar_that_was_exchanged_by_one_of_its_size(
    one_jar: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = jars.fetch("broker")["broker"]
    (used / "one-1.jar").write_bytes(b"as it was distorted")
    assert jars.main(["broker"]) == 1
    assert "one-1.jar is not the file that dev/jars.sha256 lists" in (text := capsys.readouterr().err)
    assert f"remove the folder {used} and run `make jars`" in text


@pytest.mark.parametrize("name", jars.FILES)
def test_whatever_is_requested_is_listed(name: str) -> None:
    text = Path(jars.__file__).with_name(name).read_text()
    dependencies = re.findall(r'<dependency org="[^"]+" name="([^"]+)" rev="([^"]+)"', text)
    listed = jar_checksums.listed()
    assert dependencies
    missing = [f"{n}-{rev}" for n, rev in dependencies if not any(one.startswith(f"{n}-{rev}") for one in listed)]
    assert missing == []


@pytest.mark.heavy(but=("sha256",))
@pytest.mark.parametrize("kind", ["sha256", "sha1"])
def test_the_list_is_written_from_what_is_published_next_to_a_jar(
    kind: str, one_jar: Path, run_dir: Path, tmp_path: Path
) -> None:
    places = jars.fetch("broker").values()
    notes = one_jar.parent.parent / "ivydata-1.properties"
    notes.write_text(f"artifact.location=file\\:{tmp_path}/published/one-1.jar\n")
    checksum = tmp_path / "published" / f"one-1.jar.{kind}"
    checksum.parent.mkdir()
    checksum.write_text(f"{jar_checksums.digest(one_jar, kind)}  one-1.jar\n")
    before = jar_checksums.listed()
    (tmp_path / "jars.sha256").write_text("")
    assert jar_checksums.write(places, run_dir / "ivy") == 1
    assert jar_checksums.listed() == before
    checksum.write_text("0" * 40)
    with pytest.raises(jar_checksums.ChecksumError, match=f"one-1.jar has another {kind.upper()} than is published"):
        jar_checksums.write(places, run_dir / "ivy")
    checksum.unlink()
    with pytest.raises(jar_checksums.ChecksumError, match="no checksum is published"):
        jar_checksums.write(places, run_dir / "ivy")
