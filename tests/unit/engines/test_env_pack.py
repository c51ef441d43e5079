# SPDX-License-Identifier: Apache-2.0
"""The archive of an environment: what is in it, and what it does not take. tests/cluster runs jobs with one."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from airflow_provider_lakecommit.engines import env_pack
from airflow_provider_lakecommit.engines.env_pack import needed, pack, spark_conf
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.spark.daemon import LIBRARIES


def test_all_that_a_task_imports_is_needed_and_airflow_is_not() -> None:
    found = needed()
    roots = {name.partition(".")[0].replace("_", "-") for name in LIBRARIES}
    assert roots <= found.keys()
    assert not {name for name in found if "airflow" in name}


def test_further_distributions_come_with_what_they_require() -> None:
    assert {"hypothesis", "sortedcontainers"} <= needed(["hypothesis"]).keys()
    assert "hypothesis" not in needed()


def test_one_that_is_not_here_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nobody-made-this is not installed"):
        pack(tmp_path / "e.tar.gz", also=["nobody-made-this"])
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_name_and_where_nothing_can_be_written_is_told_by_name(tmp_path: Path, only_tiny: Path) -> None:
    with pytest.raises(SpecError, match="'no/name' is not the name of a distribution"):
        needed(["no/name"])
    with pytest.raises(SpecError, match=r"nowhere/e\.tar\.gz cannot be written"):
        pack(tmp_path / "nowhere" / "e.tar.gz")


def test_distributions_that_require_each_other_are_packed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one, two = small(tmp_path / "site", "one"), small(tmp_path / "site", "two")
    for each, other in ((one, "two"), (two, "one")):
        metadata = tmp_path / "site" / f"{each.metadata['Name']}-1.0.dist-info" / "METADATA"
        metadata.write_text(metadata.read_text() + f'Provides-Extra: x\nRequires-Dist: {other}[x]; extra == "x"\n')
    known = {"one": one, "two": two}
    monkeypatch.setattr(env_pack, "_of_tasks", lambda: iter(()))
    monkeypatch.setattr(env_pack, "distribution", known.__getitem__)
    assert needed(["one[x]"]).keys() == {"one", "two"}


def small(folder: Path, name: str = "tiny", **files: str) -> PathDistribution:
    """A distribution of one module, installed as pip does."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text("WHERE = __file__\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    listed = f"{name}.py,,\n{info.name}/METADATA,,\n__pycache__/{name}.pyc,,\n../../../bin/{name},,\n"
    (info / "RECORD").write_text(listed)
    for file, text in files.items():
        (info / file.replace("_json", ".json")).write_text(text)
    return PathDistribution(info)


@pytest.fixture
def only_tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    one = small(tmp_path / "site")
    monkeypatch.setattr(env_pack, "needed", lambda also: {"tiny": one})
    return tmp_path


def test_what_is_unpacked_anywhere_is_an_environment_of_its_own(only_tiny: Path) -> None:
    packed = pack(only_tiny / "e.tar.gz")
    assert packed.distributions == {"tiny": "1.0"}
    place = only_tiny / "somewhere" / "else"
    with tarfile.open(packed.file) as archive:
        archive.extractall(place, filter="tar")
    command = [str(place / "bin" / "python"), "-c", "import sys, tiny; print(sys.prefix, tiny.WHERE)"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    prefix, where = told.stdout.split()
    assert prefix == str(place)
    assert Path(where).is_relative_to(place / "lib")


def test_only_files_of_libraries_are_in_it_and_the_interpreter_is_a_link(only_tiny: Path) -> None:
    packed = pack(only_tiny / "e.tar.gz", python="/usr/bin/python3.11")
    with tarfile.open(packed.file) as archive:
        links = {m.linkname for m in archive if m.issym()}
        files = [m.name for m in archive if m.isfile()]
        settings = archive.extractfile("pyvenv.cfg")
        assert settings is not None
        assert b"home = /usr/bin\n" in settings.read()
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    assert links == {"/usr/bin/python3.11"}
    assert files == ["pyvenv.cfg", f"{site}/tiny-1.0.dist-info/METADATA", f"{site}/tiny.py"]


def test_the_same_files_give_the_same_archive(only_tiny: Path) -> None:
    first = pack(only_tiny / "a.tar.gz").file.read_bytes()
    (only_tiny / "site" / "tiny.py").touch()
    second = pack(only_tiny / "b.tar.gz").file.read_bytes()
    # gzip's header tells name and time of the archive itself.
    assert (len(first) - len("a"), first[-8:]) == (len(second) - len("b"), second[-8:])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"direct_url_json": '{"url": "file:///x", "dir_info": {"editable": true}}'}, "in place"),
        ({"RECORD": None}, "without a list of its files"),
    ],
)
def test_what_was_not_installed_as_it_is_cannot_be_packed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str | None], message: str
) -> None:
    one = small(tmp_path / "site", **{name: text for name, text in files.items() if text is not None})
    if "RECORD" in files:
        next((tmp_path / "site").glob("*.dist-info/RECORD")).unlink()
    monkeypatch.setattr(env_pack, "needed", lambda also: {"tiny": one})
    before = tmp_path / "e.tar.gz"
    before.write_text("an older one")
    with pytest.raises(SpecError, match=message):
        pack(before)
    assert before.read_text() == "an older one"


def test_spark_is_told_where_it_unpacks(tmp_path: Path) -> None:
    conf = spark_conf(tmp_path / "e.tar.gz")
    assert conf["spark.archives"].endswith("/e.tar.gz#environment")
    assert conf["spark.pyspark.python"].startswith("./environment/")
