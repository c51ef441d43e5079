# SPDX-License-Identifier: Apache-2.0
"""What is built and installed: versions that must agree, entry points, the archives and what Airflow is told."""

from __future__ import annotations

import email
import email.message
import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution, requires, version
from pathlib import Path

import airflow
import jsonschema
import pytest
from packaging.requirements import Requirement

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.get_provider_info import get_provider_info
from dev.preflight import spark_jar_versions

CHECKOUT = Path(__file__).resolve().parents[2]
DISTRIBUTION = "airflow-provider-lakecommit"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive, built from a clean copy of the checkout without touching the network."""
    clean, out = tmp_path_factory.mktemp("clean") / "checkout", tmp_path_factory.mktemp("dist")
    shutil.copytree(CHECKOUT, clean, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(clean)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def metadata(archives: tuple[Path, Path]) -> email.message.Message:
    """METADATA of the wheel."""
    with zipfile.ZipFile(archives[0]) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


def exact_pins(lines: list[str]) -> dict[str, str]:
    found = [Requirement(line) for line in lines]
    pins = {need.name: list(need.specifier) for need in found if need.marker is None}
    return {name: one[0].version for name, one in pins.items() if len(one) == 1 and one[0].operator == "=="}


def test_pyspark_its_client_and_its_jars_are_of_one_version() -> None:
    assert {version("pyspark"), version("pyspark-client")} == spark_jar_versions()


def test_the_wheel_pins_pyspark_and_its_client_to_that_version(metadata: email.message.Message) -> None:
    pins = exact_pins(metadata.get_all("Requires-Dist", []))
    assert pins["pyspark"] == pins["pyspark-client"] == version("pyspark")


@pytest.mark.integration
def test_a_plain_install_of_the_wheel_resolves_to_equal_pysparks(archives: tuple[Path, Path], tmp_path: Path) -> None:
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"{DISTRIBUTION} @ {archives[0].as_uri()}\n")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    chosen = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    assert chosen["pyspark"] == chosen["pyspark-client"]


def test_both_archives_hold_the_package_with_its_types_and_licence_and_nothing_else(
    archives: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = wheel.namelist()
    assert "airflow_provider_lakecommit/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"airflow_provider_lakecommit"}
    with tarfile.open(archives[1]) as source:
        inner = {name.split("/", 1)[-1] for name in source.getnames()}
    assert {"airflow_provider_lakecommit/py.typed", "LICENSE", "README.md", "setup.cfg", "pyproject.toml"} <= inner


def test_every_module_of_the_checkout_is_in_the_wheel(archives: tuple[Path, Path]) -> None:
    package = CHECKOUT / "airflow_provider_lakecommit"
    modules = {path.relative_to(CHECKOUT).as_posix() for path in package.rglob("*.py")}
    with zipfile.ZipFile(archives[0]) as wheel:
        assert modules <= set(wheel.namelist())


def test_the_entry_points_resolve() -> None:
    ours = distribution(DISTRIBUTION).entry_points
    assert {(point.group, point.name) for point in ours} == {
        ("airflow.plugins", "lakecommit"),
        ("apache_airflow_provider", "provider_info"),
        ("console_scripts", "lakecommit"),
    }
    assert all(callable(point.load()) for point in ours)


def test_provider_info_fits_airflows_schema() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_provider_info_names_this_distribution_and_version() -> None:
    info = get_provider_info()
    assert info["package-name"] == DISTRIBUTION
    assert info["versions"][0] == __version__ == version(DISTRIBUTION)


def test_provider_info_names_only_modules_that_exist() -> None:
    named = [
        module
        for kind in ("operators", "sensors", "hooks", "triggers")
        for entry in get_provider_info()[kind]
        for module in entry["python-modules"]
    ]
    assert [module for module in named if not (CHECKOUT / f"{module.replace('.', '/')}.py").is_file()] == []


def test_the_constraints_pin_what_is_installed_and_hold_no_address() -> None:
    lines = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = exact_pins(lines)
    assert len(pins) == len(lines)
    direct = {Requirement(line).name for line in requires(DISTRIBUTION) or []} - {DISTRIBUTION, "setuptools"}
    normal = {name.lower().replace("_", "-") for name in direct}
    assert normal <= {name.lower().replace("_", "-") for name in pins}


def test_pyproject_holds_the_build_system_and_nothing_else() -> None:
    assert list(tomllib.loads((CHECKOUT / "pyproject.toml").read_text())) == ["build-system"]
