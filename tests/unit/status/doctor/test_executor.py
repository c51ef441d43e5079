# SPDX-License-Identifier: Apache-2.0
"""Libraries that a task saw, compared with those here."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from airflow_provider_lakecommit.spark import probe
from airflow_provider_lakecommit.status.doctor.finding import Level
from airflow_provider_lakecommit.status.doctor.host import compared

HERE = {"airflow-provider-lakecommit": "1.0", "pyspark": "4.2.0", "pyarrow": "26.0.1"}


@pytest.mark.parametrize(
    ("there", "level"),
    [
        ({}, Level.OK),
        # Each job brings it.
        ({"airflow-provider-lakecommit": "not installed"}, Level.OK),
        ({"airflow-provider-lakecommit": "0.9"}, Level.FAIL),
        ({"pyspark": "4.1.0"}, Level.FAIL),
        ({"pyarrow": "25.0.0"}, Level.WARN),
        ({"pyarrow": "not installed"}, Level.FAIL),
    ],
    ids=str,
)
def test_what_differs_there_is_reported_by_how_much_it_matters(there: dict[str, str], level: Level) -> None:
    [found] = compared({**HERE, **there}, HERE)
    assert found.level is level


def test_the_pyspark_of_spark_itself_has_a_version_where_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(probe, "version", missing)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__="4.2.0"))  # type: ignore[arg-type]
    versions = probe.local_view()["versions"]
    assert (versions["pyspark"], versions["confluent-kafka"]) == ("4.2.0", "not installed")
