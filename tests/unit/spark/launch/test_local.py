# SPDX-License-Identifier: Apache-2.0
"""The section `spark`. The session itself is tested with a real Spark elsewhere."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.spark.job import Secrets
from airflow_provider_lakecommit.spark.launch.local import LocalSpark, SparkSection


@pytest.mark.parametrize(
    ("master", "used"),
    [
        (None, "local[*,3]"),
        ("local", "local[1,3]"),
        ("local[2]", "local[2,3]"),
        ("local[*]", "local[*,3]"),
        ("local[4,1]", "local[4,1]"),
        ("spark://master:7077", "spark://master:7077"),
    ],
)
def test_a_local_master_gives_a_task_more_than_one_attempt(master: str | None, used: str) -> None:
    assert SparkSection({} if master is None else {"master": master}).master == used


@pytest.mark.parametrize(
    ("master", "local"), [(None, True), ("local", True), ("local[2]", True), ("spark://m:7077", False), ("yarn", False)]
)
def test_only_a_local_master_has_this_machine(master: str | None, local: bool) -> None:
    assert SparkSection({} if master is None else {"master": master}).is_local == local


@pytest.mark.parametrize(
    ("master", "conf", "variable", "python"),
    [
        ("local[2]", {"spark.pyspark.python": "there"}, "elsewhere", sys.executable),
        ("spark://m:7077", {"spark.pyspark.python": "there"}, "elsewhere", "there"),
        ("spark://m:7077", {}, "elsewhere", "elsewhere"),
        ("spark://m:7077", {}, None, sys.executable),
    ],
)
def test_which_python_the_workers_are(
    monkeypatch: pytest.MonkeyPatch, master: str, conf: dict[str, str], variable: str | None, python: str
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    section = SparkSection({"master": master, "conf": conf})
    assert LocalSpark(section, log=print, on_start=list)._workers_python() == python


def test_settings_are_texts_as_spark_reads_them() -> None:
    assert SparkSection({"conf": {"a": True, "b": 2, "c": "x"}}).conf == {"a": "true", "b": "2", "c": "x"}


@pytest.mark.parametrize(
    "section",
    [
        {"mister": "x"},
        {"master": 2},
        {"conf": []},
        {"master": "local", "remote": "sc://x"},
        {"remote": 15002},
        {"remote": "sc://x", "conf": {"spark.driver.memory": "2g"}},
    ],
    ids=str,
)
def test_a_wrong_section_is_a_bad_spec(section: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="LC5022"):
        SparkSection(section)


def test_a_job_without_a_session_is_an_error_and_closing_is_none() -> None:
    spark = LocalSpark(SparkSection({}), log=lambda _: None, on_start=lambda: None)
    with pytest.raises(SparkJobError, match="LC5023"):
        spark.run(None, Secrets(kafka={}, io={}))  # type: ignore[arg-type]
    spark.stop()
    spark.close()
