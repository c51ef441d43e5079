# SPDX-License-Identifier: Apache-2.0
"""An installed Airflow knows this provider, its options and their defaults."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.get_provider_info import get_provider_info

pytestmark = pytest.mark.airflow

OPTIONS = get_provider_info()["config"]["lakecommit"]["options"]


def test_airflow_lists_the_provider() -> None:
    command = [sys.executable, "-m", "airflow", "providers", "list", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    # Airflow writes log lines to standard output too; the answer is the last line.
    listed = {provider["package_name"]: provider["version"] for provider in json.loads(done.stdout.splitlines()[-1])}
    assert listed["airflow-provider-lakecommit"] == __version__


@pytest.mark.parametrize("option", OPTIONS)
def test_an_unset_option_has_its_default(option: str) -> None:
    from airflow.configuration import conf

    assert conf.get("lakecommit", option) == OPTIONS[option]["default"]


def test_the_tests_airflow_is_their_own_and_migrated(airflow_home: Path, airflow_db: Path) -> None:
    from airflow.configuration import conf

    assert conf.get("database", "sql_alchemy_conn") == f"sqlite:///{airflow_db}"
    assert airflow_db.parent == airflow_home
    connection = sqlite3.connect(airflow_db)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert {"dag_run", "task_instance", "asset_event"} <= tables
