# SPDX-License-Identifier: Apache-2.0
"""What is built and installed: versions that must agree, entry points, the archives and what Airflow is reported."""

from __future__ import annotations

import email
import email.message
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution, requires, version
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pyiceberg.io import SCHEMA_TO_FILE_IO

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.get_provider_info import get_provider_info
from dev import dist
from dev.preflight import PYTHON_BELOW, PYTHON_FROM, spark_jar_versions

CHECKOUT = Path(__file__).resolve().parents[2]
DISTRIBUTION = "airflow-provider-lakecommit"
EPOCH = 1_790_000_000


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source archive, built from a clean copy of the checkout without touching the network."""
    return build(tmp_path_factory.mktemp("first"))


def build(folder: Path) -> tuple[Path, Path]:
    clean, out = folder / "checkout", folder / "dist"
    leave_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules")
    shutil.copytree(CHECKOUT, clean, ignore=leave_out, symlinks=True)
    dist.archives(clean, out, EPOCH)
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


def test_the_docs_name_the_versions_that_are_tested() -> None:
    page = " ".join((CHECKOUT / "docs" / "operate" / "supported.rst").read_text(encoding="utf-8").split())
    locked = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = exact_pins([line for line in locked if line and not line.startswith(("#", " "))])
    minor = {name: ".".join(pins[name].split(".")[:2]) for name in ("pyiceberg", "duckdb")}
    pythons = [f"{PYTHON_FROM[0]}.{n}" for n in range(PYTHON_FROM[1], PYTHON_BELOW[1])]
    for text in (
        ", ".join(pythons),
        f"all tests with {pins['apache-airflow']}",
        f"pyspark, pyspark-client - {pins['pyspark']}",
        f"pyiceberg {minor['pyiceberg']}",
        f"DuckDB {minor['duckdb']}",
    ):
        assert text in page


def test_the_wheel_pins_pyspark_and_its_client_to_that_version(metadata: email.message.Message) -> None:
    pins = exact_pins(metadata.get_all("Requires-Dist", []))
    assert pins["pyspark"] == pins["pyspark-client"] == version("pyspark")


def test_what_the_wheel_needs_is_stated_once(metadata: email.message.Message) -> None:
    """`lakecommit doctor` has a line for each."""
    needs = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    plain = [each.name for each in needs if each.marker is None]
    assert sorted(plain) == sorted(set(plain))


@pytest.mark.integration
@pytest.mark.heavy
def test_the_libraries_of_executors_have_the_ranges_of_the_package(metadata: email.message.Message) -> None:
    lines = (CHECKOUT / "docs" / "examples" / "executors.txt").read_text().splitlines()
    listed = [Requirement(line) for line in lines if not line.startswith("#")]
    listed += [Requirement(found) for line in lines for found in re.findall(r"(?<=: )\w+>=\S+", line)]
    stated = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    for each in listed:
        assert each.specifier in [one.specifier for one in stated if one.name == each.name], each


@pytest.mark.heavy
def test_a_plain_install_of_the_wheel_resolves_to_equal_pysparks(archives: tuple[Path, Path], tmp_path: Path) -> None:
    requirements = tmp_path / "wanted.in"
    requirements.write_text(f"{DISTRIBUTION} @ {archives[0].as_uri()}\n")
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        str(requirements),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    chosen = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    assert chosen["pyspark"] == chosen["pyspark-client"]


@pytest.mark.heavy
def test_the_same_source_gives_the_same_bytes_whoever_builds_it(
    archives: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree

    def as_another_user(*args: Any, **kwargs: Any) -> Any:
        made = copied(*args, **kwargs)
        for path in Path(made).rglob("*.py"):
            if not path.is_symlink():
                path.chmod(0o600)
                os.utime(path, (EPOCH + 7, EPOCH + 7))
        return made

    monkeypatch.setattr(shutil, "copytree", as_another_user)
    assert [path.read_bytes() for path in build(tmp_path)] == [path.read_bytes() for path in archives]


def test_libraries_of_the_registry_client_are_those_that_confluent_kafka_states(
    metadata: email.message.Message,
) -> None:
    needs = {need.name: need for need in map(Requirement, metadata.get_all("Requires-Dist", [])) if not need.marker}
    assert needs["confluent-kafka"].extras == {"schemaregistry"}
    stated = [Requirement(line) for line in requires("confluent-kafka") or []]
    needed = [need for need in stated if need.marker and need.marker.evaluate({"extra": "schemaregistry"})]
    assert {need.name for need in needed} & needs.keys() == set()
    assert [str(need) for need in needed if version(need.name) not in need.specifier] == []


def test_both_archives_hold_the_package_with_its_types_and_licence_and_nothing_else(
    archives: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = wheel.namelist()
    assert "airflow_provider_lakecommit/py.typed" in names
    for shipped in ("grafana.json", "alerts.yaml", "statsd_mapping.yaml"):
        assert f"airflow_provider_lakecommit/telemetry/prometheus/{shipped}" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"airflow_provider_lakecommit"}
    with tarfile.open(archives[1]) as source:
        inner = {name.split("/", 1)[-1] for name in source.getnames()}
    assert {"airflow_provider_lakecommit/py.typed", "LICENSE", "README.md", "setup.cfg", "pyproject.toml"} <= inner
    assert {"SECURITY.md", "RELEASING.md", "constraints.txt", "requirements-dev.txt"} <= inner


def test_the_wheel_holds_the_example_dags_where_airflow_searches_for_a_providers_examples(
    archives: tuple[Path, Path],
) -> None:
    folder = "airflow_provider_lakecommit/example_dags/"
    with zipfile.ZipFile(archives[0]) as wheel:
        shipped = {name.removeprefix(folder): wheel.read(name) for name in wheel.namelist() if name.startswith(folder)}
    assert shipped == {path.name: path.read_bytes() for path in (CHECKOUT / "dags").glob("*.py")}
    assert "example_lakecommit_basic.py" in shipped


def test_the_wheel_names_its_author_its_licence_and_where_it_comes_from(metadata: email.message.Message) -> None:
    assert metadata["Author"] == "The airflow-provider-lakecommit authors"
    assert metadata["License-Expression"] == "Apache-2.0"
    addresses = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Source", "Documentation", "Changelog", "Issues", "Security"} == set(addresses)
    assert all(address.startswith(dist.RESERVED) for address in addresses.values())


@pytest.mark.parametrize("address", ["", "http://host/repository", "repository", dist.RESERVED])
def test_a_release_is_not_built_without_the_address_of_a_repository(address: str, tmp_path: Path) -> None:
    with pytest.raises(dist.DistError, match="make dist REPOSITORY="):
        dist.build(address, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_all_report_the_same_of_python(metadata: email.message.Message) -> None:
    stated = [line.rpartition(" ")[2] for line in metadata.get_all("Classifier", []) if ":: Python :: 3." in line]
    minors = range(PYTHON_FROM[1], PYTHON_BELOW[1])
    assert stated == [f"3.{minor}" for minor in minors], "a Python is allowed when tests are run on it"
    allowed = SpecifierSet(metadata["Requires-Python"])
    assert [minor for minor in range(5, 25) if f"3.{minor}.1" in allowed] == list(minors)
    for place in ("README.md", "docs/project/develop.rst", "dev/find_python.sh", "dev/preflight.py"):
        assert f"3.{minors[0]} to 3.{minors[-1]}" in (CHECKOUT / place).read_text(), place


def test_the_extras_bring_what_pyiceberg_serves_a_storage_with_first(metadata: email.message.Message) -> None:
    needs = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    storages = {"s3": ("s3", "s3a"), "gcs": ("gs",), "adls": ("abfs", "abfss", "wasb", "wasbs")}
    libraries = {"PyArrowFileIO": "pyarrow", "FsspecFileIO": "adlfs"}
    for extra, schemes in storages.items():
        served_by = {libraries[SCHEMA_TO_FILE_IO[scheme][0].rpartition(".")[2]] for scheme in schemes}
        brought = [need for need in needs if need.marker and need.marker.evaluate({"extra": extra})]
        own = [need for need in brought if not need.marker.evaluate({"extra": ""})]  # type: ignore[union-attr]
        also = [("boto3", set())] if extra == "s3" else []
        assert sorted((need.name, need.extras) for need in own) == sorted([("pyiceberg", served_by), *also]), extra


def test_pyiceberg_has_every_extra_that_is_requested_of_it(metadata: email.message.Message) -> None:
    needs = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    extras = {extra for need in needs if need.name == "pyiceberg" for extra in need.extras}
    assert (
        {"glue", "adlfs", "hive"} <= extras <= set(distribution("pyiceberg").metadata.get_all("Provides-Extra") or [])
    )


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


def locked() -> dict[str, list[str]]:
    """Hashes by the line that pins a version."""
    text = (CHECKOUT / "requirements-dev.txt").read_text().replace("\\\n", " ")
    lines = (line.split(" --hash=sha256:") for line in text.splitlines() if not line.startswith("#"))
    return {re.sub(r"\s+", " ", pin).strip(): [one.strip() for one in hashes] for pin, *hashes in lines}


def test_everything_that_setup_installs_is_locked_with_hashes_and_without_addresses() -> None:
    assert "://" not in (CHECKOUT / "requirements-dev.txt").read_text()
    pins = [Requirement(line) for line in locked()]
    assert [pin.name for pin in pins if [one.operator for one in pin.specifier] != ["=="]] == []
    assert [
        line
        for line, hashes in locked().items()
        if not hashes or not all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes)
    ] == []
    names = {pin.name for pin in pins}
    assert {"uv", "setuptools", "pyspark", "pytest-xdist", "psutil", "httpx"} <= names


def test_what_is_locked_for_this_python_is_installed_and_within_the_ranges() -> None:
    pins = [Requirement(line) for line in locked()]
    here = {pin.name: next(iter(pin.specifier)).version for pin in pins if not pin.marker or pin.marker.evaluate()}
    assert {name: version(name) for name in here} == here
    extras = ("dev", "docs", "test", "sql-sqlite", "postgres")
    needs = [Requirement(line) for line in requires(DISTRIBUTION) or []]
    direct = [need for need in needs if not need.marker or any(need.marker.evaluate({"extra": one}) for one in extras)]
    normal = {need.name.lower(): need.specifier for need in direct if need.name != DISTRIBUTION}
    assert [name for name, allowed in normal.items() if here[name] not in allowed] == []


def test_a_lock_is_for_every_platform_and_python_that_is_allowed() -> None:
    grpcio = next(hashes for pin, hashes in locked().items() if pin.startswith("grpcio=="))
    assert len(grpcio) > 4 * 3, "wheels of four Pythons on three platforms, at least"


def test_the_constraints_are_the_lock_without_hashes_and_build_tools() -> None:
    lines = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines == [line for line in locked() if line.partition("==")[0] not in ("pip", "setuptools")]


def test_pyproject_holds_the_build_system_and_nothing_else() -> None:
    assert list(tomllib.loads((CHECKOUT / "pyproject.toml").read_text())) == ["build-system"]
