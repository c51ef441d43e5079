# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of a host: versions, Java and memory, each made wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.spark.probe import local_view
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level, checked
from airflow_provider_lakecommit.status.doctor.host import executor, installed_versions, java, memory, versions


def wrong(found: list[CheckResult]) -> list[tuple[str, str]]:
    return [(f.check, f.level.value) for f in found if f.level is not Level.OK]


def test_this_environment_is_what_the_release_was_made_for() -> None:
    found = list(versions(installed_versions()))
    assert wrong(found) == []
    assert {"python", "apache-airflow", "pyspark", "pyiceberg", "confluent-kafka", "librdkafka"} <= {
        f.check for f in found
    }


def test_a_version_out_of_bounds_and_one_that_is_missing_are_named_with_the_command() -> None:
    there = {**installed_versions(), "pyiceberg": "0.9.1"}
    del there["fastavro"]
    found = [f for f in versions(there) if f.level is Level.FAIL]
    assert sorted(f.check for f in found) == ["fastavro", "pyiceberg"]
    assert all(f.remedy.startswith("pip install ") for f in found)
    assert "0.9.1" in next(f.observed for f in found if f.check == "pyiceberg")


def test_two_releases_of_spark_in_one_folder_are_reported() -> None:
    found = [f for f in versions({**installed_versions(), "pyspark-client": "4.1.1"}) if f.level is Level.FAIL]
    assert "both use the same folder" in found[-1].observed


def test_an_old_python_is_reported() -> None:
    assert wrong(list(versions(installed_versions(), (3, 10, 2)))) == [("python", "FAIL")]


@pytest.mark.parametrize(
    ("message", "level"), [('openjdk version "17.0.1"', "ok"), ('openjdk version "11.0.1"', "FAIL"), ("what?", "FAIL")]
)
def test_java_is_requested_its_version(tmp_path: Path, message: str, level: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{message}' >&2\n")
    program.chmod(0o755)
    (found,) = java("local[2]", {"JAVA_HOME": str(tmp_path)})
    assert found.level.value == level


def test_no_java_is_reported_and_a_server_needs_none_here(tmp_path: Path) -> None:
    (found,) = java("local[2]", {"PATH": str(tmp_path)})
    assert (found.level, "JAVA_HOME" in found.remedy) == (Level.FAIL, True)
    assert list(java(None, {"PATH": str(tmp_path)})) == []


def test_memory_is_weighed_against_slots_and_heap() -> None:
    gigabyte = 2**20
    conf = {"spark.driver.memory": "1024m"}
    assert wrong(list(memory("local[2,3]", conf, 3 * gigabyte))) == []
    (found,) = memory("local[8,3]", conf, 3 * gigabyte)
    assert (found.level, found.observed) == (
        Level.WARN,
        "3.0 GB are free; 8 slots and a Java heap of 1.0 GB take about 5.0 GB",
    )
    assert list(memory("spark://x:7077", {}, 1)) == []


def test_a_task_that_is_another_release_or_lacks_a_library_fails_and_other_differences_warn() -> None:
    remote = {**local_view(), "storage": ""}
    assert wrong(list(executor(remote, time.time(), tried=True))) == []
    versions_there = {**remote["versions"], "pyspark": "4.1.1", "pyarrow": "1.0", "fastavro": "not installed"}
    found = wrong(list(executor({**remote, "versions": versions_there}, time.time(), tried=True)))
    assert found == [("executor libraries", "FAIL"), ("executor libraries", "warn"), ("executor libraries", "FAIL")]


@pytest.mark.parametrize(("shift", "word"), [(-60, "behind"), (60, "ahead")])
def test_a_clock_that_differs_is_reported(shift: float, word: str) -> None:
    began = time.time()
    remote = {**local_view(), "storage": "", "time": began + shift}
    (found,) = [f for f in executor(remote, began, tried=True) if f.level is Level.WARN]
    assert (found.check, word in found.observed) == ("executor clock", True)


def test_storage_that_a_task_cannot_use_fails_and_one_that_was_not_tried_is_reported() -> None:
    remote = {**local_view(), "storage": "writing x: PermissionError"}
    assert wrong(list(executor(remote, time.time(), tried=True))) == [("executor storage", "FAIL")]
    assert wrong(list(executor({**remote, "storage": ""}, time.time(), tried=False))) == [("executor storage", "warn")]


def test_a_check_that_ends_in_an_error_is_a_finding_after_those_before_it() -> None:
    def check() -> list[CheckResult]:
        raise TableError("LC9999", "it is gone")

    (found,) = checked("table x", check)
    assert (found.check, found.level, found.observed) == ("table x", Level.FAIL, "it is gone [LC9999]")
    (odd,) = checked("table x", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert "ZeroDivisionError" in odd.observed
